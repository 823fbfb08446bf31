//! Servers end with the process that started them, however that process ends.
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// The program that runs all servers until its input ends, with its own folder for their data.
struct Holder {
    process: Child,
    addresses: Vec<String>,
    folder: tempfile::TempDir,
}

impl Holder {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The user of Postgres needs access to its folder.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_ferrata-test-servers"))
            .env("TMPDIR", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let addresses: Vec<String> = lines
            .map(|line| {
                let line = line.unwrap();
                let (_, address) = line.split_once("127.0.0.1:").unwrap();
                format!("127.0.0.1:{}", address.split('/').next().unwrap())
            })
            .take(5)
            .collect();
        let holder = Self { process, addresses, folder };
        assert!(holder.addresses.iter().all(|address| TcpStream::connect(address).is_ok()));
        // Three folders of the cluster, and one of each other kind.
        assert_eq!(folders(holder.folder.path()).len(), 7);
        assert!(!users_of(holder.folder.path()).is_empty());
        holder
    }

    fn end_with(mut self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        // Signal the whole group, as a terminal does.
        kill_process_group(pid, signal).unwrap();
        self.process.wait().unwrap();
        self.expect_nothing_left();
    }

    fn expect_nothing_left(&self) {
        let path = self.folder.path();
        let left = || (folders(path), users_of(path));
        eventually(|| left() == (BTreeSet::new(), Vec::new()), || format!("left behind: {:?}", left()));
        assert!(self.addresses.iter().all(|address| TcpStream::connect(address).is_err()));
    }
}

fn folders(path: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Returns the command lines of the processes whose working directory is in `path`.
fn users_of(path: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let process = entry.ok()?.path();
        let folder = std::fs::read_link(process.join("cwd")).ok()?;
        folder.starts_with(path).then(|| std::fs::read_to_string(process.join("cmdline")).unwrap_or_default())
    });
    processes.collect()
}

#[expect(clippy::disallowed_methods, reason = "other processes are waited for")]
fn eventually(condition: impl Fn() -> bool, message: impl Fn() -> String) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", message());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn servers_end_when_their_owner_is_killed() {
    Holder::start().end_with(Signal::KILL);
}

#[test]
fn servers_end_when_their_owner_is_interrupted() {
    Holder::start().end_with(Signal::INT);
}

#[test]
fn servers_end_with_a_panic() {
    let folder = std::panic::catch_unwind(|| {
        let redis = ferrata_test_servers::RedisServer::start(Default::default()).unwrap();
        let (folder, port) = (redis.folder().to_owned(), redis.port());
        std::panic::panic_any((folder, port));
    });
    let (folder, port) = *folder.unwrap_err().downcast::<(std::path::PathBuf, u16)>().unwrap();
    assert!(!folder.exists());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn all_that_is_missing_is_named_at_once() {
    // Outside the target folder, because the servers may be unpacked there already.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("ferrata-test-servers");
    std::fs::copy(env!("CARGO_BIN_EXE_ferrata-test-servers"), &copy).unwrap();
    let mut program = Command::new(copy);
    program.env("PATH", "/nowhere").env("XDG_CACHE_HOME", folder.path()).env_remove("FERRATA_MOTO");
    let output = program.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(error.contains("docker run --rm"), "{error}");
    assert!(error.contains("Redis") && error.contains("Python"), "{error}");
}
