//! The test world for users: time, crashes, faults, scripts, replaced nodes, and histories.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock, ErrorKind, RunKey};
use ferrata_testing::{Fault, ScriptedAnswers, World, assert_replays};

const DAY: Duration = Duration::from_secs(86_400);

/// A graph that waits three days, asks, and pays.
fn graph(paid: &Arc<AtomicU32>) -> Graph<Context> {
    let paid = Arc::clone(paid);
    Graph::<Context>::builder("pay")
        .node("wait", async |cx, s| {
            cx.sleep(3 * DAY).await?;
            Ok(s)
        })
        .gate("approve", |_s: &Context| Ask::<bool>::new("Pay?"), |s, yes| s.set("yes", yes))
        .node("pay", move |_cx, s| {
            let paid = Arc::clone(&paid);
            async move {
                paid.fetch_add(1, Ordering::SeqCst);
                Ok(s)
            }
        })
        .effect(Effect::External)
        .entry("wait")
        .edge("wait", "approve")
        .edge("approve", "pay")
        .build()
        .unwrap()
}

fn script() -> ScriptedAnswers {
    ScriptedAnswers::new().answer("approve", Answer::accept(true).unwrap())
}

/// A jump of three days does not lose the heartbeat, and wakes the run, also in a store with its own clock.
#[tokio::test]
async fn three_days_are_over_at_once() {
    let (world, paid, script) = (World::new(), Arc::default(), script());
    let process = world.process_with(|b| b.answerer(script.clone())).await.unwrap();
    let run = process.start(&graph(&paid), Context::new()).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<bool>("yes").unwrap(), Some(true));
    assert!(script.is_over());
    let passed = world.clock().monotonic();
    assert!(passed >= 3 * DAY && passed < 4 * DAY, "{passed:?}");
}

#[tokio::test]
async fn a_crash_at_each_write_loses_nothing() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        let mut crashes = 0;
        for n in 0.. {
            let (world, paid) = (World::new(), Arc::default());
            let graph = graph(&paid);
            let process = world.process_with(|b| b.answerer(script())).await.unwrap();
            process.fail_write(n, fault);
            if let Ok(run) = world.pass(process.start(&graph, Context::new()).id("r")).await {
                let _ = world.pass(run.wait()).await;
            }
            if !process.is_crashed() {
                break;
            }
            crashes += 1;
            process.crash().await;

            let process = world.process_with(|b| b.answerer(script())).await.unwrap();
            let run = world.pass(process.start(&graph, Context::new()).id("r")).await.unwrap();
            match world.pass(run.wait()).await.unwrap() {
                Outcome::Completed(_) => assert_eq!(paid.load(Ordering::SeqCst), 1, "{fault:?} at write {n}"),
                // The outcome of the payment is unknown, so it must not be repeated.
                _ => assert!(paid.load(Ordering::SeqCst) <= 1, "{fault:?} at write {n}"),
            }
        }
        assert!(crashes >= 4, "{fault:?}: {crashes} writes");
    }
}

#[tokio::test]
async fn a_write_that_fails_once_is_made_again() {
    for fault in [Fault::Before, Fault::After] {
        let (world, paid) = (World::new(), Arc::default());
        let process = world.process_with(|b| b.answerer(script())).await.unwrap();
        process.fail_write(1, fault);
        let run = process.start(&graph(&paid), Context::new()).await.unwrap();
        world.pass(run.completed()).await.unwrap();
        assert_eq!(paid.load(Ordering::SeqCst), 1, "{fault:?}");
        assert!(!process.is_crashed() && process.writes() > 3);
    }
}

#[tokio::test]
async fn a_node_has_other_work_by_its_name() {
    let (world, paid) = (World::new(), Arc::default());
    let whole = graph(&paid);
    let graph = whole.with_node("wait", async |_cx, s| Ok(s)).unwrap();
    let graph = graph.with_node("pay", async |_cx, mut s| {
        s.set("paid", "not really")?;
        Ok(s)
    });
    let graph = graph.unwrap();
    assert_eq!(graph.fingerprint(), whole.fingerprint());
    let process = world.process_with(|b| b.answerer(script())).await.unwrap();
    let run = process.start(&graph, Context::new()).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<String>("paid").unwrap().as_deref(), Some("not really"));
    assert_eq!((paid.load(Ordering::SeqCst), world.clock().monotonic() < DAY), (0, true));
    let error = whole.with_node("psy", async |_cx, s| Ok(s)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("did you mean `pay`?"), "{error}");
}

