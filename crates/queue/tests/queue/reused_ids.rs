//! A run id that is purged and reused while messages about the earlier run are still arriving.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferrata_core::graph::Graph;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_queue::{Queue, QueuedRun, QueuedStart, RuntimeQueueExt, StartQueueExt};
use ferrata_testing::{Fault, Process, World};
use tokio::task::JoinSet;

use crate::no_notices::{Asked, Deaf};
use crate::support::{MOMENT, WHILE, Witness, empty, process, slow};

/// A process with delayed answers, and another one that serves nothing.
struct Two {
    world: World,
    witness: Witness,
    graph: Graph<Context>,
    slow: Runtime,
    asked: Arc<Asked>,
    beside: Process,
    mail: Queue,
}

impl Two {
    async fn new() -> Self {
        let (world, witness) = (World::new(), Witness::default());
        let graph = slow(&witness, WHILE);
        let beside = process(&world).await;
        let (slow, asked) = Deaf::process(&world, &beside).await;
        let mail = beside.queue("mail").at_once(1).declare().await.unwrap();
        Self { world, witness, graph, slow, asked, beside, mail }
    }

    fn start(&self, at: &Runtime, id: &str) -> QueuedStart<Context> {
        at.start(&self.graph, Context::new()).id(id).queue("mail")
    }

    async fn started(&self, at: &Runtime, id: &str) -> QueuedRun<Context> {
        self.world.pass(self.start(at, id)).await.unwrap()
    }

    async fn completes(&self, run: &QueuedRun<Context>) {
        let outcome = self.world.pass(run.wait()).await.unwrap();
        assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    }

    /// Purges the run from an operator's process without queues.
    async fn purge_again(&self) {
        let operator = Runtime::builder(self.world.store().clone()).operator();
        operator.purge(&"again".try_into().unwrap()).await.unwrap();
    }

    /// Lets the reply arrive while the next run with the id is active, and checks that this run keeps its slot.
    async fn late_in_the_next_start(&self, at: &Runtime) {
        self.purge_again().await;
        let again = self.started(at, "again").await;
        let next = self.started(at, "next").await;
        self.asked.late.arrives();
        self.is_alone(&again, &next).await;
    }

    /// Checks that the run with the id is active alone, and that each run gets its slot.
    async fn is_alone(&self, again: &QueuedRun<Context>, next: &QueuedRun<Context>) {
        self.world.pass_for(20 * MOMENT).await;
        assert!(next.is_waiting().await.unwrap(), "it got a slot next to {:?}", self.witness.came());
        for run in [again, next] {
            self.completes(run).await;
        }
        assert_eq!(self.witness.most(), 1);
        empty(&self.world, &self.mail).await;
    }
}

/// A start reports the end of its run to the queue after that run was purged and a new run got the slot. The report must not release the new run's
/// slot.
#[tokio::test]
async fn end_found_by_start_spares_next_runs_slot() {
    let two = Two::new().await;
    two.slow.serve(&two.graph).unwrap();
    two.completes(&two.started(&two.slow, "again").await).await;
    empty(&two.world, &two.mail).await;
    // The first reply is for the start itself.
    two.asked.late.is_nth(2);
    let mut finds = JoinSet::new();
    finds.spawn(two.start(&two.slow, "again").into_future());
    two.asked.late.is_given(&two.world).await;
    two.late_in_the_next_start(&two.slow).await;
}

/// The same for a run that ended while it waited: the next run must not wait on hold forever.
#[tokio::test]
async fn end_of_waiting_run_spares_next_waiter() {
    let two = Two::new().await;
    two.slow.serve(&two.graph).unwrap();
    let first = two.started(&two.slow, "first").await;
    let cancelled = two.started(&two.slow, "again").await;
    two.beside.cancel(cancelled.run(), "not needed").await.unwrap();
    two.asked.late.is_nth(2);
    let mut finds = JoinSet::new();
    finds.spawn(two.start(&two.slow, "again").into_future());
    two.asked.late.is_given(&two.world).await;
    two.purge_again().await;
    let again = two.started(&two.slow, "again").await;
    two.asked.late.arrives();
    two.world.pass_for(MOMENT).await;
    assert_eq!(two.mail.status().await.unwrap().waiting, 1);
    two.is_alone(&first, &again).await;
}

