//! One process of a server, from its start to its end, and its signals.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::debian::LIBRARIES;
use crate::error::{Result, ServerError};
use crate::program::FoundProgram;
use crate::server::ServerKind;
use crate::user::UnixUser;
use crate::watchdog::Watchdog;
use crate::{children, wait};

/// How long a server may take to stop before it is killed.
const STOPPING: Duration = Duration::from_secs(60);

/// A shell script that waits for a line before it becomes the server. So the watchdog knows the process before the server starts.
const GATE: &str = r#"read -r go || exit 1; exec "$@" </dev/null"#;

/// The program of a server, and how to start it.
#[derive(Debug)]
pub(crate) struct ServerLaunch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(&'static str, OsString)>,
    pub(crate) user: Option<UnixUser>,
    /// The working directory. It is not that of the test, because the server's user may have no access to that.
    pub(crate) folder: PathBuf,
    pub(crate) log: PathBuf,
    /// The folder that the watchdog removes when this process has ended.
    pub(crate) disposable: Option<PathBuf>,
    /// The signal with which the watchdog ends the server.
    pub(crate) last_signal: &'static str,
}

/// The process of a server. Dropping this value ends the process.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    pid: Pid,
    ended: Option<ExitStatus>,
    // Declared after `child`, so that the watchdog is dismissed only when the server's process is gone.
    _watchdog: Watchdog,
}

impl ServerLaunch {
    /// Creates a launch of `program` as this user, with its log in `folder`.
    pub(crate) fn new(
        kind: &ServerKind,
        program: &FoundProgram,
        arguments: Vec<OsString>,
        folder: &Path,
    ) -> Self {
        Self {
            program: program.path.clone(),
            arguments,
            variables: program.libraries().map(|libraries| (LIBRARIES, libraries)).into_iter().collect(),
            user: None,
            folder: folder.to_owned(),
            log: folder.join("log"),
            disposable: None,
            last_signal: kind.quit.1,
        }
    }

    /// Runs the program as `user`.
    pub(crate) fn with_user(mut self, user: Option<UnixUser>) -> Self {
        self.user = user;
        self
    }

    /// Adds a variable to the environment of the program.
    pub(crate) fn with_variable(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    pub(crate) fn spawn(&self) -> Result<ServerProcess> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.map_err(ServerError::io("write", &self.log))?;
        let errors = log.try_clone().map_err(ServerError::io("write", &self.log))?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GATE, "gate"]).arg(&self.program).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.folder).stdin(Stdio::piped()).stdout(log).stderr(errors);
        // Use another process group than the terminal's: Ctrl-C must reach a database only through its owner.
        command.process_group(0);
        run_as(&mut command, self.user);
        let mut child = command.spawn().map_err(ServerError::io("start", &self.program))?;
        let watchdog = Watchdog::start(child.id(), self.last_signal, self.disposable.as_deref())?;
        let gate = child.stdin.take();
        let opened = gate.is_some_and(|mut gate| gate.write_all(b"go\n").is_ok());
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("a process that was just started has a number that the system gave it");
        let running = ServerProcess { child, pid, ended: None, _watchdog: watchdog };
        if opened { Ok(running) } else { Err(running.failed(&self.program, "was killed at its start", "")) }
    }
}

/// Makes `command` run as `user`.
pub(crate) fn run_as(command: &mut Command, user: Option<UnixUser>) {
    if let Some(UnixUser { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
}

impl ServerProcess {
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Suspends the process and its children.
    pub(crate) fn suspend(&mut self) {
        // Stop the parent first and wait until it is stopped, so that it cannot start another child.
        self.signal(Signal::STOP);
        self.wait_until_stopped(&[self.pid]);
        self.signal_children(Signal::STOP);
        self.wait_until_stopped(&children::of(self.pid));
    }

    /// Waits until a stop signal has taken effect. On a busy machine, the threads of a process continue until one of them has received the signal.
    fn wait_until_stopped(&mut self, processes: &[Pid]) {
        if self.exit_status().is_none() {
            wait::until(STOPPING, || processes.iter().all(|pid| is_stopped(*pid)).then_some(()));
        }
    }

    /// Continues the process after a suspension.
    pub(crate) fn resume(&mut self) {
        self.signal_children(Signal::CONT);
        self.signal(Signal::CONT);
    }

    /// Kills the process and its children at once, like a crash of the machine.
    pub(crate) fn kill(&mut self) {
        self.suspend();
        let children = children::of(self.pid);
        self.signal(Signal::KILL);
        for child in &children {
            let _ = kill_process(*child, Signal::KILL);
        }
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
        wait::until(STOPPING, || children.iter().all(|child| is_gone(*child)).then_some(()));
    }

    /// Ends the process with `signal`. Kills it if that takes too long.
    pub(crate) fn stop(&mut self, signal: Signal) {
        self.resume();
        self.signal(signal);
        if wait::until(STOPPING, || self.exit_status()).is_none() {
            self.kill();
        }
    }

    fn signal(&mut self, signal: Signal) {
        // Only before the process is reaped: afterward, another process may have its number.
        if self.exit_status().is_none() {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    fn signal_children(&mut self, signal: Signal) {
        if self.exit_status().is_none() {
            for child in children::of(self.pid) {
                let _ = kill_process(child, signal);
            }
        }
    }

    fn failed(&self, program: &Path, what: &str, log: &str) -> ServerError {
        ServerError::Failed {
            name: program.display().to_string(),
            what: what.to_owned(),
            log: log.to_owned(),
        }
    }
}

/// Returns whether a process has ended, whether or not it is reaped.
fn is_gone(pid: Pid) -> bool {
    is_in(format!("/proc/{}/stat", pid.as_raw_nonzero()), 'Z')
}

/// Returns whether every thread of a process is stopped or has ended.
fn is_stopped(pid: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    threads.into_iter().flatten().flatten().all(|thread| {
        let stat = thread.path().join("stat");
        ['T', 'Z', 'X'].into_iter().any(|state| is_in(&stat, state))
    })
}

/// Returns whether the process or thread that this file of `/proc` describes is in `state`, or gone.
fn is_in(stat: impl AsRef<Path>, state: char) -> bool {
    let stat = std::fs::read_to_string(stat);
    stat.map_or(true, |stat| {
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(state))
    })
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.exit_status().is_none() {
            self.kill();
        }
    }
}
