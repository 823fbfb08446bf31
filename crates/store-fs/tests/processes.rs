//! Several processes on one folder: races, kills, limits and permissions. The other processes run this binary.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ferrata_store::{
    At, CheckpointStore, Clock, ErrorKind, ExecutorId, HeadRef, HeaderRange, Page, RecordHeader, Result,
    RunAppend, RunQuery,
};
use ferrata_store_fs::FsStore;
use ferrata_testing::{ManualClock, every_header};

#[path = "../src/tests/author.rs"]
mod author;

use author::{Author, fresh_id};

/// The variables for the job of the other process, and for its folder.
const JOB: &str = "FERRATA_STORE_FS_JOB";
const FOLDER: &str = "FERRATA_STORE_FS_FOLDER";

/// Number of runs that a process with few open files writes at once.
const RUNS: usize = 150;

/// Number of records that each of the racing processes adds.
const WINS: usize = 100;

async fn append(store: &FsStore, entry: RunAppend) -> Result<HeadRef> {
    store.append(vec![entry]).await.pop().expect("a result")
}

#[tokio::test]
#[ignore = "the other process of the tests below, which start it with a job"]
async fn other_process() {
    // Without a job, as with `--include-ignored`, this test does nothing.
    let (Ok(job), Ok(folder)) = (std::env::var(JOB), std::env::var(FOLDER)) else {
        return;
    };
    let store = FsStore::open(&folder).unwrap();
    let mut author = Author::new("r");
    match job.as_str() {
        "race" => {
            store.setup().await.unwrap();
            let mut wins = 0;
            while wins < WINS {
                let mut next = author.clone();
                match append(&store, next.write(&["0", "1"])).await {
                    Ok(head) => {
                        wins += 1;
                        author.head = Some(head);
                        println!("\nwon {}", head.id);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                        author.head = error.actual_head().unwrap();
                    }
                }
            }
        }
        "own and append" => {
            let executor = ExecutorId::from_uuid(*fresh_id().as_uuid());
            store.heartbeat(&executor, Duration::from_secs(3_600)).await.unwrap();
            loop {
                let expected = author.head;
                let mut record = author.record("0", false);
                record.header.owner = Some(executor);
                let head = append(&store, author.entry(expected, vec![record])).await.unwrap();
                println!("\nwon {}", head.id);
            }
        }
        "fill" => {
            let error = loop {
                let entry = author.write(&["\"0123456789\"", "1"]);
                match append(&store, entry).await {
                    Ok(head) => println!("\nwon {}", head.id),
                    Err(error) => break error,
                }
            };
            println!("\nkind {}", error.kind());
            let records = store.headers(&author.run, HeaderRange::newest(1_000)).await.unwrap().items.len();
            println!("\nrecords {records}");
            let error = append(&store, Author::new("new").write(&[&format!("\"{}\"", "x".repeat(20_000))]))
                .await
                .unwrap_err();
            println!("\nkind {}", error.kind());
            assert!(store.head(&Author::new("new").run).await.unwrap().is_none());
        }
        "read only" => {
            let head = store.head(&author.run).await.unwrap().unwrap();
            assert_eq!(store.load(&author.run, At::Latest).await.unwrap().unwrap().len(), 1);
            assert_eq!(store.runs(&RunQuery::default(), Page::default()).await.unwrap().items.len(), 1);
            author.head = Some(head.head());
            let executor = ExecutorId::from_uuid(*fresh_id().as_uuid());
            for error in [
                append(&store, author.write(&["1"])).await.unwrap_err(),
                append(&store, Author::new("new").write(&["0"])).await.unwrap_err(),
                store.purge(&author.run, None).await.unwrap_err(),
                store.heartbeat(&executor, Duration::from_secs(1)).await.unwrap_err(),
            ] {
                println!("\nkind {} {}", error.kind(), error.message());
            }
        }
        "read all" => {
            let records = store.headers(&author.run, HeaderRange::newest(1_000)).await.unwrap().items.len();
            println!("\nrecords {records}");
        }
        "few files" => {
            store.setup().await.unwrap();
            let executor = ExecutorId::from_uuid(*fresh_id().as_uuid());
            store.heartbeat(&executor, Duration::from_secs(3_600)).await.unwrap();
            let mut all = tokio::task::JoinSet::new();
            for n in 0..RUNS {
                let store = store.clone();
                all.spawn(async move {
                    let mut author = Author::new(&format!("r-{n}"));
                    append(&store, author.write(&["0"])).await?;
                    let expected = author.head;
                    let mut record = author.record("1", false);
                    record.header.owner = Some(executor);
                    append(&store, author.entry(expected, vec![record])).await?;
                    store.head(&author.run).await.map(|head| head.unwrap().owner_alive)
                });
            }
            for alive in all.join_all().await {
                match alive {
                    Ok(alive) => println!("\nalive {alive}"),
                    Err(error) => println!("\nfailed {error}"),
                }
            }
            let listed = store.runs(&RunQuery::default(), Page::first(1_000)).await.unwrap().items;
            println!("\nlisted {}", listed.iter().filter(|head| head.owner_alive).count());
        }
        "set up" => {
            store.setup().await.unwrap();
            let below = FsStore::open(format!("{folder}/new")).unwrap();
            println!("\nkind {}", below.setup().await.unwrap_err().kind());
        }
        other => panic!("unknown job: {other}"),
    }
}

