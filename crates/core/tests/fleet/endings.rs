//! The end of a process by drain, shutdown or crash, and the events that watchers of its runs receive.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::Ask;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, RunLimits};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Clock, ErrorKind};

use super::world::{self, Gate, Heart, World, key};

fn nap(time: Duration) -> Graph<Context> {
    Graph::<Context>::builder("nap")
        .node("nap", move |cx: NodeContext, _s: Draft<Context>| async move {
            cx.sleep(time).await?;
            Ok(())
        })
        .entry("nap")
        .build()
        .unwrap()
}

/// Guarantees: FLEET-16.
#[tokio::test]
async fn drain_finishes_runs_and_releases_rest() {
    let world = World::new();
    let (_, old) = world.process(|b| b.run_limits(RunLimits::new().with_runs(3))).await;
    let gate = Gate::default();
    let (graph, nap) = (gate.graph("g", Effect::Write), nap(Duration::from_secs(30)));
    let asks = Graph::<Context>::builder("asks")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .entry("ok")
        .build()
        .unwrap();
    let asking = old.start(&asks, Context::new()).id("asks").await.unwrap();
    asking.wait().await.unwrap();
    let (work, more) = (
        old.start(&graph, Context::new()).id("work").await.unwrap(),
        old.start(&graph, Context::new()).id("more").await.unwrap(),
    );
    // Its timer expires soon, so the run stays in memory.
    let sleeper = old.start(&nap, Context::new()).id("sleeper").await.unwrap();
    let queued = old.start(&graph, Context::new()).id("queued").await.unwrap();
    assert!(queued.is_queued());
    gate.until_began(2).await;

    let draining = world::spawn({
        let old = old.clone();
        async move { old.drain().await }
    });
    assert!(matches!(world.pass(sleeper.wait()).await.unwrap(), Outcome::Sleeping { .. }));
    world.pass_for(Duration::from_secs(5)).await;
    assert!(!draining.is_finished(), "a drain must give nodes the time that they need");
    assert_eq!(old.start(&graph, Context::new()).id("new").await.unwrap_err().kind(), ErrorKind::Closed);
    gate.word.notify_one();
    gate.word.notify_waiters();
    world.pass_for(Duration::from_millis(50)).await;
    gate.word.notify_one();
    world.pass(draining).await.unwrap().unwrap();
    for run in [&work, &more] {
        assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));
    }
    for id in ["sleeper", "queued", "asks"] {
        assert_eq!(world.store.head(&key(id)).await.unwrap().unwrap().owner, None, "{id}");
    }
    let (_, new) = world.process(|b| b).await;
    new.serve(&graph).unwrap();
    new.serve(&nap).unwrap();
    gate.word.notify_one();
    for id in ["queued", "sleeper"] {
        let graph = if id == "queued" { &graph } else { &nap };
        let run = new.start(graph, Context::new()).id(id).await.unwrap();
        world.pass(run.completed()).await.unwrap();
    }
    assert_eq!(gate.began.load(Ordering::SeqCst), 3);
}

/// Guarantees: FLEET-16.
#[tokio::test]
async fn shutdown_cuts_slow_drain_short() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b).await;
    let gate = Gate::default();
    let run = runtime.start(&gate.graph("g", Effect::Write), Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    let draining = world::spawn({
        let runtime = runtime.clone();
        async move { runtime.drain().await }
    });
    world.pass_for(Duration::from_secs(1)).await;
    world.pass(runtime.shutdown(Duration::from_secs(3))).await.unwrap();
    world.pass(draining).await.unwrap().unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Released));
    assert_eq!(gate.dropped.load(Ordering::SeqCst), 1);
}

/// The end of the process interrupts the grace of a cancellation.
///
/// Guarantees: FLEET-18.
#[tokio::test]
async fn shutdown_skips_cancellation_grace_period() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b.cancel_grace(Duration::from_secs(600))).await;
    let gate = Gate::default();
    let run = runtime.start(&gate.graph("g", Effect::Write), Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    runtime.cancel(run.run(), "enough").await.unwrap();
    world.pass_for(Duration::from_secs(1)).await;
    let begun = world.clock.monotonic();
    world.pass(runtime.shutdown(Duration::from_secs(2))).await.unwrap();
    assert!(world.clock.monotonic() - begun < Duration::from_secs(4));
    assert!(matches!(run.wait().await.unwrap(), Outcome::Cancelled { .. }));
}

