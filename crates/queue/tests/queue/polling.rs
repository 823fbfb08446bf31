//! The times when a process polls a queue do not depend on the requests that it gets.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::Outcome;
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock, Timestamp};
use ferrata_queue::{NodeQueueExt, RuntimeQueueExt, StartQueueExt};
use ferrata_testing::World;
use tokio::task::JoinSet;

use crate::no_notices::Deaf;
use crate::support::{
    MOMENT, WHILE, Witness, empty, in_a_place, in_a_place_as, patient, process, set_up, slow,
};

/// A clock that counts its reads.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn Clock>,
    asked: AtomicU64,
}

impl Counting {
    fn asked(&self) -> &dyn Clock {
        self.asked.fetch_add(1, Ordering::Relaxed);
        &*self.inner
    }
}

impl Clock for Counting {
    fn now(&self) -> Timestamp {
        self.asked().now()
    }

    fn monotonic(&self) -> Duration {
        self.asked().monotonic()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.asked().sleep(duration)
    }
}

/// A waiter for a queued run must not poll the queue in response to its own polls.
#[tokio::test]
async fn waiting_handle_polls_queue_only_after_changes() {
    let (world, witness) = (World::new(), Witness::default());
    let beside = process(&world).await;
    let clock = Arc::new(Counting { inner: Arc::clone(beside.clock()), asked: AtomicU64::new(0) });
    let process = world.process_with(|b| set_up(b, WHILE).clock(Arc::clone(&clock) as _)).await.unwrap();
    let graph = slow(&witness, 30 * MOMENT);
    process.serve(&graph).unwrap();
    let mail = process.queue("mail").at_once(1).declare().await.unwrap();
    let mut waits = JoinSet::new();
    for n in 0..3 {
        let start = process.start(&graph, Context::new()).id(format!("{n}")).queue("mail");
        let run = world.pass(start).await.unwrap();
        waits.spawn(async move { run.wait().await });
    }
    world.pass_for(MOMENT).await;
    let before = clock.asked.load(Ordering::Relaxed);
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
    let asked = clock.asked.load(Ordering::Relaxed) - before;
    assert!(asked < 20, "the clock was read {asked} times while it stood still");
    while let Some(ended) = world.pass(waits.join_next()).await {
        assert!(matches!(ended.unwrap().unwrap(), Outcome::Completed(_)));
    }
    empty(&world, &mail).await;
}

/// Requests must not delay the next poll: without notices, polling is the only way to see other processes' changes.
#[tokio::test]
async fn constant_requests_do_not_suppress_polling() {
    let (world, witness) = (World::new(), Witness::default());
    let beside = process(&world).await;
    let (deaf, _) = Deaf::process(&world, &beside).await;
    let graph = slow(&witness, 35 * MOMENT);
    beside.serve(&graph).unwrap();
    let mail = beside.queue("mail").at_once(1).declare().await.unwrap();
    let first = world.pass(beside.start(&graph, Context::new()).id("first").queue("mail")).await.unwrap();
    let second = world.pass(deaf.start(&graph, Context::new()).id("second").queue("mail")).await.unwrap();
    world.pass(first.wait()).await.unwrap();
    let mut asked = 0;
    while world.pass(second.is_waiting()).await.unwrap() {
        asked += 1;
        assert!(asked < 30, "the run has started, and this process has not polled");
        world.pass_for(MOMENT).await;
    }
    world.pass(second.wait()).await.unwrap();
    assert_eq!(witness.came(), ["first", "second"]);
    empty(&world, &mail).await;
}