fn command(program: &Path, job: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "other_process", "--ignored", "--nocapture"]);
    command.env(JOB, job).env(FOLDER, folder).stdout(Stdio::piped());
    command
}

fn start(job: &str, folder: &Path) -> Child {
    command(&std::env::current_exe().expect("this program"), job, folder).spawn().expect("another process")
}

/// The rest of each line of the output that begins with `key`.
fn said(output: &Output, key: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    text.lines().filter_map(|line| Some(line.strip_prefix(key)?.trim().to_owned())).collect()
}

async fn history(store: &FsStore) -> Vec<RecordHeader> {
    every_header(store, &Author::new("r").run).await.expect("the run must be readable")
}

/// Guarantees: FLEET-1.
#[tokio::test]
async fn racing_processes_have_one_winner_per_head() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("new");
    let racing: Vec<Child> = (0..3).map(|_| start("race", &folder)).collect();
    let mut won: Vec<String> = Vec::new();
    for process in racing {
        won.extend(said(&process.wait_with_output().unwrap(), "won"));
    }
    let headers = history(&FsStore::open(&folder).unwrap()).await;
    assert_eq!((won.len(), headers.len()), (3 * WINS, 6 * WINS));
    assert!(headers.iter().zip(headers.iter().skip(1)).all(|(a, b)| b.prev == Some(a.id)));
    let mut ends: Vec<String> =
        headers.iter().skip(1).step_by(2).map(|header| header.id.to_string()).collect();
    ends.sort_unstable();
    won.sort_unstable();
    assert_eq!(ends, won);
}

/// Guarantees: FS-18.
#[tokio::test]
async fn killed_process_keeps_records_and_loses_liveness() {
    for rounds in [1, 20, 50] {
        let directory = tempfile::tempdir().unwrap();
        let store = FsStore::open(directory.path()).unwrap();
        let mut process = start("own and append", directory.path());
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut told = Vec::new();
        while told.len() < rounds {
            let line = lines.next().expect("the process must append until it is killed").unwrap();
            told.extend(line.strip_prefix("won ").map(str::to_owned));
        }
        let run = Author::new("r").run;
        assert!(store.head(&run).await.unwrap().unwrap().owner_alive);
        process.kill().unwrap();
        process.wait().unwrap();
        // Read the lines that it printed before its death.
        told.extend(
            lines.map_while(|line| line.ok()).filter_map(|line| Some(line.strip_prefix("won ")?.to_owned())),
        );
        let headers = history(&store).await;
        let written: Vec<String> = headers.iter().map(|header| header.id.to_string()).collect();
        assert!(written.starts_with(&told), "{} records of {} acknowledged", written.len(), told.len());
        // One record may be written and not acknowledged.
        assert!(written.len() <= told.len() + 1);
        assert!(!store.head(&run).await.unwrap().unwrap().owner_alive);
        let mut author = Author { head: headers.last().map(RecordHeader::head), run };
        append(&store, author.write(&["1"])).await.unwrap();
    }
}