/// A wait of the test follows the clock of the world, so a busy machine cannot end it early.
#[tokio::test]
async fn a_node_has_the_clock_of_the_world() {
    let graph = Graph::<Context>::builder("patience")
        .node("wait", async |cx: NodeContext, mut s: Draft<Context>| {
            let begun = cx.clock().monotonic();
            cx.clock().sleep(DAY).await;
            s.set("days", (cx.clock().monotonic() - begun).as_secs() / DAY.as_secs())?;
            Ok(s)
        })
        .entry("wait")
        .build()
        .unwrap();
    let world = World::new();
    let process = world.process().await.unwrap();
    let run = process.start(&graph, Context::new()).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!((state.get::<u64>("days").unwrap(), world.clock().monotonic()), (Some(1), DAY));
}

#[tokio::test]
async fn a_history_is_the_same_each_time() {
    let mut stories = Vec::new();
    for _ in 0..2 {
        let (world, paid) = (World::new(), Arc::default());
        let process = world.process_with(|b| b.answerer(script())).await.unwrap();
        let run = process.start(&graph(&paid), Context::new()).id("r").await.unwrap();
        world.pass(run.completed()).await.unwrap();
        stories.push(process.story(run.run()).await.unwrap());
    }
    assert_eq!(stories[0], stories[1]);
    let lines: Vec<&str> = stories[0].lines().collect();
    assert!(lines.first().unwrap().contains("started at `wait`"), "{lines:?}");
    assert!(lines.last().unwrap().contains("the run is complete"), "{lines:?}");
}

#[tokio::test]
async fn saved_log_replays_against_current_graph() {
    let (world, paid) = (World::new(), Arc::default());
    let graph = graph(&paid);
    let process = world.process_with(|b| b.answerer(script())).await.unwrap();
    let run = process.start(&graph, Context::new()).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let log = process.export(run.run()).await.unwrap();
    assert_replays(&log, &graph).await;
    assert_eq!(paid.load(Ordering::SeqCst), 1, "no node must run");
    let other = Graph::<Context>::builder("pay")
        .node("wait", async |_cx, s| Ok(s))
        .node("pay", async |_cx, s| Ok(s))
        .entry("wait")
        .edge("wait", "pay")
        .build()
        .unwrap();
    let told = panic_of(assert_replays(&log, &other)).await;
    assert!(told.contains("diverges from the log"), "{told}");
}

/// Awaits a future that panics, and returns the panic message.
pub(crate) async fn panic_of<T>(future: impl Future<Output = T>) -> String {
    let mut future = Box::pin(future);
    let caught = std::future::poll_fn(|cx| {
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match polled {
            Ok(std::task::Poll::Pending) => std::task::Poll::Pending,
            Ok(std::task::Poll::Ready(_)) => std::task::Poll::Ready(None),
            Err(panic) => std::task::Poll::Ready(Some(panic)),
        }
    });
    let panic = caught.await.expect("it panics");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// A graph that asks, and waits for a message.
fn asks_and_hears() -> Graph<Context> {
    Graph::<Context>::builder("talk")
        .gate("approve", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("approved", yes))
        .node("hear", async |cx: NodeContext, mut s: Draft<Context>| {
            s.set("heard", cx.receive::<String>().await?)?;
            Ok(s)
        })
        .entry("approve")
        .edge("approve", "hear")
        .build()
        .unwrap()
}

/// A test that waits for a run that no process serves fails at once, with an explanation.
#[tokio::test]
async fn unserved_run_is_told_at_once() {
    let (world, graph) = (World::new(), asks_and_hears());
    let process = world.process().await.unwrap();
    let run = process.start(&graph, Context::new()).id("r").await.unwrap();
    let told = panic_of(async { drop(world.pass(run.completed()).await) }).await;
    assert!(
        told.contains("run `default/r` is interrupted: answer its question; no process serves `talk`"),
        "{told}"
    );
    assert!(world.clock().monotonic() < DAY / 2, "{:?}", world.clock().monotonic());
    // After the answer, only the other hint is left.
    process.respond(run.run(), "approve", Answer::accept(true).unwrap()).await.unwrap();
    let told = panic_of(async { drop(world.pass(run.completed()).await) }).await;
    assert!(
        told.contains("run `default/r` is in_progress: no process serves `talk`: call `process.serve"),
        "{told}"
    );
    process.serve(&graph).unwrap();
    let told = panic_of(async { drop(world.pass(run.completed()).await) }).await;
    assert!(told.contains("run `default/r` is awaiting_input: it waits for a message"), "{told}");
    process.send(run.run(), "hello").await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<String>("heard").unwrap().as_deref(), Some("hello"));
    assert!(world.clock().monotonic() < 2 * DAY, "{:?}", world.clock().monotonic());
}

