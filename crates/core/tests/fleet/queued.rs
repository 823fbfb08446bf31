//! A handle of a run that waits for capacity receives the run's result, whichever process runs it. The queue survives releases.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, RunHandle, RunLimits, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{At, CheckpointStore};
use ferrata_core::{Clock as _, ErrorKind};

use super::world::{Gate, World, key};

/// A process at its capacity, with a run that waits for a slot.
struct Full {
    world: World,
    full: Runtime,
    other: Runtime,
    /// The gate of the active run, and the graph of the waiting run.
    busy: Gate,
    gate: Gate,
    graph: Graph<Context>,
    first: RunHandle<Context>,
    waiting: RunHandle<Context>,
}

impl Full {
    async fn new() -> Self {
        let world = World::new();
        let (_, full) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
        let (_, other) = world.process(|b| b).await;
        let (busy, gate) = (Gate::default(), Gate::default());
        let graph = gate.graph("g", Effect::Write);
        let first = full.start(&busy.graph("busy", Effect::Write), Context::new()).id("busy").await.unwrap();
        let waiting = full.start(&graph, Context::new()).id("q").await.unwrap();
        assert!(waiting.is_queued());
        gate.word.notify_one();
        Self { world, full, other, busy, gate, graph, first, waiting }
    }

    /// Waits for the result of the waiting run, for a few seconds at most.
    async fn heard(&self) -> Outcome<Context> {
        let begun = self.world.clock.monotonic();
        let outcome = self.world.pass(self.waiting.wait()).await.unwrap();
        let took = self.world.clock.monotonic() - begun;
        assert!(took < Duration::from_secs(5), "the result came after {took:?}");
        assert!(!self.waiting.is_queued(), "{outcome:?}");
        outcome
    }
}

/// The handle of a waiting run returns the result when another process ends or cancels the run.
///
/// Guarantees: FLEET-11.
#[tokio::test]
async fn handle_of_waiting_run_sees_remote_changes() {
    let at = Full::new().await;
    at.other.resume(&at.graph, "q").await.unwrap();
    assert!(matches!(at.heard().await, Outcome::Completed(_)));

    let at = Full::new().await;
    at.other.cancel(&key("q"), "not wanted any more").await.unwrap();
    assert!(matches!(at.heard().await, Outcome::Cancelled { .. }));

    // The run is resumed in the same process, beyond its limit.
    let at = Full::new().await;
    let resumed = at.full.resume(&at.graph, "q").await.unwrap();
    assert!(resumed.is_driven_here() && !at.waiting.is_queued());
    assert!(matches!(at.heard().await, Outcome::Completed(_)));
}

#[tokio::test]
async fn run_ended_elsewhere_leaves_admission_queue() {
    let at = Full::new().await;
    let run = at.other.resume(&at.graph, "q").await.unwrap();
    at.world.pass(run.completed()).await.unwrap();
    at.world.pass_for(Duration::from_secs(1)).await;
    assert!(!at.waiting.is_queued());
    // The handle returns the result although its process shuts down first.
    at.full.shutdown(Duration::ZERO).await.unwrap();
    assert!(matches!(at.waiting.wait().await.unwrap(), Outcome::Completed(_)));
}

/// Guarantees: FLEET-12.
#[tokio::test]
async fn every_handle_reports_waiting_run() {
    let at = Full::new().await;
    let again = at.full.start(&at.graph, Context::new()).id("q").await.unwrap();
    assert!(again.is_queued() && !again.is_driven_here());
    at.full.shutdown(Duration::ZERO).await.unwrap();
    assert!(matches!(at.waiting.wait().await.unwrap(), Outcome::Released));
    assert!(!again.is_queued() && !at.waiting.is_queued());
    let head = at.world.store.head(&key("q")).await.unwrap().unwrap();
    assert_eq!((head.status, head.owner), (RunStatus::InProgress, None), "another process may claim the run");
}

fn anew() -> Context {
    let mut input = Context::new();
    input.set("anew", true).unwrap();
    input
}