#[tokio::test]
async fn append_beyond_file_size_limit_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let mut limited = Command::new("sh");
    // The limit applies to each file, in blocks. Without the trap, the first write beyond it kills the process.
    limited.args(["-c", "trap '' XFSZ; ulimit -f 9; exec \"$0\" \"$@\""]).arg(&program);
    limited.args(["--exact", "other_process", "--ignored", "--nocapture"]);
    let output = limited.env(JOB, "fill").env(FOLDER, directory.path()).output().unwrap();
    assert_eq!(said(&output, "kind"), ["TOO_LARGE", "TOO_LARGE"]);
    let won = said(&output, "won");
    assert!(won.len() > 2);
    assert_eq!(said(&output, "records"), [(won.len() * 2).to_string()]);
    // The log has no torn end, and there is no trace of the run that did not fit.
    let log = std::fs::read(directory.path().join("runs/default/r.jsonl")).unwrap();
    assert_eq!(log.iter().filter(|byte| **byte == b'\n').count(), 1 + won.len() * 2);
    assert_eq!(log.last(), Some(&b'\n'));
    assert_eq!(std::fs::read_dir(directory.path().join("runs/default")).unwrap().count(), 1);
    let store = FsStore::open(directory.path()).unwrap();
    let run = Author::new("r").run;
    let mut author = Author { head: store.head(&run).await.unwrap().map(|head| head.head()), run };
    append(&store, author.write_base("1")).await.unwrap();
}

/// A process with a limit of 64 open files drives 600 runs: it does not keep the logs of idle runs open, and does not treat owners as dead because
/// their file cannot be opened.
///
/// Guarantees: FS-17.
#[tokio::test]
async fn fd_limited_process_closes_idle_logs() {
    let directory = tempfile::tempdir().unwrap();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 40; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    limited.args(["--exact", "other_process", "--ignored", "--nocapture"]);
    let output = limited.env(JOB, "few files").env(FOLDER, directory.path()).output().unwrap();
    assert_eq!(said(&output, "failed"), Vec::<String>::new());
    assert_eq!(said(&output, "alive"), vec!["true"; RUNS]);
    assert_eq!(said(&output, "listed"), [RUNS.to_string()]);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).expect("an entry");
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => drop(std::fs::copy(&path, to.join(name))),
        }
    }
}

