//! Several processes on one folder: races, killing, limits and rights. The other processes are this binary, run again.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ferrata_core::record::RecordHeader;
use ferrata_core::store::{At, CheckpointStore, Order, Page, RunAppend, RunQuery};
use ferrata_core::{ErrorKind, ExecutorId, HeadRef, Result};
use ferrata_store_fs::FsStore;

#[path = "../src/tests/author.rs"]
mod author;

use author::{Author, fresh_id};

/// What the other process is to do, and in which folder.
const JOB: &str = "FERRATA_STORE_FS_JOB";
const FOLDER: &str = "FERRATA_STORE_FS_FOLDER";

/// How many records each of the racing processes adds.
const WINS: usize = 100;

async fn append(store: &FsStore, entry: RunAppend) -> Result<HeadRef> {
    store.append(vec![entry]).await.pop().expect("a result")
}

#[tokio::test]
#[ignore = "the other process of the tests below, which start it with a job"]
async fn other_process() {
    // Started without a job, as by `--include-ignored`, it has none.
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
            let page = Page::first(1_000);
            let records = store.history(&author.run, page).await.unwrap().items.len();
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
        "set up" => {
            store.setup().await.unwrap();
            let below = FsStore::open(format!("{folder}/new")).unwrap();
            println!("\nkind {}", below.setup().await.unwrap_err().kind());
        }
        other => panic!("no such job: {other}"),
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
    let mut page = Page::first(1_000).with_order(Order::OldestFirst);
    let mut headers = Vec::new();
    loop {
        let found = store.history(&Author::new("r").run, page.clone()).await.expect("a readable run");
        headers.extend(found.items);
        match found.next {
            Some(cursor) => page = page.with_cursor(cursor),
            None => return headers,
        }
    }
}

#[tokio::test]
async fn of_racing_processes_one_wins_after_each_head_and_the_log_has_what_they_were_told() {
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

#[tokio::test]
async fn what_a_killed_process_was_told_is_there_and_it_is_known_to_be_dead_at_once() {
    for rounds in [1, 20, 50] {
        let directory = tempfile::tempdir().unwrap();
        let store = FsStore::open(directory.path()).unwrap();
        let mut process = start("own and append", directory.path());
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut told = Vec::new();
        while told.len() < rounds {
            let line = lines.next().expect("it appends until it is killed").unwrap();
            told.extend(line.strip_prefix("won ").map(str::to_owned));
        }
        let run = Author::new("r").run;
        assert!(store.head(&run).await.unwrap().unwrap().owner_alive);
        process.kill().unwrap();
        process.wait().unwrap();
        // It said some more before it died.
        told.extend(
            lines.map_while(|line| line.ok()).filter_map(|line| Some(line.strip_prefix("won ")?.to_owned())),
        );
        let headers = history(&store).await;
        let written: Vec<String> = headers.iter().map(|header| header.id.to_string()).collect();
        assert!(written.starts_with(&told), "{} records of {} acknowledged", written.len(), told.len());
        // One may have been written and not acknowledged.
        assert!(written.len() <= told.len() + 1);
        assert!(!store.head(&run).await.unwrap().unwrap().owner_alive);
        let mut author = Author { head: headers.last().map(RecordHeader::head), run };
        append(&store, author.write(&["1"])).await.unwrap();
    }
}

#[tokio::test]
async fn a_log_that_may_not_grow_is_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let mut limited = Command::new("sh");
    // The limit is on each file, in blocks; without the trap, the first write over it kills the process.
    limited.args(["-c", "trap '' XFSZ; ulimit -f 9; exec \"$0\" \"$@\""]).arg(&program);
    limited.args(["--exact", "other_process", "--ignored", "--nocapture"]);
    let output = limited.env(JOB, "fill").env(FOLDER, directory.path()).output().unwrap();
    assert_eq!(said(&output, "kind"), ["TOO_LARGE", "TOO_LARGE"]);
    let won = said(&output, "won");
    assert!(won.len() > 2);
    assert_eq!(said(&output, "records"), [(won.len() * 2).to_string()]);
    // Without a torn end, and without a trace of the run that did not fit.
    let log = std::fs::read(directory.path().join("runs/default/r.jsonl")).unwrap();
    assert_eq!(log.iter().filter(|byte| **byte == b'\n').count(), 1 + won.len() * 2);
    assert_eq!(log.last(), Some(&b'\n'));
    assert_eq!(std::fs::read_dir(directory.path().join("runs/default")).unwrap().count(), 1);
    let store = FsStore::open(directory.path()).unwrap();
    let run = Author::new("r").run;
    let mut author = Author { head: store.head(&run).await.unwrap().map(|head| head.head()), run };
    append(&store, author.write_base("1")).await.unwrap();
}

/// Runs the job as a user who has no rights but those of others: as nobody, if this process is root, whom rights do not
/// hold back.
fn without_rights(job: &str, folder: &Path) -> Output {
    let place = tempfile::tempdir().expect("a folder for the program");
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("our own file");
    };
    // Where nobody can run it.
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
    // A folder is opened before what is in it, and closed after.
    if folder & 0o200 != 0 {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("our own file");
    }
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("a folder") {
            set_modes(&entry.expect("an entry").path(), folder, file);
        }
    }
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("our own file");
}

#[tokio::test]
async fn without_the_right_to_write_reading_works_and_writing_says_what_is_missing() {
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
        assert!(kind.contains(&*directory.path().to_string_lossy()) && kind.contains("right"), "{kind}");
    }
    assert_eq!(said(&set_up, "kind"), ["INVALID"]);
    assert!(store.head(&Author::new("r").run).await.unwrap().is_some());
}
