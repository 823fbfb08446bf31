//! Tests the load in a simulated world, as [the page on tests](../../../docs/guide/testing/README.md) describes it. Also tests two processes that
//! share a load, where the process that started it is killed.

#[path = "../../etl/graph.rs"]
mod graph;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::store::{Page, RunQuery};
use ferrata::testing::{CrashTest, Fault, Process, World, assert_replays};
use ferrata::{Clock as _, RunStatus, SystemClock};
use ferrata_tests::{Space, StoreKind};
use serde_json::Value;
use tempfile::TempDir;

use self::graph::{LINES, Load, Warehouse, load, part};
use crate::support::{ended, program};

/// A run of an earlier version of the example. Do not change this file, even if the graph changes.
const KEPT: &str = include_str!("etl.jsonl");

/// Maximum time that two processes may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Writes `rows` sales of one cent, and a line that is not a sale. Returns the name of the file.
fn sales(folder: &Path, rows: usize) -> String {
    let file = folder.join("sales.csv");
    let mut text: String = (0..rows).map(|n| format!("2026-11-01,shop {},1\n", n % 7)).collect();
    text.push_str("a line that is no sale\n");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Returns the loaded parts: the process that loaded each part, and the amount in it.
fn loaded(folder: &Path) -> Vec<(u64, u64)> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        // Next to them are temporary files, which a process is writing or was writing when it was killed.
        path.extension().is_some_and(|kind| kind == "json").then(|| {
            let part: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let table: BTreeMap<String, u64> = serde_json::from_value(part["table"].clone()).unwrap();
            (part["by"].as_u64().unwrap(), table.values().sum())
        })
    };
    std::fs::read_dir(folder).into_iter().flatten().filter_map(read).collect()
}

fn warehouse(folder: &Path) -> Warehouse {
    Warehouse { folder: folder.join("loaded"), pace: Duration::ZERO, is_told: false }
}

async fn process(world: &World, folder: &TempDir) -> Process {
    let process = world.process_with(|builder| builder.resource(warehouse(folder.path()))).await.unwrap();
    let part = part().unwrap();
    process.serve(&part).unwrap();
    process.serve(&load(&part).unwrap()).unwrap();
    process
}

fn graph() -> Graph<Load> {
    load(&part().unwrap()).unwrap()
}

/// Checks that each part was loaded exactly once.
fn assert_loaded(done: &Load, folder: &TempDir, rows: usize, what: &str) {
    assert_eq!((done.rows, done.refused, done.cents), (rows as u64, 1, rows as u64), "{what}");
    let loaded = loaded(&folder.path().join("loaded"));
    assert_eq!(loaded.len(), (rows + 1).div_ceil(LINES), "{what}");
    assert_eq!(loaded.iter().map(|(_, cents)| cents).sum::<u64>(), rows as u64, "{what}");
}

#[tokio::test]
async fn etl_loads_each_part_and_counts_non_sales() {
    for rows in [0, LINES - 1, 3 * LINES - 1, 3 * LINES] {
        let (world, folder) = (World::new(), TempDir::new().unwrap());
        let process = process(&world, &folder).await;
        let input = Load { file: sales(folder.path(), rows), ..Load::default() };
        let run = process.start(&graph(), input).id("r").await.unwrap();
        let done = world.pass(run.completed()).await.unwrap();
        assert_loaded(&done, &folder, rows, &format!("{rows} rows"));
        if let Some(file) = std::env::var_os("FERRATA_KEEP") {
            std::fs::write(file, process.export(run.run()).await.unwrap()).unwrap();
        }
    }
}

#[tokio::test]
async fn crash_at_any_write_loads_each_part_once() {
    const ROWS: usize = 2 * LINES - 1;
    let part = part().unwrap();
    let (folder, place) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let input = Load { file: sales(place.path(), ROWS), ..Load::default() };
    let path = folder.path().to_owned();
    let crashes = CrashTest::new(&load(&part).unwrap(), input)
        .with_workflow(&part)
        .with_process(move |builder| builder.resource(warehouse(&path)))
        .run(async |case| {
            let Outcome::Completed(done) = &case.outcome else { panic!("{case:?}") };
            assert_loaded(done, &folder, ROWS, &format!("{case:?}"));
            std::fs::remove_dir_all(folder.path().join("loaded")).unwrap();
        })
        .await;
    assert!(crashes > 16, "{crashes}");
}

