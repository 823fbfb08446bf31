//! Runs from start to end on the memory store: order, joins, fan-out, failure, retry, pause and cancellation.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, RetryPolicy, Route};
use ferrata_core::record::FailureKind;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft, Reducer};
use ferrata_core::store::{At, CheckpointStore, MemoryStore};
use ferrata_core::{ErrorKind, RunKey};
use ferrata_testing::ManualClock;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::flavors::on_each_runtime;

async fn runtime(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.clone()).build().await.unwrap()
}

fn chain(nodes: usize, effect: Effect) -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("chain").channel("path", Reducer::Append);
    for at in 0..nodes {
        builder = builder
            .node(format!("n{at}"), async |cx, _s| {
                Ok(Context::update().reduce("path", vec![cx.node().to_string()]))
            })
            .effect(effect);
    }
    builder = builder.entry("n0");
    for at in 1..nodes {
        builder = builder.edge(format!("n{}", at - 1), format!("n{at}"));
    }
    builder.build().unwrap()
}

fn path(state: &Context) -> Vec<String> {
    state.get("path").unwrap().unwrap_or_default()
}

/// Guarantees: DURABLE-6.
#[tokio::test]
async fn a_chain_runs_in_order_under_every_policy() {
    let frequencies = [
        CheckpointFrequency::EveryNode,
        CheckpointFrequency::EveryNth(3.try_into().unwrap()),
        CheckpointFrequency::Interval(Duration::from_secs(60)),
        CheckpointFrequency::StatusChangeOnly,
        CheckpointFrequency::Disabled,
    ];
    for frequency in frequencies {
        for effect in [Effect::Pure, Effect::Read, Effect::Write, Effect::External, Effect::Human] {
            let store = MemoryStore::new();
            let runtime = runtime(&store).await;
            let graph = chain(20, effect);
            let policy = CheckpointPolicy::default().with_frequency(frequency);
            let run = runtime.start(&graph, Context::new()).id("r").checkpoints(policy).await.unwrap();
            let Outcome::Completed(state) = run.wait().await.unwrap() else {
                panic!("{frequency:?} {effect:?}")
            };
            let wanted: Vec<String> = (0..20).map(|at| format!("n{at}")).collect();
            assert_eq!(path(&state), wanted, "{frequency:?} {effect:?}");
            let stored = store.load(run.run(), At::Latest).await.unwrap();
            let nothing = frequency == CheckpointFrequency::Disabled && effect != Effect::External;
            assert_eq!(stored.is_none(), nothing, "{frequency:?} {effect:?}");
        }
    }
}

