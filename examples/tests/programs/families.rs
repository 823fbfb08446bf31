//! Tests the programs with several runs. The programs are killed repeatedly at random moments, and reach the same end without repeated work.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ferrata::ask::Answer;
use ferrata::store::{Page, RunQuery};
use ferrata::{CheckpointStore, Clock as _, RunKey, RunStatus, Runtime, SystemClock};
use ferrata_tests::{Space, StoreKind};

use crate::support::{Chance, ended, program};

const FILES: usize = 40;
const KILLS: usize = 6;

/// Maximum time on a busy machine with a slow store, which may first have to detect that the previous process is dead.
const PATIENCE: Duration = Duration::from_secs(600);

fn command(space: &Space, name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program(name));
    command.args(args).args(["--store", space.url()]).envs(space.environment()).current_dir(space.folder());
    command
}

/// Starts the program and kills it after a moment, several times. Then lets it run to its end.
async fn killed(space: &Space, name: &str, args: &[&str], chance: &mut Chance) -> Output {
    let clock = SystemClock::new();
    for _ in 0..KILLS {
        let mut child =
            command(space, name, args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        clock.sleep(Duration::from_millis(20 + chance.below(200))).await;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let began = clock.monotonic();
    let output = command(space, name, args).output().unwrap();
    let took = clock.monotonic().saturating_sub(began);
    assert!(took < PATIENCE, "{took:?}");
    output
}

fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
}

/// Checks that every run of the store has completed, and that no activation ended twice. Returns the number of runs.
async fn all_ended_once(store: &dyn CheckpointStore) -> usize {
    let runs = store.runs(&RunQuery::default(), Page::first(1_000)).await.unwrap().items;
    for run in &runs {
        assert_eq!(run.status, RunStatus::Completed, "{}", run.run);
        let log = ended(store, run.run.run.as_str()).await;
        assert!(log.values().all(|times| *times == 1), "{}: {log:?}", run.run);
    }
    runs.len()
}

fn make_files(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    for number in 0..FILES {
        let text = format!("{} {}", "ferry ".repeat(number), "harbour ".repeat(number % 3));
        std::fs::write(dir.join(format!("{number:03}.txt")), text).unwrap();
    }
}

pub(crate) async fn a_map_is_killed_on(kind: impl Into<StoreKind>) {
    Space::within(kind, async |space| {
        let mut chance = Chance::seeded();
        make_files(&space.folder().join("texts"));
        let output = killed(space, "map_reduce", &["texts"], &mut chance).await;
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        let ferries: usize = (0..FILES).sum();
        let harbours: usize = (0..FILES).map(|number| number % 3).sum();
        assert!(
            said.contains(&format!(
                "{} words of more than three letters in {FILES} files",
                ferries + harbours
            )),
            "{said}"
        );
        assert!(said.contains(&format!("{ferries:>8}  ferry\n{harbours:>8}  harbour")), "{said}");
        // There is one run for each file, and the parent run.
        assert_eq!(all_ended_once(&*space.open()).await, FILES + 1);
    })
    .await;
}

pub(crate) async fn research_is_killed_on(kind: impl Into<StoreKind>) {
    Space::within(kind, async |space| {
        let mut chance = Chance::seeded();
        let output = killed(space, "research", &["tidal power"], &mut chance).await;
        let asked = said(&output);
        assert_eq!(output.status.code(), Some(3), "{asked}");
        assert!(asked.contains("What will be the cost of tidal power? For which year?"), "{asked}");
        let output = command(space, "research", &["--answer", "2030"]).output().unwrap();
        let report = said(&output);
        assert!(output.status.success(), "{report}");
        let wanted = "On tidal power:\n\
                      - What is known of tidal power? 3 sources agree.\n\
                      - What will be the cost of tidal power? 2 sources agree, as of 2030.\n\
                      - Who works on tidal power? 3 sources agree.\n\
                      reviewed: 4 lines, nothing to improve\n";
        assert!(report.contains(wanted), "{report}");
        // The terminal has already shown the report, token by token.
        let seen = String::from_utf8_lossy(&output.stderr);
        let (text, _) = wanted.split_once("reviewed").unwrap();
        assert!(seen.contains(&format!("(write, attempt 1)\n{text}")), "{seen}");
        assert_eq!(all_ended_once(&*space.open()).await, 4);
        let again = command(space, "research", &[]).output().unwrap();
        assert!(said(&again).contains(wanted), "{}", said(&again));
    })
    .await;
}

#[tokio::test]
async fn killed_file_map_counts_each_file_once() {
    a_map_is_killed_on(StoreKind::Files).await;
}

#[tokio::test]
async fn killed_research_asks_once_with_same_report() {
    research_is_killed_on(StoreKind::Files).await;
}

/// A killed process had recorded its answer. The same command then continues, without an error.
#[tokio::test]
async fn research_with_recorded_answer_continues() {
    Space::within(StoreKind::Files, async |space| {
        let asked = command(space, "research", &["tidal power"]).output().unwrap();
        assert_eq!(asked.status.code(), Some(3), "{}", said(&asked));
        let (operator, key) =
            (Runtime::builder_with(space.open()).operator(), RunKey::try_from("research").unwrap());
        let question = operator.questions(&key).await.unwrap().remove(0);
        operator.respond(&key, &question.id, Answer::accept(2030_u32).unwrap()).await.unwrap();
        let output = command(space, "research", &["--answer", "2030"]).output().unwrap();
        let report = said(&output);
        assert!(output.status.success() && report.contains("2 sources agree, as of 2030.\n"), "{report}");
    })
    .await;
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    for name in ["agent", "etl", "map_reduce", "research", "transfer"] {
        for args in [&["--store"][..], &["--stroe", "file:x"], &["a", "b"]] {
            let output = Command::new(program(name)).args(args).current_dir(Path::new("/")).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{name} {args:?}");
            assert!(
                String::from_utf8_lossy(&output.stderr).contains(&format!("usage: {name}")),
                "{name} {args:?}"
            );
        }
    }
}
