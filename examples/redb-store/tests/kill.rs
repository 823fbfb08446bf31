//! A process is killed between two steps of a function. The next process opens the database again, and continues the run.
#![expect(clippy::print_stdout, reason = "a process talks to the other through its output")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use ferrata::SystemClock;
use ferrata::prelude::*;
use ferrata_example_redb_store::RedbStore;
use redb::Database;

/// The folder of the other process. Only the process that is killed has this variable.
const FOLDER: &str = "REDB_STORE_FOLDER";

/// The line by which the other process asks to be killed.
const KILL_ME: &str = "stops before the second step";

/// Notes that a step was executed.
async fn note(folder: &str, step: &str) -> Result<String, FlowError> {
    let notes = Path::new(folder).join("notes");
    let mut notes = std::fs::File::options().create(true).append(true).open(notes).expect("the notes");
    writeln!(notes, "{step}").expect("a note");
    Ok(format!("{step} is done"))
}

async fn fulfil(cx: FlowContext, folder: String) -> Result<String, FlowError> {
    let charged = cx.step("charge", || note(&folder, "charge")).await?;
    let ship = || async {
        if std::env::var_os(FOLDER).is_some() {
            println!("\n{KILL_ME}");
            std::future::pending::<()>().await;
        }
        note(&folder, "ship").await
    };
    let shipped = cx.step("ship", ship).await?;
    Ok(format!("{charged}, {shipped}"))
}

/// Opens the database, and starts or continues the run.
async fn fulfil_in(folder: &str) -> String {
    let db = Database::create(Path::new(folder).join("runs.redb")).expect("the database");
    let store = RedbStore::new(Arc::new(db), Arc::new(SystemClock::new()));
    let runtime = Runtime::builder(store).build().await.expect("a runtime");
    let fulfil = flow("fulfil", fulfil);
    runtime.serve(fulfil.graph().expect("a graph")).expect("a workflow to serve");
    runtime.call(&fulfil, folder.to_owned()).id("order").await.expect("the result of the run")
}

#[tokio::test]
#[ignore = "the process that the test below kills"]
async fn killed_process() {
    // Without a folder, as with `--include-ignored`, it has no work.
    if let Ok(folder) = std::env::var(FOLDER) {
        fulfil_in(&folder).await;
    }
}

#[tokio::test]
async fn run_continues_after_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a path of text");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "killed_process", "--ignored", "--nocapture"])
        .env(FOLDER, path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    assert!(output.lines().any(|line| line.expect("a line") == KILL_ME), "it came to the second step");
    // SIGKILL: the process closes nothing.
    child.kill().expect("a process to kill");
    child.wait().expect("its end");

    assert_eq!(fulfil_in(path).await, "charge is done, ship is done");
    let notes = std::fs::read_to_string(folder.path().join("notes")).expect("the notes");
    assert_eq!(notes, "charge\nship\n", "the recorded step is not executed again");
}
