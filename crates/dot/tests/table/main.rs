//! A table of pipelines, from a chain of three nodes to nested parallel nodes with gates and loops. Each has an expected path, context and outcome,
//! with and without a crash at each of its writes.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "../support/mod.rs"]
mod support;

mod cases;

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ask::{Answer, QuestionKind};
use ferrata_core::record::{Resolution, RunStatus};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Error, RunKey};
use ferrata_testing::{Fault, FaultPlan, FaultStore, World};
use serde_json::Value;
use support::{compile, path_of, registry, source};

use self::cases::{CASES, Case, End};

/// The end of a run.
#[derive(Debug, PartialEq)]
struct Ended {
    path: Vec<String>,
    failure: Option<String>,
    context: Vec<(String, Value)>,
}

/// Runs one process of a case on a store, until the run has ended or the process has crashed.
async fn live(
    (world, case): (&World, &Case),
    store: Arc<dyn CheckpointStore>,
    claim: bool,
) -> Result<Outcome<Context>, Error> {
    let runtime = Runtime::builder_with(store).clock(Arc::new(world.clock().clone()));
    let runtime = runtime.store_retries(1, Duration::from_millis(1)).build().await?;
    let graph = compile(&source(case.graph), registry());
    let key = RunKey::try_from("r").unwrap();
    let mut claim = claim;
    loop {
        let run = match runtime.head(&key).await? {
            Some(head) if head.status == RunStatus::InProgress && claim => {
                runtime.resume(&graph, "r").take_over().await?
            }
            Some(head) if head.status == RunStatus::InProgress => runtime.resume(&graph, "r").await?,
            _ => runtime.start(&graph, Context::new()).id("r").await?,
        };
        claim = false;
        let questions = match run.wait().await? {
            Outcome::Interrupted(questions) => questions,
            outcome => return Ok(outcome),
        };
        for question in questions {
            let answer = match question.kind {
                // An `External` node was interrupted. Here its effect did not happen.
                QuestionKind::Doubt => Answer::from(Resolution::Retry),
                _ => {
                    let answers = case.answers.iter().filter(|(node, _)| *node == question.node.as_str());
                    let visit = usize::try_from(question.visit.get()).unwrap() - 1;
                    Answer::accept(answers.map(|(_, answer)| *answer).nth(visit).unwrap()).unwrap()
                }
            };
            runtime.respond(run.run(), &question.id, answer).await?;
        }
    }
}

async fn ended(case: &Case, memory: &MemoryStore, outcome: Outcome<Context>) -> Ended {
    let mut path = path_of(memory, &RunKey::try_from("r").unwrap()).await;
    if case.is_parallel() {
        // The branches end in any order.
        path.sort();
    }
    let (context, failure) = match outcome {
        Outcome::Completed(context) => (context, None),
        Outcome::Failed { failure, state } => (state, Some(failure.message)),
        other => panic!("{}: {other:?}", case.name),
    };
    let context = context.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    Ended { path, failure, context }
}

/// Creates a world for one case, and a store with its clock. The clock advances when nothing else can happen, so pauses before retries take no time.
#[expect(clippy::print_stdout, reason = "a test that fails shows it")]
fn world(case: &Case) -> (World, MemoryStore) {
    // The last printed line names the case that does not end.
    println!("{}", case.name);
    let world = World::new();
    let memory = world.store().clone();
    (world, memory)
}

async fn calm(case: &Case) -> Ended {
    let (world, memory) = world(case);
    let outcome = world.pass(live((&world, case), Arc::new(memory.clone()), false)).await.unwrap();
    ended(case, &memory, outcome).await
}

/// Guarantees: DOT-1.
#[tokio::test]
async fn each_pipeline_takes_its_path_to_its_end() {
    assert!(CASES.len() >= 40, "{}", CASES.len());
    for case in CASES {
        let ended = calm(case).await;
        let mut wanted: Vec<&str> = case.path.split(' ').collect();
        if case.is_parallel() {
            wanted.sort_unstable();
        }
        assert_eq!(ended.path, wanted, "{}", case.name);
        match case.end {
            End::Completes => assert_eq!(ended.failure, None, "{}", case.name),
            End::Fails(why) => assert_eq!(ended.failure.as_deref(), Some(why), "{}", case.name),
        }
        for (key, wanted) in case.known {
            let found = ended.context.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone());
            let found = found.unwrap_or_default();
            let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
            assert_eq!(found, *wanted, "{}: {key}", case.name);
        }
    }
}

/// Crashes a case before and after each of its writes. Returns the number of crashes.
async fn crash(case: &Case) -> u32 {
    let wanted = calm(case).await;
    let mut crashes = 0;
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        for at in 0.. {
            let (world, memory) = world(case);
            let store = Arc::new(FaultStore::new(memory.clone(), FaultPlan::new().with_fault(at, fault)));
            let first = world.pass(live((&world, case), Arc::clone(&store) as _, false)).await;
            if !store.is_crashed() {
                let ended = ended(case, &memory, first.unwrap()).await;
                assert_eq!(ended, wanted, "{} without a crash", case.name);
                break;
            }
            crashes += 1;
            let outcome = world.pass(live((&world, case), Arc::new(memory.clone()), true)).await;
            let outcome = outcome.unwrap_or_else(|error| panic!("{} {fault:?} at {at}: {error}", case.name));
            let ended = ended(case, &memory, outcome).await;
            assert_eq!(ended, wanted, "{} {fault:?} at write {at}", case.name);
        }
    }
    crashes
}

/// Runs a quarter of the table, so that the quarters can run in parallel.
async fn crash_quarter(quarter: usize) {
    let mut crashes = 0;
    for case in CASES.iter().skip(quarter).step_by(4) {
        crashes += crash(case).await;
    }
    assert!(crashes >= 100, "{crashes}");
}

/// Guarantees: DOT-1.
#[tokio::test]
async fn pipelines_end_same_despite_crashes_1() {
    crash_quarter(0).await;
}

/// Guarantees: DOT-1.
#[tokio::test]
async fn pipelines_end_same_despite_crashes_2() {
    crash_quarter(1).await;
}

/// Guarantees: DOT-1.
#[tokio::test]
async fn pipelines_end_same_despite_crashes_3() {
    crash_quarter(2).await;
}

/// Guarantees: DOT-1.
#[tokio::test]
async fn pipelines_end_same_despite_crashes_4() {
    crash_quarter(3).await;
}