/// A handle of a waiting run, or of a run in another process, does not return the result of a later run with the same id.
#[tokio::test]
async fn handle_ignores_later_generation_of_run() {
    // The handle of a start that waits for a slot, and the handle of a repeated start.
    let at = Full::new().await;
    let again = at.full.start(&at.graph, Context::new()).id("q").await.unwrap();
    at.other.purge(&key("q")).await.unwrap();
    let next = at.other.start(&at.graph, anew()).id("q").await.unwrap();
    at.world.pass(next.completed()).await.unwrap();
    for handle in [&at.waiting, &again] {
        let told = at.world.pass(handle.completed()).await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::NotFound, "{told}");
    }

    // The new run waits for a slot, too.
    let at = Full::new().await;
    let busy = Gate::default();
    let (_, third) = at.world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    third.start(&busy.graph("busy", Effect::Write), Context::new()).id("more").await.unwrap();
    third.purge(&key("q")).await.unwrap();
    assert!(third.start(&at.graph, anew()).id("q").await.unwrap().is_queued());
    at.busy.word.notify_one();
    at.world.pass(at.gate.until_began(1)).await;
    assert!(!at.waiting.is_driven_here());
    let told = at.world.pass(at.waiting.wait()).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::NotFound, "{told}");

    // The handle of a run that another process drives.
    let at = Full::new().await;
    let graph = at.busy.graph("busy", Effect::Write);
    let found = at.other.start(&graph, Context::new()).id("busy").await.unwrap();
    assert!(!found.is_driven_here());
    at.other.purge(&key("busy")).await.unwrap();
    at.busy.word.notify_one();
    let next = at.other.start(&graph, anew()).id("busy").await.unwrap();
    at.busy.word.notify_one();
    at.world.pass(next.completed()).await.unwrap();
    let told = at.world.pass(found.completed()).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::NotFound, "{told}");

    // The handle of an existing fork that another process drives.
    let at = Full::new().await;
    let graph = at.busy.graph("busy", Effect::Write);
    at.busy.until_began(1).await;
    at.full.fork(&key("busy"), At::Latest).id("f").drive(&graph).await.unwrap();
    let found = at.other.fork(&key("busy"), At::Latest).id("f").drive(&graph).await.unwrap();
    assert!(!found.is_driven_here());
    at.busy.until_began(2).await;
    at.other.purge(&key("f")).await.unwrap();
    at.busy.word.notify_waiters();
    let next = at.other.start(&graph, anew()).id("f").await.unwrap();
    at.busy.until_began(3).await;
    at.busy.word.notify_one();
    at.world.pass(next.completed()).await.unwrap();
    let told = at.world.pass(found.completed()).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::NotFound, "{told}");
}

/// A waiting run starts even if all handles of the runtime are dropped.
///
/// Guarantees: FLEET-15.
#[tokio::test]
async fn waiting_run_starts_after_all_handles_drop() {
    let Full { world, full, busy, gate, first, waiting, .. } = Full::new().await;
    drop((full, first, waiting));
    busy.word.notify_one();
    world.pass(gate.until_began(1)).await;
    world.pass_for(Duration::from_secs(1)).await;
    let status = async |id| world.store.head(&key(id)).await.unwrap().unwrap().status;
    assert_eq!((status("busy").await, status("q").await), (RunStatus::Completed, RunStatus::Completed));
}

/// Guarantees: FLEET-11.
#[tokio::test]
async fn brief_read_failure_ends_no_wait() {
    let world = World::new();
    let (line, watcher) = world.process(|b| b).await;
    let (_, driver) = world.process(|b| b).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    driver.start(&graph, Context::new()).id("r").await.unwrap();
    let run = watcher.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(!run.is_driven_here());
    let fails = async {
        line.set_down(true);
        world.clock.sleep(Duration::from_secs(2)).await;
        line.set_down(false);
        gate.word.notify_one();
    };
    let (outcome, ()) = world.pass(async { tokio::join!(run.wait(), fails) }).await;
    assert!(matches!(outcome.unwrap(), Outcome::Completed(_)));
}
