//! Idle runs: acknowledged calls stay in effect, timers fire, and no run is claimed without a reason.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{
    CheckpointFrequency, CheckpointPolicy, Effect, Graph, GraphBuilder, NodeCheckpoint, RetryPolicy,
};
use ferrata_core::node::{Conversation, NodeContext, NodeError, NodeResult};
use ferrata_core::record::{FailureKind, RecordKind, RunStatus};
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock as _, ErrorKind, RunKey};
use ferrata_testing::Fault;
use tokio::sync::Notify;

use super::data_loss::Replicated;
use super::world::World;

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

fn policies() -> [CheckpointPolicy; 5] {
    let frequencies = [
        CheckpointFrequency::EveryNode,
        CheckpointFrequency::EveryNth(NonZeroU32::new(3).unwrap()),
        CheckpointFrequency::Interval(Duration::from_secs(3_600)),
        CheckpointFrequency::StatusChangeOnly,
        CheckpointFrequency::Disabled,
    ];
    frequencies.map(|frequency| CheckpointPolicy::default().with_frequency(frequency))
}

fn gate() -> GraphBuilder<Context> {
    Graph::<Context>::builder("g")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("ok", yes))
        .entry("ok")
}

/// A node that signals its start, and ends when the test allows it.
#[derive(Clone, Default)]
struct Work {
    begun: Arc<AtomicU32>,
    may_end: Arc<Notify>,
}

impl Work {
    fn node(&self, graph: GraphBuilder<Context>, name: &str) -> GraphBuilder<Context> {
        let work = self.clone();
        graph.node(name, move |cx: NodeContext, mut s: Draft<Context>| {
            let work = work.clone();
            async move {
                work.begun.fetch_add(1, Ordering::SeqCst);
                work.may_end.notified().await;
                s.set("worked", cx.node().as_str())?;
                Ok(s)
            }
        })
    }

    fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }
}