/// A grant comes for a run that was cancelled while it waited. Then it is purged, and a new run with its id is on hold with the slot. The queue must
/// unpause the new run.
#[tokio::test]
async fn grant_of_cancelled_waiter_reaches_next_run() {
    let two = Two::new().await;
    two.slow.serve(&two.graph).unwrap();
    let first = two.started(&two.slow, "first").await;
    let cancelled = two.started(&two.slow, "again").await;
    two.beside.cancel(cancelled.run(), "not needed").await.unwrap();
    // This is the reply about the head. Nothing else is read of an ended run.
    two.asked.late.is_nth(1);
    two.completes(&first).await;
    two.asked.late.is_given(&two.world).await;
    two.purge_again().await;
    let again = two.started(&two.beside, "again").await;
    two.asked.late.arrives();
    let next = two.started(&two.slow, "next").await;
    two.is_alone(&again, &next).await;
}

/// A process checks the holders and finds an ended run. By then the run is purged, and a new run has its slot, in the process that requested it.
#[tokio::test]
async fn holder_check_spares_slot_of_next_run() {
    let two = Two::new().await;
    // This process drives the run, and must not report that it has ended.
    let (worker, away) = Deaf::process(&two.world, &two.beside).await;
    worker.serve(&two.graph).unwrap();
    two.slow.queue("mail").find().await.unwrap();
    let first = two.started(&two.slow, "first").await;
    let before = two.started(&two.beside, "again").await;
    two.completes(&first).await;
    two.world.pass_for(30 * MOMENT).await;
    assert_eq!(two.witness.came(), ["first", "again"]);
    away.is_away.store(true, Ordering::Relaxed);
    two.asked.late.is_nth(1);
    two.completes(&before).await;
    // Another waiter, so that the holders are checked.
    let next = two.started(&two.beside, "next").await;
    two.asked.late.is_given(&two.world).await;
    two.purge_again().await;
    let again = two.started(&two.beside, "again").await;
    two.asked.late.arrives();
    two.world.pass_for(5 * MOMENT).await;
    away.is_away.store(false, Ordering::Relaxed);
    two.is_alone(&again, &next).await;
}

/// A run ends in a process that has not opened the queue. By the time that the process finds the queue, another run with the same id has the slot.
#[tokio::test]
async fn end_without_open_queue_spares_next_runs_slot() {
    let two = Two::new().await;
    two.slow.queue("other").declare().await.unwrap();
    two.slow.serve(&two.graph).unwrap();
    let first = two.started(&two.beside, "first").await;
    let before = two.started(&two.beside, "again").await;
    two.completes(&first).await;
    two.asked.late.is_nth(1);
    let mut waits = JoinSet::new();
    waits.spawn(async move { before.wait().await });
    two.asked.late.is_given(&two.world).await;
    two.late_in_the_next_start(&two.beside).await;
}

/// A process dies between a grant and the run's record, and another process repeats the start. After the end of that run, the slot is not reserved
/// for the first start for long.
#[tokio::test]
async fn start_of_dead_process_holds_slot_only_briefly() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, MOMENT);
    let (doomed, other) = (process(&world).await, process(&world).await);
    other.serve(&graph).unwrap();
    let mail = other.queue("mail").at_once(1).declare().await.unwrap();
    // The first write is that of the queue, and the second that of the run.
    doomed.fail_write(1, Fault::CrashBefore);
    let mut dies = JoinSet::new();
    dies.spawn(doomed.start(&graph, Context::new()).id("again").queue("mail").into_future());
    while !doomed.is_crashed() {
        world.pass_for(MOMENT / 10).await;
    }
    // No call of the process reaches the store any more.
    assert_eq!(mail.status().await.unwrap().held.len(), 1);
    let again = world.pass(other.start(&graph, Context::new()).id("again").queue("mail")).await.unwrap();
    let next = world.pass(other.start(&graph, Context::new()).id("next").queue("mail")).await.unwrap();
    world.pass(again.wait()).await.unwrap();
    let ended = other.clock().now();
    world.pass(next.wait()).await.unwrap();
    let waited = other.clock().now().since(ended);
    assert!(waited < 25 * MOMENT, "the start waited for {waited:?}");
    assert_eq!(witness.most(), 1);
    empty(&world, &mail).await;
}
