//! A shell command as a process group: fed, read with a bound, and never left behind.

use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use ferrata_core::node::NodeContext;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::capture::AttemptOutput;
use super::inherit::Inherit;
use super::{ActivityCounter, HandlerError};

/// How long the output of a command is still read after it has ended. Its group is killed by then, so only a process that
/// left the group can hold the pipe.
const DRAIN: Duration = Duration::from_secs(1);

/// Waits for a line, and then is the command. The caller writes the line once the process group is noted, so that no command
/// begins that no process would kill: where this process is killed before, there is the end of the input instead.
const BEGIN: &str = r#"read -r FERRATA_BEGIN && exec "$1" -c "$0""#;

/// What to run.
#[derive(Clone, Debug)]
pub(super) struct Shell {
    /// What the program is given behind `-c`.
    pub(super) line: String,
    pub(super) program: &'static str,
    pub(super) directory: Option<PathBuf>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// What it inherits of the environment of this process.
    pub(super) inherit: Inherit,
    pub(super) input: Vec<u8>,
    /// Takes in what it prints.
    pub(super) printed: AttemptOutput,
    /// Beats whenever something is read.
    pub(super) pulse: ActivityCounter,
}

/// How it ended.
#[derive(Debug)]
pub(super) struct ProcessEnd {
    pub(super) status: ExitStatus,
}

impl ProcessEnd {
    /// Says how the process ended, for people.
    pub(super) fn how(&self) -> String {
        if let Some(code) = self.status.code() {
            return format!("ended with status {code}");
        }
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&self.status) {
            return format!("was ended by signal {signal}");
        }
        "ended without a status".to_owned()
    }
}

/// Why it cannot be told how it ended.
#[derive(Debug)]
pub(super) enum UnknownExit {
    /// It was never started.
    Unstarted(std::io::Error),
    /// It was, and the system does not tell what became of it.
    Unheard(std::io::Error),
}

impl UnknownExit {
    /// Says so, for people.
    pub(super) fn said(&self, what: &str) -> String {
        match self {
            Self::Unstarted(error) => format!("{what} cannot be started: {error}"),
            Self::Unheard(error) => format!("it is not known how {what} ended: {error}"),
        }
    }

    /// Makes an error of it. Only what was never started is certainly not done.
    pub(super) fn of(&self, what: &str) -> HandlerError {
        let error = HandlerError::transient(self.said(what));
        if let Self::Unstarted(_) = self { error.not_done() } else { error }
    }
}

/// The processes of a command; they are killed when this is dropped.
struct Group {
    #[cfg(unix)]
    id: Option<rustix::process::Pid>,
}

impl Group {
    #[cfg(unix)]
    fn of(id: Option<u32>) -> Self {
        let id = id.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        id.into_iter().for_each(super::guard::begun);
        Self { id }
    }

    #[cfg(not(unix))]
    fn of(_id: Option<u32>) -> Self {
        Self {}
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(id) = self.id {
            // A group that is gone is what is wanted.
            let _ = rustix::process::kill_process_group(id, signal);
        }
    }

    /// Asks the processes to end.
    fn end(&self) {
        #[cfg(unix)]
        self.signal(rustix::process::Signal::TERM);
    }

    fn kill(&mut self) {
        #[cfg(unix)]
        {
            self.signal(rustix::process::Signal::KILL);
            self.id.take().into_iter().for_each(super::guard::ended);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command until it ends, and with it whatever it has started.
///
/// Once its node is [cancelled](NodeContext::cancelled), the group is asked to end. Dropping the future kills it.
pub(super) async fn run(shell: Shell, cx: &NodeContext) -> Result<ProcessEnd, UnknownExit> {
    let mut command = Command::new("sh");
    command
        .args(["-c", BEGIN])
        .args([&*shell.line, shell.program])
        .env_clear()
        .envs(shell.inherit.of_process())
        .envs(shell.environment);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    if let Some(directory) = &shell.directory {
        command.current_dir(directory);
    }
    let mut child = command.spawn().map_err(UnknownExit::Unstarted)?;
    let mut group = Group::of(child.id());
    let stdin = child.stdin.take();
    let write = async {
        if let Some(mut stdin) = stdin {
            // A command need not read what it is given.
            let _ = stdin.write_all(b"\n").await;
            let _ = stdin.write_all(&shell.input).await;
        }
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let status = {
        let mut pipes = pin!(async {
            let (printed, pulse) = (&shell.printed, &shell.pulse);
            let output = read(out, |bytes| printed.push_output(bytes), pulse);
            let errors = read(err, |bytes| printed.push_errors(bytes), pulse);
            tokio::join!(write, output, errors)
        });
        let mut cancelled = pin!(cx.cancelled());
        let (mut drained, mut asked) = (false, false);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.map_err(UnknownExit::Unheard)?,
                _ = &mut pipes, if !drained => drained = true,
                () = &mut cancelled, if !asked => {
                    asked = true;
                    group.end();
                }
            }
        };
        group.kill();
        if !drained {
            tokio::select! {
                // What is there is read, however long the machine stood still.
                biased;
                _ = &mut pipes => {}
                () = cx.clock().sleep(DRAIN) => {}
            }
        }
        status
    };
    Ok(ProcessEnd { status })
}

/// Reads all there is, so that the command never waits for room.
async fn read(from: Option<impl AsyncRead + Unpin>, mut into: impl FnMut(&[u8]), pulse: &ActivityCounter) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 16 << 10];
    // An end and an error are the same here: nothing more comes.
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        pulse.beat();
        into(&buffer[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_never_started_is_certainly_not_done() {
        let why = || std::io::Error::other("no");
        for (lost, not_done) in [(UnknownExit::Unstarted(why()), true), (UnknownExit::Unheard(why()), false)]
        {
            let error = lost.of("the command");
            assert_eq!((error.is_not_done(), error.is_transient()), (not_done, true), "{error}");
        }
    }

    /// A process that is killed in between leaves the end of the input, and used to leave a command at work.
    ///
    /// Guarantees: PIPELINE-2.
    #[test]
    fn a_command_does_not_begin_before_its_group_is_noted() {
        let begun = |input: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", BEGIN, "cat; echo begun", "sh"]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = shell.spawn().unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
            String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
        };
        assert_eq!(begun(""), "");
        assert_eq!(begun("\n"), "begun\n");
        assert_eq!(begun("\nthe input\nof it"), "the input\nof itbegun\n", "all of it is the command's");
    }
}