#[tokio::test]
async fn brief_store_failure_goes_unnoticed() {
    for (n, fault) in [(0, Fault::Before), (1, Fault::After), (3, Fault::Before), (5, Fault::After)] {
        let (world, folder) = (World::new(), TempDir::new().unwrap());
        let input = Load { file: sales(folder.path(), 2 * LINES), ..Load::default() };
        let process = process(&world, &folder).await;
        process.fail_write(n, fault);
        let run = world.pass(process.start(&graph(), input)).await.unwrap();
        let done = world.pass(run.completed()).await.unwrap();
        assert_loaded(&done, &folder, 2 * LINES, &format!("at write {n}"));
    }
}

#[tokio::test]
async fn current_graph_continues_older_run() {
    assert_replays(KEPT, &graph()).await;
}

fn etl(space: &Space, args: &[&str]) -> Command {
    let mut command = Command::new(program("etl"));
    command.args(args).args(["--store", space.url(), "--into", "loaded"]);
    command.envs(space.environment()).current_dir(space.folder());
    command
}

/// A process. If it is still running at the end of the test, it is killed.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + PATIENCE;
    while !is_so() {
        assert!(clock.monotonic() < deadline, "{what} did not happen within {PATIENCE:?}");
        clock.sleep(Duration::from_millis(10)).await;
    }
}

/// The command of the README works although the folder of its default store does not exist.
#[test]
fn the_usual_command_works_where_nothing_is() {
    let folder = TempDir::new().unwrap();
    let output =
        Command::new(program("etl")).args(["--pace", "0"]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("4000 rows in 40 parts, "), "{output:?}");
}

/// A process is killed while it writes the sample. Later processes write the sample again and do not load the partial file.
#[test]
fn interrupted_sample_is_written_again() {
    let folder = TempDir::new().unwrap();
    let mut cut = Command::new("sh");
    // The limit on the size of files kills the process in the middle of the sample.
    cut.args(["-c", "ulimit -f 32; exec \"$0\" --pace 0"]).arg(program("etl")).current_dir(folder.path());
    assert!(!cut.output().unwrap().status.success());
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.map(|name| name.into_string().unwrap()).any(|name| name.starts_with(".ferrata-etl.csv")));
    let output =
        Command::new(program("etl")).args(["--pace", "0"]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("4000 rows in 40 parts, "), "{output:?}");
}

#[tokio::test]
async fn surviving_process_finishes_shared_load_after_kill() {
    const PARTS: usize = 30;
    Space::within(StoreKind::Files, async |space| {
        let folder = space.folder().join("loaded");
        let file = sales(space.folder(), PARTS * LINES - 1);
        // The process that starts the load is slow. Alone, it would take much longer than the other process takes to find the waiting parts.
        let helper = Running::start(etl(space, &["--work", "--pace", "20"]));
        let mut first = Running::start(etl(space, &[&file, "--pace", "500"]));
        let by = |process: &Running| {
            let loaded = loaded(&folder);
            loaded.iter().filter(|(by, _)| *by == u64::from(process.0.id())).count()
        };
        until("a part of each process", || by(&first) > 0 && by(&helper) > 0).await;
        first.kill();
        until("the end of the load", || loaded(&folder).len() == PARTS).await;
        let output = etl(space, &[&file]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let wanted =
            format!("{0} rows in {PARTS} parts, {0} cents; lines without a sale: 1\n", PARTS * LINES - 1);
        assert!(output.status.success() && said.ends_with(&wanted), "{output:?}");
        assert_eq!(loaded(&folder).iter().map(|(_, cents)| cents).sum::<u64>(), (PARTS * LINES - 1) as u64);
        drop(helper);
        let store = space.open();
        let runs = store.runs(&RunQuery::default(), Page::first(1_000)).await.unwrap().items;
        assert_eq!(runs.len(), PARTS + 1, "a run for each part, and the one above them");
        for run in runs {
            assert_eq!(run.status, RunStatus::Completed, "{}", run.run);
            let log = ended(&*store, run.run.run.as_str()).await;
            assert!(log.values().all(|times| *times == 1), "{}: {log:?}", run.run);
        }
    })
    .await;
}
