//! Slots of runs that were purged, refused or never recorded become free within seconds.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::runtime::{Outcome, Runtime, RuntimeBuilder};
use ferrata_core::state::Context;
use ferrata_core::{Clock as _, ErrorKind, RunKey};
use ferrata_queue::{Queue, QueuedRun, RuntimeQueueExt, StartQueueExt};
use ferrata_testing::{Fault, Process, World};
use tokio::task::JoinSet;

use crate::support::{MOMENT, WHILE, Witness, empty, set_up, slow};

/// Validity of a heartbeat, which also sets the poll interval.
const TTL: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(10);

/// A few polls: much less than the five minutes for which a queue waits for the run of a living process.
const SOON: Duration = Duration::from_secs(60);

/// The kind of process that purges the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purger {
    Here,
    Elsewhere,
    /// A process without queues.
    Operator,
}

async fn quick(world: &World, rest_after: Duration) -> Process {
    let set = |b: RuntimeBuilder| {
        b.heartbeat_ttl(TTL).sweep_interval(LOOK).poll_interval(LOOK).release_after(rest_after)
    };
    world.process_with(set).await.unwrap()
}

struct Mail {
    world: World,
    witness: Witness,
    graph: Graph<Context>,
    mail: Queue,
    holder: Process,
    other: Process,
}

impl Mail {
    /// Two processes. With `rests`, a run of the first one becomes idle as soon as it sleeps.
    async fn new(rests: bool) -> Self {
        let (world, witness) = (World::new(), Witness::default());
        let graph = slow(&witness, 50 * WHILE);
        let rest_after = if rests { MOMENT } else { 99 * WHILE };
        let (holder, other) = (quick(&world, rest_after).await, quick(&world, 99 * WHILE).await);
        let mail = holder.queue("mail").at_once(1).declare().await.unwrap();
        other.queue("mail").at_once(1).declare().await.unwrap();
        Self { world, witness, graph, mail, holder, other }
    }

    async fn start(&self, at: &Process, id: &str) -> QueuedRun<Context> {
        self.world.pass(at.start(&self.graph, Context::new()).id(id).queue("mail")).await.unwrap()
    }

    /// Waits until a run is active. Returns how long that took.
    async fn until_active(&self, id: &str) -> Duration {
        let begun = self.world.clock().monotonic();
        while !self.witness.came().iter().any(|came| came == id) {
            self.world.pass_for(MOMENT / 2).await;
            let waited = self.world.clock().monotonic() - begun;
            assert!(waited < 100 * WHILE, "{id} is not active: {:?}", self.mail.status().await.unwrap());
        }
        self.world.clock().monotonic() - begun
    }
}

async fn cancel_and_purge(at: &Runtime, run: &RunKey) {
    at.cancel(run, "not needed").await.unwrap();
    at.purge(run).await.unwrap();
}

/// A run holds a slot, active or idle. It is cancelled and purged at once, before its process or its queue gets a notice.
#[tokio::test]
async fn purged_run_frees_slot() {
    for rests in [false, true] {
        for purger in [Purger::Here, Purger::Elsewhere, Purger::Operator] {
            // A process cannot purge a run that it drives.
            if purger == Purger::Here && !rests {
                continue;
            }
            let mail = Mail::new(rests).await;
            mail.other.serve(&mail.graph).unwrap();
            let run = mail.start(&mail.holder, "run").await;
            mail.until_active("run").await;
            mail.start(&mail.other, "next").await;
            mail.world.pass_for(12 * MOMENT).await;
            let operator = Runtime::builder(mail.world.store().clone()).operator();
            match purger {
                Purger::Here => cancel_and_purge(&mail.holder, run.run()).await,
                Purger::Elsewhere => cancel_and_purge(&mail.other, run.run()).await,
                Purger::Operator => cancel_and_purge(&operator, run.run()).await,
            }
            let waited = mail.until_active("next").await;
            assert!(waited < SOON, "idle: {rests}, purged by {purger:?}: {waited:?}");
        }
    }
}

/// The process that started an idle run dies, and an operator purges the run. No other process needs to have seen the run.
#[tokio::test]
async fn purged_run_of_dead_process_frees_slot() {
    let mail = Mail::new(true).await;
    mail.other.serve(&mail.graph).unwrap();
    let run = mail.start(&mail.holder, "run").await;
    mail.until_active("run").await;
    mail.world.pass_for(2 * MOMENT).await;
    // No call of the process reaches the store any more, not even its heartbeat.
    mail.holder.fail_write(0, Fault::CrashBefore);
    let _ = mail.world.pass(mail.holder.cancel(run.run(), "too late")).await;
    assert!(mail.holder.is_crashed());
    let operator = Runtime::builder(mail.world.store().clone()).operator();
    cancel_and_purge(&operator, run.run()).await;
    mail.start(&mail.other, "next").await;
    let waited = mail.until_active("next").await;
    assert!(waited < TTL + SOON, "{waited:?}");
}

