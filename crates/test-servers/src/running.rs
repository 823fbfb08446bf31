//! One process of a server from its start to its end, with its signals.

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

/// Waits for a line before it becomes the server, so that the watchdog knows it first.
const GATE: &str = r#"read -r go || exit 1; exec "$@" </dev/null"#;

/// How to start a server.
#[derive(Debug)]
pub(crate) struct ServerLaunch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(&'static str, OsString)>,
    pub(crate) user: Option<UnixUser>,
    /// Its working directory: the server's user may have no access to that of the test.
    pub(crate) folder: PathBuf,
    pub(crate) log: PathBuf,
    /// The folder that the watchdog removes when this process is gone.
    pub(crate) disposable: Option<PathBuf>,
    /// The signal with which the watchdog ends it.
    pub(crate) last_signal: &'static str,
}

/// A server's process; ends with the value.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    pid: Pid,
    ended: Option<ExitStatus>,
    // After `child`, so that the watchdog is dismissed after the process is gone.
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

    /// Starts it as `user`.
    pub(crate) fn with_user(mut self, user: Option<UnixUser>) -> Self {
        self.user = user;
        self
    }

    /// Adds variables to its environment.
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
        // Outside of the terminal's group: a Ctrl-C must reach a database only through its owner.
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

    /// Returns how it ended, if it did.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Suspends it and its children.
    pub(crate) fn suspend(&mut self) {
        // The parent first, until it is stopped: it must start no unseen child.
        self.signal(Signal::STOP);
        self.wait_until_stopped(&[self.pid]);
        self.signal_children(Signal::STOP);
        self.wait_until_stopped(&children::of(self.pid));
    }

    /// Waits until a stop signal has taken effect: on a busy machine, threads continue until one of them has received it.
    fn wait_until_stopped(&mut self, processes: &[Pid]) {
        if self.exit_status().is_none() {
            wait::until(STOPPING, || processes.iter().all(|pid| is_stopped(*pid)).then_some(()));
        }
    }

    /// Continues it after a suspension.
    pub(crate) fn resume(&mut self) {
        self.signal_children(Signal::CONT);
        self.signal(Signal::CONT);
    }

    /// Kills it and its children at once, like a crash of the machine.
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

    /// Requests its end with `signal`, and kills it if it takes too long.
    pub(crate) fn stop(&mut self, signal: Signal) {
        self.resume();
        self.signal(signal);
        if wait::until(STOPPING, || self.exit_status()).is_none() {
            self.kill();
        }
    }

    fn signal(&mut self, signal: Signal) {
        // Only before it is reaped: afterwards another process may have its number.
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

/// Returns whether a process has ended, even if it has not been reaped.
fn is_gone(pid: Pid) -> bool {
    is_in(format!("/proc/{}/stat", pid.as_raw_nonzero()), 'Z')
}

/// Returns whether every thread of a process is stopped or ended.
fn is_stopped(pid: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    threads.into_iter().flatten().flatten().all(|thread| {
        let stat = thread.path().join("stat");
        ['T', 'Z', 'X'].into_iter().any(|state| is_in(&stat, state))
    })
}

/// Returns whether a process or a thread, described by this file of `/proc`, is in `state`, or gone.
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