/// A test may let time pass while runs wait: by the clock of the world, by that of a process, or within a long node.
#[tokio::test]
async fn waiting_test_is_no_standstill() {
    let (world, graph) = (World::new(), asks_and_hears());
    let process = world.process().await.unwrap();
    process.start(&graph, Context::new()).id("r").await.unwrap();
    world.pass_for(30 * DAY).await;
    world.pass(process.clock().sleep(30 * DAY)).await;
    let later = async {
        world.clock().sleep(DAY).await;
        process.respond(&RunKey::try_from("r").unwrap(), "approve", Answer::accept(true).unwrap()).await
    };
    world.pass(later).await.unwrap();
    assert!(world.clock().monotonic() >= 61 * DAY);
    let paid = Arc::default();
    let slow = process.start(&self::graph(&paid), Context::new()).id("slow").await.unwrap();
    let outcome = world.pass(slow.wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::Interrupted(_)), "{outcome}");
}

/// A runtime that the test builds itself may serve any run, so the world does not report a standstill.
#[tokio::test]
async fn foreign_runtime_is_no_standstill() {
    let (world, graph) = (World::new(), asks_and_hears());
    let process = world.process().await.unwrap();
    let builder = Runtime::builder(world.store().clone()).clock(Arc::clone(Runtime::clock(&process)));
    let foreign = builder.sweep_interval(DAY / 24).build().await.unwrap();
    assert!(world.store().executors().contains(&foreign.executor()));
    let run = process.start(&graph, Context::new()).await.unwrap();
    let told = panic_of(async { drop(world.pass(run.completed()).await) }).await;
    assert!(told.contains("is not ready after"), "{told}");
}

/// An hour of the world is exactly 3,600 s on its wall clock, so a tick at its end fires.
#[tokio::test]
async fn hours_of_the_world_are_whole() {
    let world = World::new();
    let process = world.process().await.unwrap();
    let _more = world.process().await.unwrap();
    process.serve(&asks_and_hears()).unwrap();
    let began = world.clock().now();
    for hour in 1..=30 {
        world.pass_for(Duration::from_secs(3_600)).await;
        assert_eq!(world.clock().now().since(began), hour * Duration::from_secs(3_600));
    }
    // An event is due exactly at the end of an hour of the wall clock.
    let graph = Graph::<Context>::builder("due")
        .node("due", async |cx: NodeContext, s: Draft<Context>| {
            cx.sleep(Duration::from_secs(3_600)).await?;
            Ok(s)
        })
        .entry("due")
        .build()
        .unwrap();
    let run = process.start(&graph, Context::new()).await.unwrap();
    world.pass_for(Duration::from_secs(3_600)).await;
    assert!(process.head(run.run()).await.unwrap().unwrap().status.is_finished());
}

#[tokio::test]
#[should_panic(expected = "is not ready after")]
async fn pass_panics_on_future_that_never_completes() {
    let world = World::new();
    let _process = world.process().await.unwrap();
    world.pass(std::future::pending::<()>()).await;
}

/// The deadline of a question of an idle run passes at once in the test world. The world does not poll the run for its end.
#[tokio::test]
async fn unanswered_question_expires_at_deadline_at_once() {
    let graph = Graph::<Context>::builder("ask")
        .gate(
            "approve",
            |_s: &Context| Ask::<bool>::new("Go on?").deadline(3 * DAY).or_default(false),
            |s, yes| s.set("approved", yes),
        )
        .entry("approve")
        .build()
        .unwrap();
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(&graph).unwrap();
    let run = process.start(&graph, Context::new()).await.unwrap();
    let done = world.pass(run.completed()).await.unwrap();
    assert_eq!(done.get::<bool>("approved").unwrap(), Some(false));
    assert!(world.clock().monotonic() >= 3 * DAY);
}