/// Waits for a condition without advancing the test's clock.
async fn until(what: impl AsyncFn() -> bool) {
    for _ in 0..10_000 {
        if what().await {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the condition was never met");
}

async fn status(runtime: &Runtime) -> RunStatus {
    runtime.head(&key()).await.unwrap().unwrap().status
}

async fn outcome(world: &World, run: &RunHandle<Context>) -> Outcome<Context> {
    world.pass(run.wait()).await.unwrap()
}

async fn resumed(world: &World, runtime: &Runtime, graph: &Graph<Context>) -> Outcome<Context> {
    outcome(world, &runtime.resume(graph, "r").await.unwrap()).await
}

/// A graph deadline also fails an idle run. A sweep claims the run once for this, and not repeatedly.
///
/// Guarantees: CONTROL-14.
#[tokio::test]
async fn a_deadline_comes_due_while_the_run_waits() {
    let waits: [fn() -> GraphBuilder<Context>; 3] = [
        gate,
        || {
            let hears = async |cx: NodeContext, s| {
                let _: u32 = cx.receive().await?;
                Ok(s)
            };
            Graph::<Context>::builder("g").node("hears", hears).entry("hears")
        },
        || {
            Graph::<Context>::builder("g")
                .node("pay", async |_cx, s| Ok(s))
                .interrupt_after()
                .node("end", async |_cx, s| Ok(s))
                .entry("pay")
                .edge("pay", "end")
        },
    ];
    for (at, wait) in waits.into_iter().enumerate() {
        let world = World::new();
        let graph = wait().deadline(Duration::from_secs(10)).build().unwrap();
        let runtime = world.process().await;
        runtime.serve(&graph).unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        let rests = run.wait().await.unwrap();
        assert!(matches!(rests, Outcome::Interrupted(_) | Outcome::AwaitingInput), "{at}: {rests:?}");
        let ended = world.pass(run.completed()).await.unwrap_err();
        assert!(ended.to_string().contains("deadline"), "{at}: {ended}");
        let head = runtime.head(&key()).await.unwrap().unwrap();
        assert_eq!((head.status, head.epoch.get()), (RunStatus::Failed, 2), "{at}: expected one claim");
        assert!(head.seq.get() <= 5, "{at}: {} records", head.seq);
    }
}

/// The process that claims a run of a dead process gets the deadline or the cancellation at once, and not only at the next attempt.
///
/// Guarantees: CONTROL-14.
#[tokio::test]
async fn deadline_and_cancellation_skip_dead_owner_retry_delay() {
    let hour = Duration::from_secs(3_600);
    let retry = RetryPolicy::none().with_attempts(3).with_delay(hour).with_cap(hour).with_jitter(0.0);
    for is_cancelled in [false, true] {
        let world = World::new();
        let ((store, dead), other) = (world.mortal().await, world.process().await);
        let network = Arc::clone(&store);
        let graph = Graph::<Context>::builder("g")
            .node("call", move |cx: NodeContext, _s: Draft<Context>| {
                let network = Arc::clone(&network);
                async move {
                    if is_cancelled {
                        cx.cancelled().await;
                    }
                    // The crash follows the write of the failed attempt, so this is the last record.
                    network.plan(network.operations(), Fault::CrashAfter);
                    Err::<(), _>(NodeError::new("down"))
                }
            })
            .retry(retry)
            .entry("call")
            .deadline(Duration::from_secs(30))
            .build()
            .unwrap();
        dead.start(&graph, Context::new()).id("r").await.unwrap();
        if is_cancelled {
            dead.cancel(&key(), "not wanted").await.unwrap();
        }
        until(async || store.is_crashed()).await;
        let head = other.head(&key()).await.unwrap().unwrap();
        assert_eq!((head.kind, head.status), (RecordKind::Attempt, RunStatus::InProgress));
        other.serve(&graph).unwrap();
        let run = other.start(&graph, Context::new()).id("r").await.unwrap();
        let began = world.clock.monotonic();
        let ended = world.pass(run.completed()).await.unwrap_err();
        let took = world.clock.monotonic() - began;
        assert!(took < Duration::from_secs(60), "{ended}: after {took:?}");
        let expected = if is_cancelled { RunStatus::Cancelled } else { RunStatus::Failed };
        assert_eq!(other.head(&key()).await.unwrap().unwrap().status, expected, "{ended}");
    }
}

/// A repeated start of an idle run whose timer has expired claims the run, also in a process that does not serve the workflow.
///
/// Guarantees: CONTROL-1.
#[tokio::test]
async fn start_claims_run_with_due_timer() {
    let hour = Duration::from_secs(3_600);
    let waits: [GraphBuilder<Context>; 3] = [
        Graph::<Context>::builder("g")
            .gate(
                "ok",
                move |_s: &Context| Ask::<bool>::new("Go on?").deadline(hour).or_default(true),
                |s, yes| s.set("ok", yes),
            )
            .entry("ok"),
        Graph::<Context>::builder("g")
            .conversation(
                "talk",
                ["end"],
                Conversation::new().idle_timeout(hour),
                async |_cx, s, _: String| Ok(s),
            )
            .node("end", async |_cx, s| Ok(s))
            .entry("talk"),
        gate().deadline(hour),
    ];
    for (at, wait) in waits.into_iter().enumerate() {
        let (world, graph) = (World::new(), wait.build().unwrap());
        let start = async || {
            let runtime = world.process().await;
            runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap()
        };
        for _ in 0..2 {
            let rests = start().await;
            assert!(matches!(rests, Outcome::Interrupted(_) | Outcome::AwaitingInput), "{at}: {rests:?}");
            let head = world.process().await.head(&key()).await.unwrap().unwrap();
            assert_eq!(head.epoch.get(), 1, "{at}: no process must claim the run before its time");
        }
        world.clock.advance(hour);
        match start().await {
            Outcome::Completed(_) => assert_ne!(at, 2),
            Outcome::Failed { failure, .. } => assert_eq!((at, failure.kind), (2, FailureKind::Deadline)),
            other => panic!("{at}: {other:?}"),
        }
    }
}

/// Guarantees: CONTROL-14.
#[tokio::test]
async fn answer_after_graph_deadline_is_refused() {
    let world = World::new();
    let graph = gate().deadline(Duration::from_secs(10)).build().unwrap();
    let runtime = world.process().await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    world.clock.advance(Duration::from_secs(60));
    runtime.respond(&key(), "ok", Answer::accept(true).unwrap()).await.unwrap();
    let Outcome::Failed { failure, .. } = resumed(&world, &runtime, &graph).await else { panic!() };
    assert_eq!(failure.kind, FailureKind::Deadline);
}

/// When the wall clock jumps beyond the deadline, the waiting run fails at once. The deadline does not follow the monotonic clock.
///
/// Guarantees: TIMER-8.
#[tokio::test]
async fn deadline_fails_waiting_run_after_clock_jump() {
    let day = Duration::from_secs(86_400);
    let (world, work) = (World::new(), Work::default());
    let graph = work.node(Graph::<Context>::builder("g"), "work");
    let graph = graph.gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("ok", yes));
    let graph = graph.entry("work").edge("work", "ok").deadline(day).build().unwrap();
    let runtime = world.process().await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    until(async || work.begun() == 1).await;
    world.clock.set_now(world.clock.now().plus(2 * day));
    work.may_end.notify_one();
    let Outcome::Failed { failure, state } = outcome(&world, &run).await else { panic!("the run must fail") };
    assert_eq!(failure.kind, FailureKind::Deadline);
    assert_eq!(
        state.get::<String>("worked").unwrap().as_deref(),
        Some("work"),
        "the deadline must let a running node end"
    );
}

/// A cancellation that is acknowledged while the last node runs wins: the run ends as cancelled, not as completed.
#[tokio::test]
async fn recorded_cancellation_beats_end_of_last_node() {
    for effect in [Effect::Pure, Effect::Write, Effect::External] {
        let (world, work) = (World::new(), Work::default());
        let graph = work.node(Graph::<Context>::builder("g"), "last").effect(effect);
        let graph = graph.entry("last").build().unwrap();
        let (runtime, other) = (world.process().await, world.process().await);
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        until(async || work.begun() == 1).await;
        other.cancel(&key(), "enough").await.unwrap();
        work.may_end.notify_one();
        let Outcome::Cancelled { reason, state } = outcome(&world, &run).await else { panic!("{effect:?}") };
        assert_eq!(reason, "enough");
        assert_eq!(
            state.get::<String>("worked").unwrap().as_deref(),
            Some("last"),
            "the result of the node must be recorded"
        );
        assert_eq!(status(&runtime).await, RunStatus::Cancelled);
    }
}

#[tokio::test]
async fn recorded_pause_beats_end_of_last_node() {
    for by_driver in [true, false] {
        let (world, work) = (World::new(), Work::default());
        let graph = work.node(Graph::<Context>::builder("g"), "last").entry("last").build().unwrap();
        let (runtime, other) = (world.process().await, world.process().await);
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        until(async || work.begun() == 1).await;
        let by = if by_driver { &runtime } else { &other };
        by.pause(&key(), "tea").await.unwrap();
        work.may_end.notify_one();
        let paused = outcome(&world, &run).await;
        assert!(matches!(paused, Outcome::Paused { .. }), "{paused:?}");
        let late = other.pause(&key(), "more tea").await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::WrongStatus);
        other.unpause(&key()).await.unwrap();
        assert_eq!(status(&other).await, RunStatus::Completed, "no work must be left");
        let state = world.pass(run.completed()).await.unwrap();
        assert_eq!(state.get::<String>("worked").unwrap().as_deref(), Some("last"));
        assert!(other.verify(&graph, &key()).await.unwrap().divergence.is_none());
        other.check_log(&key()).await.unwrap();
    }
}

