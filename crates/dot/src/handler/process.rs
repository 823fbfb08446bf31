//! Runs a shell command as a process group: writes its input, reads its output with a bound, and kills all its processes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use ferrata_core::node::NodeContext;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::capture::AttemptOutput;
use super::inherit::InheritedNames;
use super::{ActivityCounter, HandlerError};

/// How long to read the output of a command that ended. Its group is already killed, so only a process that left the group can hold the pipe.
const DRAIN: Duration = Duration::from_secs(1);

/// Waits for a line, then replaces itself by the command. The caller writes the line once the process group is registered, so that every command has
/// a process that will kill it. If this process dies earlier, the input ends instead.
const BEGIN: &str = r#"read -r FERRATA_BEGIN && exec "$1" -c "$0""#;

/// What to run.
#[derive(Clone, Debug)]
pub(super) struct ShellCommand {
    /// The argument after `-c`.
    pub(super) line: String,
    pub(super) program: &'static str,
    pub(super) directory: Option<PathBuf>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// The environment variables that it inherits.
    pub(super) inherit: InheritedNames,
    pub(super) input: Vec<u8>,
    /// Captures its output.
    pub(super) printed: AttemptOutput,
    /// Counts every read.
    pub(super) pulse: ActivityCounter,
}

/// The end of a command.
#[derive(Debug)]
pub(super) struct ProcessEnd {
    pub(super) status: ExitStatus,
}

impl ProcessEnd {
    /// Describes for people how the process ended.
    pub(super) fn describe(&self) -> String {
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

/// The reason why the end of a process is unknown.
#[derive(Debug)]
pub(super) enum UnknownExit {
    /// The process never started.
    Unstarted(std::io::Error),
    /// The process started, and the system does not report its end.
    Unheard(std::io::Error),
}

impl UnknownExit {
    /// Describes the reason for people.
    pub(super) fn describe(&self, what: &str) -> String {
        match self {
            Self::Unstarted(error) => format!("cannot start {what}: {error}"),
            Self::Unheard(error) => format!("cannot read the exit status of {what}: {error}"),
        }
    }

    /// Converts it to an error. Only a process that never started certainly did no work.
    pub(super) fn to_error(&self, what: &str) -> HandlerError {
        let error = HandlerError::transient(self.describe(what));
        if let Self::Unstarted(_) = self { error.not_done() } else { error }
    }
}

/// The processes of a command. Dropping it kills them.
struct ProcessGroup {
    #[cfg(unix)]
    id: Option<rustix::process::Pid>,
}

impl ProcessGroup {
    #[cfg(unix)]
    fn of(id: Option<u32>) -> Self {
        let id = id.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        id.into_iter().for_each(super::guard::register_group);
        Self { id }
    }

    #[cfg(not(unix))]
    fn of(_id: Option<u32>) -> Self {
        Self {}
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(id) = self.id {
            // The group may already be gone.
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
            self.id.take().into_iter().for_each(super::guard::unregister_group);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command until it ends, then ends everything that it started.
///
/// When its node is [cancelled](NodeContext::cancelled), the group gets a request to end. Dropping the future kills it.
pub(super) async fn run(shell: ShellCommand, cx: &NodeContext) -> Result<ProcessEnd, UnknownExit> {
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
    let mut group = ProcessGroup::of(child.id());
    let stdin = child.stdin.take();
    let write = async {
        if let Some(mut stdin) = stdin {
            // A command need not read its input.
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
                // Read the available output first, however long the machine stalled.
                biased;
                _ = &mut pipes => {}
                () = cx.clock().sleep(DRAIN) => {}
            }
        }
        status
    };
    Ok(ProcessEnd { status })
}

/// Reads everything, so that a full pipe never blocks the command.
async fn read(from: Option<impl AsyncRead + Unpin>, mut into: impl FnMut(&[u8]), pulse: &ActivityCounter) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 16 << 10];
    // An end and an error are equal here: no more output follows.
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        pulse.record_activity();
        into(&buffer[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unstarted_command_is_certainly_not_done() {
        let why = || std::io::Error::other("no");
        for (lost, not_done) in [(UnknownExit::Unstarted(why()), true), (UnknownExit::Unheard(why()), false)]
        {
            let error = lost.to_error("the command");
            assert_eq!((error.is_not_done(), error.is_transient()), (not_done, true), "{error}");
        }
    }

    /// A process killed in between leaves the end of the input, and no running command.
    ///
    /// Guarantees: PIPELINE-2.
    #[test]
    fn command_starts_after_its_process_group_is_recorded() {
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