/// Guarantees: DURABLE-16.
#[tokio::test]
async fn repeated_start_returns_run_and_refuses_other_input() {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let graph = chain(3, Effect::Write);
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    run.wait().await.unwrap();
    let again = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(!again.is_driven_here());
    assert_eq!(path(&again.wait().await.unwrap().completed().unwrap()).len(), 3);
    let mut other = Context::new();
    other.set("more", 1).unwrap();
    let error = runtime.start(&graph, other).id("r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(runtime.resume(&graph, "r").await.unwrap_err().kind(), ErrorKind::WrongStatus);
    assert_eq!(runtime.resume(&graph, "nobody").await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// With checkpoints disabled, a start with an existing id does not repeat the run's work: it returns the existing run for the same input, and an
/// error for another input.
#[tokio::test]
async fn repeated_start_without_checkpoints_returns_same_run() {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let graph = chain(3, Effect::Write);
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    run.wait().await.unwrap();
    let disabled = CheckpointPolicy::default().with_frequency(CheckpointFrequency::Disabled);
    let again = runtime.start(&graph, Context::new()).id("r").checkpoints(disabled).await.unwrap();
    assert!(!again.is_driven_here(), "the run has ended");
    assert_eq!(path(&again.wait().await.unwrap().completed().unwrap()).len(), 3);
    let mut other = Context::new();
    other.set("more", 1).unwrap();
    let error = runtime.start(&graph, other).id("r").checkpoints(disabled).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
}

/// Guarantees: JOIN-7.
#[test]
fn fan_out_joins_once_in_item_order() {
    on_each_runtime(async || {
        let store = MemoryStore::new();
        let runtime = runtime(&store).await;
        let graph = Graph::<Context>::builder("fan")
            .node("split", async |_cx, s| Ok(s))
            .node("work", async |cx, _s| {
                let item: u32 = cx.item()?;
                for _ in 0..item % 7 {
                    tokio::task::yield_now().await;
                }
                Ok(ferrata_core::state::Update::none().with_output(item * 2))
            })
            .effect(Effect::Pure)
            .node("join", async |cx, mut s| {
                let all: Vec<u32> =
                    cx.inputs().iter().map(|input| input.output()).collect::<Result<_, _>>()?;
                s.set("all", all)?;
                Ok(s)
            })
            .entry("split")
            .route("split", ["work"], |_s, _cx| Route::each("work", 0..100u32))
            .edge("work", "join")
            .build()
            .unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        let state = run.wait().await.unwrap().completed().unwrap();
        let wanted: Vec<u32> = (0..100).map(|item| item * 2).collect();
        assert_eq!(state.get::<Vec<u32>>("all").unwrap().unwrap(), wanted);
    });
}

/// Guarantees: CONTROL-1.
#[tokio::test]
async fn node_failure_retries_then_fails_then_operator_retries() {
    let store = MemoryStore::new();
    let tries = Arc::new(AtomicU32::new(0));
    let runtime = Runtime::builder(store.clone()).resource(Arc::clone(&tries)).build().await.unwrap();
    let graph = Graph::<Context>::builder("flaky")
        .node("flaky", async |cx, mut s| {
            let count = cx.resource::<Arc<AtomicU32>>().fetch_add(1, Ordering::SeqCst) + 1;
            if count < 5 {
                return Err(format!("try {count}").into());
            }
            s.set("attempt", cx.attempt())?;
            Ok(s)
        })
        .retry(RetryPolicy::none().with_attempts(3).with_delay(Duration::from_millis(1)))
        .entry("flaky")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let Outcome::Failed { failure, .. } = run.wait().await.unwrap() else { panic!("not failed") };
    assert_eq!(failure.message, "try 3");
    runtime.retry(run.run()).await.unwrap();
    let run = runtime.resume(&graph, run.run()).await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(state.get::<u32>("attempt").unwrap(), Some(2));
    assert_eq!(tries.load(Ordering::SeqCst), 5);
}

/// Guarantees: CONTROL-13.
#[tokio::test]
async fn concurrent_overwrites_fail_run_and_name_nodes() {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let graph = Graph::<Context>::builder("clash")
        .node("s", async |_cx, s| Ok(s))
        .node("a", async |_cx, mut s| {
            s.set("x", 1)?;
            Ok(s)
        })
        .node("b", async |_cx, mut s| {
            s.set("x", 2)?;
            Ok(s)
        })
        .entry("s")
        .edge("s", ["a", "b"])
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let Outcome::Failed { failure, .. } = run.wait().await.unwrap() else { panic!("not failed") };
    assert!(failure.message.contains("`a@1`") && failure.message.contains("`b@1`"), "{failure}");
    assert!(failure.message.contains("channel `x`"), "{failure}");
}

type Edit = fn(&mut Context) -> ferrata_core::Result<()>;

fn nothing(s: &mut Context) -> ferrata_core::Result<()> {
    s.append("notes", Vec::<String>::new())?;
    s.set("tags", json!([]))?;
    s.set("marks", json!({}))
}

fn something(s: &mut Context) -> ferrata_core::Result<()> {
    s.append("notes", ["x"])?;
    s.set("tags", json!(["y"]))?;
    s.set("marks", json!({ "z": 1 }))
}

/// Runs two nodes concurrently. The second ends after the first.
async fn side_by_side(first: Edit, second: Edit) -> Value {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let ended = Arc::new(Notify::new());
    let mut graph = Graph::<Context>::builder("pair")
        .channel("notes", Reducer::Append)
        .channel("tags", Reducer::Union)
        .channel("marks", Reducer::Merge)
        .node("s", async |_cx, s| Ok(s));
    for (name, edit) in [("first", first), ("second", second)] {
        let ended = Arc::clone(&ended);
        graph = graph.node(name, move |_cx, mut s: Draft<Context>| {
            let ended = Arc::clone(&ended);
            async move {
                if name == "second" {
                    ended.notified().await;
                }
                edit(&mut s)?;
                ended.notify_one();
                Ok(s)
            }
        });
    }
    let graph = graph.entry("s").edge("s", ["first", "second"]).build().unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    runtime.check_log(run.run()).await.unwrap();
    serde_json::to_value(&state).unwrap()
}

#[tokio::test]
async fn empty_new_channel_preserves_concurrent_append() {
    let wanted = json!({ "notes": ["x"], "tags": ["y"], "marks": { "z": 1 } });
    assert_eq!(side_by_side(something, nothing).await, wanted);
    assert_eq!(side_by_side(nothing, something).await, wanted);
    let wanted = json!({ "notes": [], "tags": [], "marks": {} });
    assert_eq!(side_by_side(nothing, nothing).await, wanted);
}

#[tokio::test]
async fn concurrent_union_stores_value_once() {
    let twice: Edit = |s| s.append("tags", ["y", "y"]);
    assert_eq!(side_by_side(twice, something).await["tags"], json!(["y"]));
    assert_eq!(side_by_side(something, twice).await["tags"], json!(["y"]));
}

#[tokio::test]
async fn replacing_value_discards_concurrent_appends() {
    let replaces: Edit = |s| s.set("notes", "whole");
    assert_eq!(side_by_side(something, replaces).await["notes"], "whole");
}

/// The limits count items that wait at a node, in whichever order the nodes end.
#[tokio::test]
async fn items_that_waited_count_towards_the_limits() {
    for (visits, steps) in [(3, 100), (100, 8)] {
        for plan_first in [true, false] {
            let ended = Arc::new(Notify::new());
            let worked = Arc::new(AtomicU32::new(0));
            let mut graph = Graph::<Context>::builder("late")
                .max_steps(steps)
                .node("start", async |_cx, s| Ok(s))
                .entry("start")
                .edge("start", ["plan", "slow"]);
            for name in ["plan", "slow"] {
                let ended = Arc::clone(&ended);
                graph = graph.node(name, move |_cx, s: Draft<Context>| {
                    let ended = Arc::clone(&ended);
                    async move {
                        if (name == "plan") != plan_first {
                            ended.notified().await;
                        }
                        ended.notify_one();
                        Ok(s)
                    }
                });
            }
            let kept = Arc::clone(&worked);
            let graph = graph
                .node("worker", move |_cx, s: Draft<Context>| {
                    kept.fetch_add(1, Ordering::SeqCst);
                    async move { Ok(s) }
                })
                .max_visits(visits)
                .route("plan", ["worker"], |_s: &Context, _cx| Route::each("worker", 0..10))
                .edge("slow", "worker")
                .when(|s: &Context| s.contains_key("never"))
                .build()
                .unwrap();
            let run = runtime(&MemoryStore::new()).await;
            let run = run.start(&graph, Context::new()).id("r").await.unwrap();
            let outcome = run.wait().await.unwrap();
            let Outcome::Failed { failure, .. } = outcome else { panic!("{plan_first}: {outcome:?}") };
            let (kind, says) = match visits {
                3 => (FailureKind::MaxVisits, "needs visit 10"),
                _ => (FailureKind::MaxSteps, "needs activation 13"),
            };
            assert_eq!((failure.kind, worked.load(Ordering::SeqCst)), (kind, 0), "{plan_first}: {failure}");
            assert!(failure.message.contains(says), "{plan_first}: {failure}");
        }
    }
}

/// An activation that two edges join counts once.
#[tokio::test]
async fn joined_edges_count_once_toward_limits() {
    let graph = Graph::<Context>::builder("twice")
        .max_steps(2)
        .node("a", async |_cx, s| Ok(s))
        .node("b", async |_cx, s| Ok(s))
        .max_visits(1)
        .entry("a")
        .edge("a", "b")
        .edge("a", "b")
        .when(|_s: &Context| true)
        .build()
        .unwrap();
    let runtime = runtime(&MemoryStore::new()).await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let outcome = run.wait().await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
}

#[tokio::test]
async fn cancelled_run_ends_and_panic_fails_run() {
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).cancel_grace(Duration::ZERO).build().await.unwrap();
    let graph = Graph::<Context>::builder("wait")
        .node("wait", async |_cx, s| {
            std::future::pending::<()>().await;
            Ok(s)
        })
        .entry("wait")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    run.cancel("enough").await.unwrap();
    let Outcome::Cancelled { reason, .. } = run.wait().await.unwrap() else { panic!("not cancelled") };
    assert_eq!(reason, "enough");
    assert_eq!(run.cancel("again").await.unwrap_err().kind(), ErrorKind::WrongStatus);

    let graph = Graph::<Context>::builder("panic")
        .node("boom", async |_cx, s| if s.is_empty() { panic!("at night") } else { Ok(s) })
        .entry("boom")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let Outcome::Failed { failure, .. } = run.wait().await.unwrap() else { panic!("not failed") };
    assert_eq!(failure.message, "panicked: at night");
}

#[tokio::test]
async fn shutdown_releases_runs_for_another_runtime() {
    let store = MemoryStore::new();
    let first = runtime(&store).await;
    let graph = Graph::<Context>::builder("two")
        .node("a", async |_cx, mut s| {
            s.set("a", true)?;
            Ok(s)
        })
        .node("b", async |cx, s| {
            if cx.try_resource::<()>().is_none() {
                std::future::pending::<()>().await;
            }
            Ok(s)
        })
        .entry("a")
        .edge("a", "b")
        .build()
        .unwrap();
    let run = first.start(&graph, Context::new()).id("r").await.unwrap();
    let second = Runtime::builder(store.clone()).resource(()).build().await.unwrap();
    let error = second.resume(&graph, "r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "the owner is alive: {error}");
    first.shutdown(Duration::ZERO).await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Released));
    let key = RunKey::try_from("r").unwrap();
    assert_eq!(second.head(&key).await.unwrap().unwrap().owner, None);
    let run = second.resume(&graph, "r").await.unwrap();
    assert!(run.wait().await.unwrap().completed().is_some());
}

/// Guarantees: CONTROL-14.
#[tokio::test]
async fn deadline_counts_from_start_after_resume() {
    let store = MemoryStore::new();
    let clock = Arc::new(ManualClock::new(ferrata_core::Timestamp::from_unix_ms(1_000)));
    let graph = Graph::<Context>::builder("slow")
        .node("wait", async |_cx, s| {
            std::future::pending::<()>().await;
            Ok(s)
        })
        .entry("wait")
        .deadline(Duration::from_secs(60))
        .build()
        .unwrap();
    let first =
        Runtime::builder(store.clone()).clock(Arc::<ManualClock>::clone(&clock)).build().await.unwrap();
    let run = first.start(&graph, Context::new()).id("r").await.unwrap();
    first.shutdown(Duration::ZERO).await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Released));
    clock.advance(Duration::from_secs(61));
    let second =
        Runtime::builder(store.clone()).clock(Arc::<ManualClock>::clone(&clock)).build().await.unwrap();
    let run = second.resume(&graph, "r").await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "the test drives the clock beside the run")]
    let driving = tokio::spawn(async move { run.wait().await });
    while !driving.is_finished() {
        clock.advance(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
    let Outcome::Failed { failure, .. } = driving.await.unwrap().unwrap() else { panic!("not failed") };
    assert_eq!(failure.kind, ferrata_core::record::FailureKind::Deadline);
}

/// Guarantees: CONTROL-6.
#[tokio::test]
async fn run_with_missed_goal_cannot_retry() {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let graph = Graph::<Context>::builder("goal")
        .node("a", async |_cx, s| Ok(s))
        .goal_gate(|_s| false)
        .entry("a")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let Outcome::Failed { failure, .. } = run.wait().await.unwrap() else { panic!("not failed") };
    assert_eq!(failure.kind, ferrata_core::record::FailureKind::GoalGate);
    let before = runtime.head(run.run()).await.unwrap();
    assert_eq!(runtime.retry(run.run()).await.unwrap_err().kind(), ErrorKind::WrongStatus);
    assert_eq!(runtime.head(run.run()).await.unwrap(), before);
}

/// Guarantees: CONTROL-12.
#[tokio::test]
async fn missed_goal_returns_to_retry_target_until_met() {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let graph = Graph::<Context>::builder("goal")
        .channel("path", Reducer::Append)
        .node("draft", async |_cx, _s| Ok(Context::update().reduce("path", vec!["draft"])))
        .node("review", async |_cx, _s| Ok(Context::update().reduce("path", vec!["review"])))
        .goal_gate(|s| path(s).len() >= 6)
        .retry_target("draft")
        .entry("draft")
        .edge("draft", "review")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert_eq!(path(&run.wait().await.unwrap().completed().unwrap()).len(), 6);
}