/// A pause also delays waits: during it, no timer fires, and no answer or message reaches a node.
///
/// Guarantees: CONTROL-2.
#[tokio::test]
async fn a_pause_holds_what_waits() {
    async fn sleeps(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
        cx.sleep(Duration::from_secs(2)).await?;
        cx.resource::<Arc<AtomicU32>>().fetch_add(1, Ordering::SeqCst);
        Ok(s.into())
    }
    async fn hears(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
        let _: u32 = cx.receive().await?;
        cx.resource::<Arc<AtomicU32>>().fetch_add(1, Ordering::SeqCst);
        Ok(s.into())
    }
    async fn asks(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
        let _: u32 = cx.ask("q", "How much?").await?;
        cx.resource::<Arc<AtomicU32>>().fetch_add(1, Ordering::SeqCst);
        Ok(s.into())
    }
    for by_driver in [true, false] {
        let (world, work, went_on) = (World::new(), Work::default(), Arc::new(AtomicU32::new(0)));
        let graph = Graph::<Context>::builder("g").node("split", async |_cx, s| Ok(s)).entry("split");
        let graph = graph.node("sleeps", sleeps).node("hears", hears).node("asks", asks);
        let graph = work.node(graph, "busy").edge("split", ["sleeps", "hears", "asks", "busy"]);
        let graph = graph.node("end", async |_cx, s| Ok(s)).edge(["sleeps", "hears", "asks", "busy"], "end");
        let graph = graph.build().unwrap();
        let runtime = Runtime::builder(world.store.clone())
            .clock(Arc::clone(&world.clock) as _)
            .resource(Arc::clone(&went_on))
            .build()
            .await
            .unwrap();
        let other = world.process().await;
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        until(async || work.begun() == 1 && !runtime.questions(&key()).await.unwrap().is_empty()).await;
        let by = if by_driver { &runtime } else { &other };
        by.pause(&key(), "tea").await.unwrap();
        by.send(&key(), 1).await.unwrap();
        by.respond(&key(), "asks@1:q", Answer::accept(7).unwrap()).await.unwrap();
        // Long enough for the driver to poll, and for the timer to expire.
        let waits = async {
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
        };
        world.pass(waits).await;
        assert_eq!(went_on.load(Ordering::SeqCst), 0, "the run continued during the pause");
        work.may_end.notify_one();
        let paused = outcome(&world, &run).await;
        assert!(matches!(paused, Outcome::Paused { .. }), "{paused:?}");
        assert_eq!(went_on.load(Ordering::SeqCst), 0, "the run continued during the pause");
        other.unpause(&key()).await.unwrap();
        let ended = resumed(&world, &runtime, &graph).await;
        assert!(matches!(ended, Outcome::Completed(_)), "{ended:?}");
        assert_eq!((went_on.load(Ordering::SeqCst), work.begun()), (3, 1));
    }
}

