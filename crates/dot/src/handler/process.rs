//! Runs a shell command as a process group. This module writes the input of the command, reads its output up to a limit, and finally kills all its
//! processes.

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

/// How long to read the output of a command that has ended. Its process group is already killed, so only a process that left the group can keep the
/// pipe open.
const DRAIN: Duration = Duration::from_secs(1);

/// Waits for a line on its input, and then replaces itself by the command. The caller writes the line once the process group is registered. So no
/// command runs without a process that will kill it. If this process dies earlier, the input ends and the command never starts.
const BEGIN: &str = r#"read -r FERRATA_BEGIN && exec "$1" -c "$0""#;

/// A shell command to run.
#[derive(Clone, Debug)]
pub(super) struct ShellCommand {
    /// The text after `-c`.
    pub(super) line: String,
    pub(super) program: &'static str,
    pub(super) directory: Option<PathBuf>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// The environment variables that the command inherits.
    pub(super) inherit: InheritedNames,
    pub(super) input: Vec<u8>,
    /// Captures the output of the command.
    pub(super) printed: AttemptOutput,
    /// Counts every read from the command as activity.
    pub(super) pulse: ActivityCounter,
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct ProcessEnd {
    pub(super) status: ExitStatus,
}

impl ProcessEnd {
    /// Describes for people how the command ended.
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

/// The reason why it is unknown how a process ended.
#[derive(Debug)]
pub(super) enum UnknownExit {
    /// The process never started.
    Unstarted(std::io::Error),
    /// The process started, but the system does not report how it ended.
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

    /// Converts the reason to an error. Only a process that never started is known to have done no work.
    pub(super) fn to_error(&self, what: &str) -> HandlerError {
        let error = HandlerError::transient(self.describe(what));
        if let Self::Unstarted(_) = self { error.not_done() } else { error }
    }
}

/// The processes of a command. Dropping the value kills them.
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
            // The group may have ended already.
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

/// Runs a command until it ends, and then ends all processes that the command started.
///
/// If the node is [cancelled](NodeContext::cancelled), the function asks the process group to end. If the future is dropped, the group is killed.
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
            // A command may end without reading its input.
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
                // Read the available output first, even if the machine stalled for long.
                biased;
                _ = &mut pipes => {}
                () = cx.clock().sleep(DRAIN) => {}
            }
        }
        status
    };
    Ok(ProcessEnd { status })
}

/// Reads all output, so that a full pipe never blocks the command.
async fn read(from: Option<impl AsyncRead + Unpin>, mut into: impl FnMut(&[u8]), pulse: &ActivityCounter) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 16 << 10];
    // The end of the output and an error mean the same: no more output follows.
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

    /// If this process is killed in between, the input ends and no command runs.
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
        assert_eq!(
            begun("\nthe input\nof it"),
            "the input\nof itbegun\n",
            "the command must get the whole input"
        );
    }
}