/// A copy of the folder, made while a process writes to it, is a store with a prefix of each run and no live process.
///
/// Guarantees: FS-15.
#[tokio::test]
async fn copy_of_active_folder_holds_prefix_of_runs() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("store");
    let mut process = start("own and append", &folder);
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut won = Vec::new();
    for round in 0..5 {
        while won.len() < (round + 1) * 5 {
            won.extend(lines.next().unwrap().unwrap().strip_prefix("won ").map(str::to_owned));
        }
        let at = place.path().join(round.to_string());
        copy(&folder, &at);
        let copy = FsStore::open(&at).unwrap();
        let headers = history(&copy).await;
        let ids: Vec<String> = headers.iter().map(|header| header.id.to_string()).collect();
        assert!(ids.starts_with(&won), "round {round}");
        let run = Author::new("r").run;
        assert!(!copy.head(&run).await.unwrap().unwrap().owner_alive, "round {round}");
        let mut author = Author { head: headers.last().map(RecordHeader::head), run };
        append(&copy, author.write(&["1"])).await.unwrap();
        append(&copy, Author::new("new").write(&["0"])).await.unwrap();
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

/// A moved folder is unavailable: no append is acknowledged, and no empty store is created in its place. When the folder is back, all processes
/// continue. A removed folder is a store without runs after the next setup.
///
/// Guarantees: FS-16.
#[tokio::test]
async fn removed_folder_is_unavailable_until_it_returns() {
    let place = tempfile::tempdir().unwrap();
    let (folder, away) = (place.path().join("store"), place.path().join("away"));
    let store = FsStore::open(&folder).unwrap();
    store.setup().await.unwrap();
    let executor = ExecutorId::from_uuid(*fresh_id().as_uuid());
    let hour = Duration::from_secs(3_600);
    store.heartbeat(&executor, hour).await.unwrap();
    let mut author = Author::new("r");
    append(&store, author.write(&["0"])).await.unwrap();
    // This instance has only read so far.
    let reader = FsStore::open(&folder).unwrap();
    assert!(reader.head(&author.run).await.unwrap().is_some());
    std::fs::rename(&folder, &away).unwrap();
    let (before, mut new) = (author.clone(), Author::new("new"));
    let (next, first) = (author.write(&["1"]), new.write(&["0"]));
    for error in [
        append(&store, next.clone()).await.unwrap_err(),
        append(&store, first.clone()).await.unwrap_err(),
        append(&reader, next.clone()).await.unwrap_err(),
        append(&reader, first.clone()).await.unwrap_err(),
        reader.heartbeat(&executor, hour).await.unwrap_err(),
        store.heartbeat(&executor, hour).await.unwrap_err(),
        store.head(&author.run).await.unwrap_err(),
        store.load(&author.run, At::Latest).await.unwrap_err(),
        store.headers(&author.run, HeaderRange::newest(50)).await.unwrap_err(),
        store.runs(&RunQuery::default(), Page::default()).await.unwrap_err(),
        store.purge(&author.run, None).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("is missing"), "{error}");
    }
    assert!(!folder.exists());
    std::fs::rename(&away, &folder).unwrap();
    assert_eq!(store.head(&before.run).await.unwrap().unwrap().head(), before.head.unwrap());
    append(&store, next).await.unwrap();
    append(&reader, first).await.unwrap();
    store.heartbeat(&executor, hour).await.unwrap();

    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(append(&store, author.write(&["2"])).await.unwrap_err().kind(), ErrorKind::Unavailable);
    store.setup().await.unwrap();
    assert!(store.head(&author.run).await.unwrap().is_none());
    append(&store, Author::new("r").write(&["0"])).await.unwrap();
    store.heartbeat(&executor, hour).await.unwrap();
}

/// Runs the job as a user without permissions: as nobody if this process is root, because root bypasses permissions.
fn without_rights(job: &str, folder: &Path) -> Output {
    let place = tempfile::tempdir().expect("a folder for the program");
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a file of this test");
    };
    // A folder whose files every user can execute.
    let program = place.path().join("program");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    set_mode(place.path(), 0o755);
    set_mode(&program, 0o755);
    let mut command = command(&program, job, folder);
    if std::fs::metadata(folder).expect("the folder").uid() == 0 {
        command.uid(65_534).gid(65_534);
    }
    command.output().expect("another process")
}

fn set_modes(path: &Path, folder: u32, file: u32) {
    let mode = if path.is_dir() { folder } else { file };
    // Grant access to a folder before its content, and remove it after its content.
    if folder & 0o200 != 0 {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a file of this test");
    }
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("a folder") {
            set_modes(&entry.expect("an entry").path(), folder, file);
        }
    }
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a file of this test");
}