/// A question after a node is answerable as soon as `wait` returns it, although coarse policies delay the node's record.
#[tokio::test]
async fn every_policy_records_open_waits() {
    for policy in policies() {
        let world = World::new();
        let graph = Graph::<Context>::builder("g")
            .node("a", async |_cx, s| Ok(s))
            .interrupt_after()
            .node("b", async |cx, s| {
                let _: u32 = cx.receive().await?;
                Ok(s)
            })
            .entry("a")
            .edge("a", "b")
            .build()
            .unwrap();
        let (runtime, other) = (world.process().await, world.process().await);
        runtime.serve(&graph).unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").checkpoints(policy).await.unwrap();
        let asked = run.wait().await.unwrap();
        assert!(matches!(asked, Outcome::Interrupted(_)), "{policy:?}: {asked:?}");
        let head = other.head(&key()).await.unwrap().unwrap();
        assert_eq!((head.status, head.owner), (RunStatus::Interrupted, None), "{policy:?}");
        other.respond(&key(), "a@1:after", Answer::accept(()).unwrap()).await.unwrap();
        world.pass(until(async || status(&other).await == RunStatus::AwaitingInput)).await;
        other.send(&key(), 1).await.unwrap();
        world.pass(run.completed()).await.unwrap();
    }
}

/// Guarantees: DURABLE-7.
#[tokio::test]
async fn a_failure_that_was_told_can_be_retried() {
    for policy in policies() {
        let world = World::new();
        let graph = gate().build().unwrap();
        let runtime = world.process().await;
        let run = runtime.start(&graph, Context::new()).id("r").checkpoints(policy).await.unwrap();
        assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
        runtime.respond(&key(), "ok", Answer::reject("no")).await.unwrap();
        let again = runtime.resume(&graph, "r").checkpoints(policy).await.unwrap();
        assert!(matches!(outcome(&world, &again).await, Outcome::Failed { .. }), "{policy:?}");
        runtime.retry(&key()).await.unwrap();
        let asked = resumed(&world, &runtime, &graph).await;
        assert!(matches!(asked, Outcome::Interrupted(_)), "{policy:?}: {asked:?}");
    }
}

