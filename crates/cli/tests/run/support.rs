//! A folder with pipelines, and the command as a child process.

use std::io::{PipeReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ferrata::{Clock, SystemClock};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value as Json;
use tempfile::TempDir;

/// Timeout of any wait on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) struct Place {
    folder: TempDir,
}

/// The end of a call.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.err, self.out);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the suggested command.
    #[track_caller]
    pub(crate) fn next(&self) -> Vec<String> {
        let line =
            self.err.lines().find_map(|line| line.strip_prefix("next: ")).expect("a suggested command");
        let first = line.split(" && ").last().unwrap_or(line);
        first.split(' ').map(|word| word.trim_matches('\'').to_owned()).skip(1).collect()
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Writes a pipeline with a start, an exit and these statements. Nodes are tools by default.
    pub(crate) fn pipeline(&self, name: &str, statements: &str) {
        let text = format!(
            "digraph {name} {{ start [shape=Mdiamond] exit [shape=Msquare] node [shape=parallelogram] {statements} }}"
        );
        self.write(&format!("{name}.dot"), &text);
    }

    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrata"));
        for name in ["FERRATA_STORE", "FERRATA_TENANT", "FERRATA_BACKEND", "NO_COLOR"] {
            command.env_remove(name);
        }
        command.args(line).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn spawn(&self, line: &[&str]) -> Running {
        Running::of(self.command(line))
    }

    /// Spawns the command with a full pipe as its stderr. It blocks at its first line until the pipe is read.
    pub(crate) fn spawn_with_full_stderr(&self, line: &[&str]) -> (Running, PipeReader) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        for room in [4096, 1] {
            while writer.write(&vec![b'\n'; room]).is_ok() {}
        }
        fcntl_setfl(&writer, OFlags::empty()).unwrap();
        let mut command = self.command(line);
        command.stderr(writer);
        (Running::of(command), reader)
    }

    pub(crate) fn call(&self, line: &[&str]) -> Said {
        self.spawn(line).end()
    }

    /// Runs a line in a shell that finds the command.
    pub(crate) fn shell(&self, line: &str) -> Said {
        let binary = Path::new(env!("CARGO_BIN_EXE_ferrata")).parent().unwrap().to_path_buf();
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(binary).chain(std::env::split_paths(&paths));
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.folder.path());
        command.env("PATH", std::env::join_paths(paths).unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::of(command).end()
    }

    /// Returns the `count` process ids that commands wrote to a file with `echo $$ >> file`.
    pub(crate) fn pids(&self, name: &str, count: usize) -> Vec<Pid> {
        let numbers = || self.read(name).lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>();
        until(&format!("{count} process ids in {name}"), || numbers().len() >= count);
        numbers().into_iter().filter_map(Pid::from_raw).collect()
    }
}

/// The running command.
pub(crate) struct Running {
    child: Option<Child>,
    out: Option<std::thread::JoinHandle<(String, String)>>,
}

impl Running {
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let out = std::thread::spawn(move || {
            let errors = std::thread::spawn(move || stderr.map(text).unwrap_or_default());
            (stdout.map(text).unwrap_or_default(), errors.join().unwrap())
        });
        Self { child: Some(child), out: Some(out) }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().unwrap())
    }

    pub(crate) fn tell(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        self.out.take().unwrap().join().unwrap();
    }

    /// Reads the given stderr, and waits for the command's end.
    pub(crate) fn end_reading(self, stderr: PipeReader) -> (Said, String) {
        let errors = std::thread::spawn(move || text(stderr));
        let said = self.end();
        (said, errors.join().unwrap().trim_start().to_owned())
    }

    pub(crate) fn end(mut self) -> Said {
        let mut child = self.child.take().unwrap();
        until("the command ends", || child.try_wait().unwrap().is_some());
        let code = child.wait().unwrap().code().expect("the command must exit");
        let (out, err) = self.out.take().unwrap().join().unwrap();
        Said { code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn text(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Polls until a condition holds, or fails after a long time.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + PATIENCE;
    while !holds() {
        assert!(clock.monotonic() < deadline, "waited too long until {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Checks that these processes have ended, or end soon.
#[track_caller]
pub(crate) fn gone(pids: &[Pid]) {
    for &pid in pids {
        // A zombie counts as ended.
        let stat = |pid: Pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let dead = |pid| stat(pid).rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'));
        until(&format!("process {pid} is gone"), || test_kill_process(pid).is_err() || dead(pid));
    }
}

/// Returns the ended nodes in a run's directory, in order.
pub(crate) fn history(directory: &Path) -> Vec<String> {
    let text = std::fs::read(directory.join("checkpoint.json")).unwrap();
    let checkpoint: Json = serde_json::from_slice(&text).unwrap();
    let listed = checkpoint["node_history"].as_array().unwrap().iter();
    listed.map(|visited| visited["node"].as_str().unwrap().to_owned()).collect()
}

/// Writes text to any writer.
pub(crate) fn type_in(mut to: impl Write, text: &str) {
    to.write_all(text.as_bytes()).unwrap();
}