/// A process dies between the grant and the record of its start. Its slot is free when its heartbeat has expired, although no other process polls the
/// queue for long.
#[tokio::test]
async fn start_of_dead_process_frees_slot() {
    for lifetime in [TTL + SOON, 5 * LOOK] {
        let (world, witness) = (World::new(), Witness::default());
        let graph = slow(&witness, MOMENT);
        let (first, doomed) = (quick(&world, WHILE).await, quick(&world, WHILE).await);
        let mail = first.queue("mail").at_once(1).declare().await.unwrap();
        // The first write is that of the queue, and the second that of the run.
        doomed.fail_write(1, Fault::CrashBefore);
        let mut dies = JoinSet::new();
        dies.spawn(doomed.start(&graph, Context::new()).id("lost").queue("mail").into_future());
        while !doomed.is_crashed() {
            world.pass_for(MOMENT / 10).await;
        }
        assert_eq!(mail.status().await.unwrap().held.len(), 1);
        world.pass(first.start(&graph, Context::new()).id("next").queue("mail")).await.unwrap();
        world.pass(first.shutdown(Duration::ZERO)).await.unwrap();
        let begun = world.clock().monotonic();
        while witness.came().is_empty() {
            let watcher = quick(&world, WHILE).await;
            watcher.serve(&graph).unwrap();
            world.pass(watcher.queue("mail").at_once(1).declare()).await.unwrap();
            world.pass_for(lifetime).await;
            world.pass(watcher.shutdown(Duration::ZERO)).await.unwrap();
            let waited = world.clock().monotonic() - begun;
            assert!(waited < 2 * (TTL + SOON), "heartbeats are valid for {lifetime:?}: {waited:?}");
        }
        assert_eq!(witness.came(), ["next"]);
    }
}

/// A living process that records its run slowly keeps the slot.
#[tokio::test]
async fn slow_start_keeps_slot() {
    let mail = Mail::new(false).await;
    mail.other.serve(&mail.graph).unwrap();
    // The first write of the run and all its retries within this time fail.
    (1..6).for_each(|n| mail.holder.fail_write(n, Fault::Before));
    let mut starts = JoinSet::new();
    starts.spawn(mail.holder.start(&mail.graph, Context::new()).id("slow").queue("mail").into_future());
    mail.world.pass_for(Duration::from_secs(1)).await;
    mail.start(&mail.other, "next").await;
    mail.until_active("slow").await;
    mail.world.pass_for(3 * TTL).await;
    assert_eq!(mail.witness.came(), ["slow"]);
}

/// A start that replaced a debounced start is refused. The debounced start gets its slot as if nothing had replaced it.
#[tokio::test]
async fn refused_start_restores_debounced_one() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, MOMENT);
    let process = world.process_with(|b| set_up(b, WHILE).max_body(4_096)).await.unwrap();
    process.serve(&graph).unwrap();
    let index = process.queue("index").declare().await.unwrap();
    let save = |id: &str, input| {
        process
            .start(&graph, input)
            .id(id)
            .queue("index")
            .debounce("plan", 5 * MOMENT)
            .debounce_at_most(20 * MOMENT)
    };
    let begun = process.clock().now();
    let first = world.pass(save("first", Context::new())).await.unwrap();
    let good = world.pass(save("good", Context::new())).await.unwrap();
    for _ in 0..2 {
        let mut input = Context::new();
        input.set("text", "x".repeat(5_000)).unwrap();
        let refused = world.pass(save("large", input)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    }
    let outcome = world.pass(good.wait()).await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    assert!(process.clock().now().since(begun) < 30 * MOMENT, "{:?}", process.clock().now().since(begun));
    assert!(matches!(world.pass(first.wait()).await.unwrap(), Outcome::Cancelled { .. }));
    assert_eq!(witness.came(), ["good"]);
    empty(&world, &index).await;
}

/// While the store accepts no run, the caller gets an error, and the slot is released, because the start may never be repeated.
#[tokio::test]
async fn failed_start_frees_slot() {
    let mail = Mail::new(false).await;
    mail.other.serve(&mail.graph).unwrap();
    let set = |b: RuntimeBuilder| b.heartbeat_ttl(TTL).sweep_interval(LOOK).store_retries(1, LOOK);
    let impatient = mail.world.process_with(set).await.unwrap();
    impatient.fail_write(1, Fault::Before);
    let lost = impatient.start(&mail.graph, Context::new()).id("lost").queue("mail");
    let error = mail.world.pass(lost).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    mail.start(&mail.other, "next").await;
    let waited = mail.until_active("next").await;
    assert!(waited < SOON, "{waited:?}");
}