/// A node with its own `Checkpoint` setting is recorded at its end under every policy, also with checkpoints disabled.
#[tokio::test]
async fn checkpoint_after_node_overrides_every_policy() {
    for policy in policies() {
        let (world, work, counted) = (World::new(), Work::default(), Arc::new(AtomicU32::new(0)));
        let counts = Arc::clone(&counted);
        let graph = Graph::<Context>::builder("g").node("a", async |_cx, s| Ok(s)).entry("a");
        let graph = graph
            .node("once", move |_cx, s: Draft<Context>| {
                counts.fetch_add(1, Ordering::SeqCst);
                async move { Ok(s) }
            })
            .checkpoint(NodeCheckpoint::After)
            .edge("a", "once");
        let graph = work.node(graph, "hangs").edge("once", "hangs").build().unwrap();
        let (store, dying) = world.mortal().await;
        let run = dying.start(&graph, Context::new()).id("r").checkpoints(policy).await.unwrap();
        until(async || work.begun() == 1).await;
        store.crash();
        drop((run, dying));
        world.clock.advance(Duration::from_secs(3_600));
        work.may_end.notify_one();
        let ended = resumed(&world, &world.process().await, &graph).await;
        assert!(matches!(ended, Outcome::Completed(_)), "{policy:?}: {ended:?}");
        assert_eq!(counted.load(Ordering::SeqCst), 1, "{policy:?}");
    }
}

/// A run is purged during a node, restarted and released. The old node's end must not be written to the new run, even if epoch and owner are equal.
#[tokio::test]
async fn old_node_end_never_enters_restarted_run() {
    for effect in [Effect::Pure, Effect::Write, Effect::External] {
        let (world, work) = (World::new(), Work::default());
        let graph = work.node(Graph::<Context>::builder("g"), "work").effect(effect);
        let graph = graph.entry("work").build().unwrap();
        // The old process gets no notice of the purge before its next write.
        let old = Runtime::builder(Replicated::new(&world)).clock(Arc::clone(&world.clock) as _);
        let (old, other) = (old.build().await.unwrap(), world.process().await);
        let run = old.start(&graph, Context::new()).id("r").await.unwrap();
        until(async || work.begun() == 1).await;
        other.purge(&key()).await.unwrap();
        let mut input = Context::new();
        input.set("life", 2).unwrap();
        let next = other.start(&graph, input).id("r").await.unwrap();
        until(async || work.begun() == 2).await;
        other.shutdown(Duration::ZERO).await.unwrap();
        drop(next);
        let before = old.head(&key()).await.unwrap().unwrap();
        assert_eq!(before.owner, None);
        // Two nodes may wait for this signal, and only the old one is still running.
        work.may_end.notify_one();
        work.may_end.notify_one();
        let stopped = world.pass(run.wait()).await.unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Fenced, "{effect:?}: {stopped}");
        assert!(stopped.to_string().contains("started again"), "{stopped}");
        let after = old.head(&key()).await.unwrap().unwrap();
        assert_eq!(
            (after.seq, after.id),
            (before.seq, before.id),
            "{effect:?}: the restarted run must be unchanged"
        );
    }
}

/// A handle of a run that was purged and started again must not return the result of the new run.
#[tokio::test]
async fn handle_ignores_restarted_run_with_same_id() {
    let (world, work) = (World::new(), Work::default());
    let graph = work.node(Graph::<Context>::builder("g"), "work").entry("work").build().unwrap();
    let (old, other) = (world.process().await, world.process().await);
    let run = old.start(&graph, Context::new()).id("r").await.unwrap();
    until(async || work.begun() == 1).await;
    other.purge(&key()).await.unwrap();
    let next = other.start(&graph, Context::new()).id("r").await.unwrap();
    until(async || work.begun() == 2).await;
    work.may_end.notify_one();
    work.may_end.notify_one();
    assert!(matches!(outcome(&world, &next).await, Outcome::Completed(_)));
    let told = world.pass(run.completed()).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::NotFound, "{told}");
}