/// A process finds a dead holder of another process even if its own nodes request and release slots all the time.
#[tokio::test]
async fn dead_holder_is_found_under_constant_requests() {
    let (world, witness) = (World::new(), Witness::default());
    let (doomed, beside) = (patient(&world, 60 * WHILE).await, process(&world).await);
    let (deaf, _) = Deaf::process(&world, &beside).await;
    let graph = in_a_place(&witness, MOMENT);
    deaf.serve(&graph).unwrap();
    let gpu = deaf.queue("gpu").at_once(2).at_once_per_key(1).declare().await.unwrap();
    let mut input = Context::new();
    input.set("key", "one").unwrap();
    let lost = in_a_place_as("served_nowhere", &witness, 50 * WHILE);
    drop(world.pass(doomed.start(&lost, input.clone()).id("lost")).await.unwrap());
    world.pass_for(MOMENT).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let steady = move |cx: NodeContext, s: Draft<Context>| {
        let until = Arc::clone(&until);
        async move {
            while !until.load(Ordering::Relaxed) {
                cx.acquire("gpu", 1).key("another").await?.release().await?;
                // For less than the poll interval.
                cx.sleep(MOMENT).await?;
            }
            Ok::<_, NodeError>(s)
        }
    };
    let steady = Graph::<Context>::builder("steady").node("work", steady).entry("work").build().unwrap();
    let steady = world.pass(deaf.start(&steady, Context::new()).id("steady")).await.unwrap();
    let next = world.pass(deaf.start(&graph, input).id("next")).await.unwrap();
    world.pass_for(MOMENT).await;
    assert_eq!(witness.came(), ["lost"]);
    doomed.crash().await;
    world.pass_for(WHILE).await;
    assert_eq!(witness.came(), ["lost", "next"]);
    is_over.store(true, Ordering::Relaxed);
    world.pass(next.completed()).await.unwrap();
    world.pass(steady.completed()).await.unwrap();
    empty(&world, &gpu).await;
}

/// Any service can use the label `queue` for its own purposes, without this crate.
#[tokio::test]
async fn foreign_queue_label_costs_nothing_after_run_end() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, Duration::ZERO);
    let beside = process(&world).await;
    let (idle, asked) = Deaf::process(&world, &beside).await;
    idle.serve(&graph).unwrap();
    let mail = idle.queue("mail").at_once(1).declare().await.unwrap();
    let mut read = Vec::new();
    for many in [0, 50] {
        for n in 0..many {
            let run = idle.start(&graph, Context::new()).label("queue", format!("of-their-own-{n}"));
            world.pass(world.pass(run).await.unwrap().completed()).await.unwrap();
        }
        world.pass_for(WHILE).await;
        let before = asked.reads.load(Ordering::Relaxed);
        world.pass_for(60 * 10 * MOMENT).await;
        read.push(asked.reads.load(Ordering::Relaxed) - before);
    }
    assert!(read[1].abs_diff(read[0]) < 10, "{read:?} reads in 60 polls");
    empty(&world, &mail).await;
}

/// A process that serves the workflow and has declared only another queue still releases the slots of runs that end in it.
#[tokio::test]
async fn run_ending_without_declared_queue_frees_slot() {
    let (world, witness) = (World::new(), Witness::default());
    let graph = slow(&witness, WHILE);
    let (starter, worker) = (patient(&world, 10 * WHILE).await, patient(&world, 10 * WHILE).await);
    worker.serve(&graph).unwrap();
    worker.queue("other").declare().await.unwrap();
    let mail = starter.queue("mail").at_once(1).declare().await.unwrap();
    for id in ["a", "b", "c"] {
        world.pass(starter.start(&graph, Context::new()).id(id).queue("mail")).await.unwrap();
    }
    let second = async || starter.head(&"b".try_into().unwrap()).await.unwrap().unwrap();
    while second().await.owner.is_none() {
        world.pass_for(MOMENT).await;
    }
    assert_eq!(second().await.owner, Some(worker.executor()));
    while !second().await.status.is_finished() {
        world.pass_for(MOMENT / 10).await;
    }
    world.pass_for(MOMENT / 10).await;
    assert_eq!(mail.status().await.unwrap().held[0].run.run.as_str(), "c");
    empty(&world, &mail).await;
}