#[tokio::test]
async fn read_only_folder_reads_and_refuses_writes() {
    let directory = tempfile::tempdir().unwrap();
    let store = FsStore::open(directory.path()).unwrap();
    append(&store, Author::new("r").write(&["0"])).await.unwrap();
    set_modes(directory.path(), 0o555, 0o444);
    let output = without_rights("read only", directory.path());
    let set_up = without_rights("set up", directory.path());
    set_modes(directory.path(), 0o755, 0o644);
    let kinds = said(&output, "kind");
    assert_eq!(kinds.len(), 4, "{kinds:?}");
    for kind in kinds {
        assert!(kind.starts_with("UNAVAILABLE "), "{kind}");
        assert!(kind.contains(&*directory.path().to_string_lossy()) && kind.contains("permission"), "{kind}");
    }
    assert_eq!(said(&set_up, "kind"), ["INVALID"]);
    assert!(store.head(&Author::new("r").run).await.unwrap().is_some());
}

/// The logs contain the journaled records of a killed process, until the machine stops.
#[tokio::test]
async fn read_only_user_reads_records_of_killed_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = start("own and append", directory.path());
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut won = 0;
    while won < 30 {
        won += usize::from(lines.next().unwrap().unwrap().starts_with("won "));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let journals = || std::fs::read_dir(directory.path().join("journals")).unwrap().count();
    assert_eq!(journals(), 1);
    set_modes(directory.path(), 0o555, 0o444);
    let output = without_rights("read all", directory.path());
    set_modes(directory.path(), 0o755, 0o644);
    let records: usize = said(&output, "records")[0].parse().unwrap();
    assert!(records >= 30, "{records}");
    assert_eq!(journals(), 1);
    // A process with write permission first syncs all records.
    let store = FsStore::open(directory.path()).unwrap();
    assert_eq!(history(&store).await.len(), records);
    assert_eq!(journals(), 0);
}

/// A process whose wall clock is an hour ahead must not treat other processes with locks as dead.
///
/// Guarantees: FS-18.
#[tokio::test]
async fn no_wall_clock_makes_an_owner_dead() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let open = |clock: Arc<dyn Clock>| FsStore::open(directory.path()).unwrap().with_clock(clock);
    let (store, ahead) = (open(Arc::clone(&clock) as _), open(Arc::new(Ahead(Arc::clone(&clock)))));
    let executor = ExecutorId::from_uuid(*fresh_id().as_uuid());
    store.heartbeat(&executor, Duration::from_secs(15)).await.unwrap();
    let mut author = Author::new("r");
    append(&store, author.write(&["0"])).await.unwrap();
    let expected = author.head;
    let mut record = author.record("1", false);
    record.header.owner = Some(executor);
    append(&store, author.entry(expected, vec![record])).await.unwrap();
    let alive = async |store: &FsStore| store.head(&author.run).await.unwrap().unwrap().owner_alive;
    assert!(alive(&store).await && alive(&ahead).await);
    clock.advance(Duration::from_secs(14));
    assert!(alive(&store).await && alive(&ahead).await);
    // A suspended process holds its lock, and stops counting as alive after some time.
    clock.advance(Duration::from_secs(2));
    assert!(!alive(&store).await && !alive(&ahead).await);
    ahead.heartbeat(&executor, Duration::from_secs(15)).await.unwrap();
    assert!(alive(&store).await && alive(&ahead).await);

    // The holder of the lock is alive, whatever its file contains.
    let path = directory.path().join(format!("executors/{executor}"));
    let lines = std::fs::read(&path).unwrap();
    assert_eq!(lines.len(), 128);
    for unreadable in [&lines[..64], b"nothing of this kind"] {
        std::fs::write(&path, unreadable).unwrap();
        clock.advance(Duration::from_secs(16));
        assert!(alive(&store).await && alive(&ahead).await);
    }
    std::fs::remove_file(&path).unwrap();
    assert!(!alive(&store).await, "only a missing file means that the process is dead");
}

/// A wall clock that is an hour ahead.
#[derive(Debug)]
struct Ahead(Arc<ManualClock>);

impl Clock for Ahead {
    fn now(&self) -> ferrata_store::Timestamp {
        self.0.now().plus(Duration::from_secs(3_600))
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, duration: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.sleep(duration)
    }
}