/// Guarantees: FLEET-11.
#[tokio::test]
async fn wait_reports_run_without_serving_process() {
    let world = World::new();
    let (line, owner) = world.process(|b| b).await;
    let (_, other) = world.process(|b| b).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    let run = owner.start(&graph, Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    let watching = other.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(!watching.is_driven_here());
    // The handle waits while the owner is alive.
    tokio::select! {
        biased;
        ended = watching.wait() => panic!("{ended:?}"),
        () = world.pass_for(Duration::from_secs(120)) => {}
    }
    line.set_heart(Heart::Fails);
    line.set_down(true);
    let begun = world.clock.monotonic();
    let error = world.pass(watching.completed()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(error.to_string().contains("no process drives the run"), "{error}");
    let took = world.clock.monotonic() - begun;
    assert!(took > Duration::from_secs(15) && took < Duration::from_secs(45), "{took:?}");
    drop(run);
    gate.word.notify_one();
    let resumed = other.resume(&graph, "r").await.unwrap();
    world.pass(resumed.completed()).await.unwrap();
}

/// A waiter gets an error if no process with the required tags exists, even if a process serves the workflow.
///
/// Guarantees: FLEET-11.
#[tokio::test]
async fn wait_reports_run_with_missing_tag() {
    let world = World::new();
    let (line, owner) = world.process(|b| b.tags(["gpu"])).await;
    let (_, other) = world.process(|b| b).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    owner.start(&graph, Context::new()).id("r").require_tags(["gpu"]).await.unwrap();
    gate.until_began(1).await;
    other.serve(&graph).unwrap();
    let watching = other.start(&graph, Context::new()).id("r").await.unwrap();
    line.set_heart(Heart::Fails);
    line.set_down(true);
    let begun = world.clock.monotonic();
    let error = world.pass(watching.wait()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(error.to_string().contains("gpu"), "{error}");
    let took = world.clock.monotonic() - begun;
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// Guarantees: FLEET-8.
#[tokio::test]
async fn unservable_run_stays_stalled_until_process_appears() {
    let world = World::new();
    let (line, owner) = world.process(|b| b).await;
    let (_, watcher) = world.process(|b| b).await;
    let count = Arc::new(AtomicU32::new(0));
    let gate = Gate::default();
    let graph = gate.graph("lonely", Effect::Write);
    let other = gate.graph("other", Effect::Write);
    watcher.serve(&other).unwrap();
    owner.start(&graph, Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    line.set_heart(Heart::Fails);
    line.set_down(true);
    world.pass_for(Duration::from_secs(20)).await;
    assert!(watcher.stalled().is_empty(), "another process may still claim the run");
    world.pass_for(Duration::from_secs(20)).await;
    let stalled = watcher.stalled();
    assert_eq!(stalled.len(), 1);
    assert_eq!(
        (&stalled[0].run, stalled[0].error.kind(), stalled[0].tries),
        (&key("r"), ErrorKind::Unsupported, 0)
    );
    assert!(
        stalled[0].error.to_string().contains("does not serve the workflow `lonely`"),
        "{}",
        stalled[0].error
    );
    gate.word.notify_one();
    let (_, server) = world.process(|b| b).await;
    server.serve(&graph).unwrap();
    let done = async {
        while server.head(&key("r")).await.unwrap().unwrap().status != RunStatus::Completed {
            tokio::task::yield_now().await;
        }
    };
    world.pass(done).await;
    world.pass_for(Duration::from_secs(5)).await;
    assert!(watcher.stalled().is_empty(), "the run must not be listed any more");
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

/// A driver whose store fails for too long stops and releases its run, although its process is alive, so that another process can claim it.
///
/// Guarantees: DURABLE-10.
#[tokio::test]
async fn run_continues_after_store_recovers() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b.store_retries(2, Duration::from_millis(10))).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    runtime.serve(&graph).unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    line.set_down(true);
    gate.word.notify_one();
    assert_eq!(world.pass(run.wait()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    world.pass_for(Duration::from_secs(300)).await;
    line.set_down(false);
    gate.word.notify_one();
    let again = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    world.pass(again.completed()).await.unwrap();
    assert_eq!(gate.began.load(Ordering::SeqCst), 2);
}

/// A watcher without the run's handle gets an error for a queued run that no living process would start, and does not wait forever.
///
/// Guarantees: FLEET-11.
#[tokio::test]
async fn wait_reports_waiting_run_without_starter() {
    let world = World::new();
    let (_, full) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    let busy = full.start(&graph, Context::new()).id("busy").await.unwrap();
    let queued = full.start(&graph, Context::new()).id("queued").await.unwrap();
    // The run waits in this process, which will have a free slot at some time.
    let again = full.start(&graph, Context::new()).id("queued").await.unwrap();
    let waiting = world::spawn(async move { again.wait().await });
    world.pass_for(Duration::from_secs(300)).await;
    assert!(queued.is_queued() && !waiting.is_finished());
    full.pause(queued.run(), "not now").await.unwrap();
    gate.until_began(1).await;
    gate.word.notify_one();
    world.pass(busy.completed()).await.unwrap();
    assert!(matches!(world.pass(queued.wait()).await.unwrap(), Outcome::Paused { .. }));
    assert!(matches!(world.pass(waiting).await.unwrap().unwrap(), Outcome::Paused { .. }));
    // After the unpause, the run does not wait for a slot here.
    full.unpause(queued.run()).await.unwrap();
    let begun = world.clock.monotonic();
    let error = world.pass(queued.wait()).await.unwrap_err();
    assert!(world.clock.monotonic() - begun < Duration::from_secs(120), "the wait must be bounded");
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("no process started the run"), "{error}");
    // As soon as a process serves the workflow, the handle waits for the run.
    full.serve(&graph).unwrap();
    gate.word.notify_one();
    world.pass(queued.completed()).await.unwrap();
}

#[tokio::test]
async fn failed_claim_of_waiting_run_ends_wait() {
    let world = World::new();
    let (_, full) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    let busy = full.start(&graph, Context::new()).id("busy").await.unwrap();
    let queued = full.start(&graph, Context::new()).id("queued").await.unwrap();
    assert!(world.store.tamper(queued.run(), |records| {
        let body = records[0].body.to_vec();
        records[0].body = body[..body.len() - 1].to_vec().into();
    }));
    gate.until_began(1).await;
    gate.word.notify_one();
    world.pass(busy.completed()).await.unwrap();
    assert_eq!(world.pass(queued.wait()).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// A heartbeat that is in flight when the process ends must not arrive after its end, so that the process does not count as alive.
#[tokio::test]
async fn no_heartbeat_arrives_after_the_end() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b).await;
    line.set_heart(Heart::IsLate);
    line.take_calls();
    while !line.take_calls().contains_key("heartbeat") {
        world.pass_for(Duration::from_millis(50)).await;
    }
    world.pass(runtime.shutdown(Duration::ZERO)).await.unwrap();
    world.pass_for(Duration::from_secs(60)).await;
    let beats = line.beats.lock().unwrap().clone();
    assert_eq!(beats.iter().map(Duration::is_zero).collect::<Vec<_>>(), [false, true], "{beats:?}");
}

/// A shutdown succeeds even if its pooled connection was broken by a restart of the server.
#[tokio::test]
async fn shutdown_survives_broken_idle_connection() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b).await;
    line.set_heart(Heart::StumblesOnce);
    world.pass(runtime.shutdown(Duration::ZERO)).await.unwrap();
    let (line, runtime) = world.process(|b| b).await;
    line.set_heart(Heart::Fails);
    assert_eq!(
        world.pass(runtime.shutdown(Duration::ZERO)).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
}

/// If the caller drops the drain, the process still ends, and other processes need not wait for its heartbeat to expire.
#[tokio::test]
async fn dropped_drain_ends_heartbeat() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b).await;
    let gate = Gate::default();
    let run = runtime.start(&gate.graph("g", Effect::Write), Context::new()).id("r").await.unwrap();
    gate.until_began(1).await;
    tokio::select! {
        biased;
        _ = runtime.drain() => panic!("a run is still active"),
        () = tokio::task::yield_now() => {}
    }
    line.set_heart(Heart::IsLate);
    gate.word.notify_one();
    world.pass(run.wait()).await.unwrap();
    world.pass_for(Duration::from_secs(30)).await;
    assert_eq!(line.beats.lock().unwrap().last(), Some(&Duration::ZERO));
}
