//! Runs above the capacity of a process are recorded, wait in order, and are never lost.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::runtime::{Outcome, RunHandle, RunLimits};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, Page, RunFilter, RunQuery};
use ferrata_core::{ErrorKind, RunId, RunKey, TenantId};

use super::world::{self, Gate, World, key};

async fn start(
    runtime: &ferrata_core::runtime::Runtime,
    graph: &Graph<Context>,
    id: &str,
) -> RunHandle<Context> {
    runtime.start(graph, Context::new()).id(id).await.unwrap()
}

/// Guarantees: FLEET-12.
#[tokio::test]
async fn start_beyond_cap_waits_for_capacity() {
    let world = World::new();
    let (line, runtime) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    let first = start(&runtime, &graph, "first").await;
    let second = start(&runtime, &graph, "second").await;
    assert_eq!((first.is_queued(), second.is_queued(), second.is_driven_here()), (false, true, false));
    // The waiting run is recorded before its start is acknowledged, and it can be told apart from a started run.
    let (begun, queued) = (world_head(&world, &key("first")).await, world_head(&world, &key("second")).await);
    assert_eq!((begun.is_queued(), queued.is_queued()), (false, true));
    assert_eq!((queued.kind, queued.status, queued.owner), (RecordKind::Start, RunStatus::InProgress, None));
    // The same start returns the same run, and does not queue it twice.
    let again = start(&runtime, &graph, "second").await;
    gate.until_began(1).await;
    world.pass_for(Duration::from_secs(60)).await;
    assert_eq!(gate.began.load(Ordering::SeqCst), 1);

    line.take_calls();
    gate.word.notify_one();
    first.completed().await.unwrap();
    // A freed slot starts the next run at once, without a clock tick and without a listing.
    gate.until_began(2).await;
    assert_eq!(line.take_calls().get("runs"), None);
    assert!(second.is_driven_here() && !second.is_queued());
    assert_eq!(world_head(&world, &key("second")).await.epoch.get(), 1);
    gate.word.notify_one();
    assert!(matches!(second.wait().await.unwrap(), Outcome::Completed(_)));
    world.pass(again.completed()).await.unwrap();
}

async fn world_head(world: &World, run: &RunKey) -> ferrata_core::store::RunHead {
    world.store.head(run).await.unwrap().unwrap()
}

/// Guarantees: FLEET-13.
#[tokio::test]
async fn tenants_alternate_oldest_run_first() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&order);
    let graph = Graph::<Context>::builder("g")
        .node("note", move |cx: NodeContext, _s: Draft<Context>| {
            let noted = Arc::clone(&noted);
            async move {
                noted.lock().unwrap().push(cx.run().run.to_string());
                tokio::task::yield_now().await;
                Ok(())
            }
        })
        .entry("note")
        .build()
        .unwrap();
    let gate = Gate::default();
    let busy = start(&runtime, &gate.graph("busy", Effect::Write), "busy").await;
    let mut runs = Vec::new();
    // A tenant with many runs does not delay a tenant with few.
    for (tenant, id) in
        [("a", "a1"), ("a", "a2"), ("a", "a3"), ("a", "a4"), ("b", "b1"), ("c", "c1"), ("c", "c2")]
    {
        world.clock.advance(Duration::from_millis(1));
        runs.push(runtime.start(&graph, Context::new()).id(id).tenant(tenant).await.unwrap());
    }
    gate.word.notify_one();
    world.pass(busy.completed()).await.unwrap();
    for run in runs {
        world.pass(run.completed()).await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]);
}

#[tokio::test]
async fn workflow_and_label_caps_limit_own_runs_only() {
    let world = World::new();
    let caps = RunLimits::new().with_runs_of("slow", 1).with_runs_per_label("customer", 2);
    let (_, runtime) = world.process(|b| b.run_limits(caps)).await;
    let gate = Gate::default();
    let (slow, other) = (gate.graph("slow", Effect::Write), gate.graph("other", Effect::Write));
    let mut queued = Vec::new();
    for (number, (graph, customer)) in
        [(&slow, "x"), (&slow, "y"), (&other, "x"), (&other, "x"), (&other, "y")].into_iter().enumerate()
    {
        let run = runtime.start(graph, Context::new()).id(format!("r{number}")).label("customer", customer);
        queued.push(run.await.unwrap());
    }
    let waits: Vec<_> = queued.iter().map(RunHandle::is_queued).collect();
    assert_eq!(waits, [false, true, false, true, false]);
    for _ in 0..5 {
        gate.word.notify_one();
        tokio::task::yield_now().await;
        world.pass_for(Duration::from_millis(200)).await;
    }
    for run in queued {
        world.pass(run.completed()).await.unwrap();
    }
}

#[tokio::test]
async fn whoever_has_room_takes_what_waits_elsewhere() {
    let world = World::new();
    let (_, full) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    let (_, other) = world.process(|b| b).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    full.serve(&graph).unwrap();
    let first = start(&full, &graph, "first").await;
    let second = start(&full, &graph, "second").await;
    other.serve(&graph).unwrap();
    world.pass(gate.until_began(2)).await;
    assert_eq!(world_head(&world, &key("second")).await.owner, Some(other.executor()));
    gate.word.notify_one();
    gate.word.notify_one();
    gate.word.notify_waiters();
    world.pass(first.completed()).await.unwrap();
    gate.word.notify_one();
    world.pass(second.completed()).await.unwrap();
    assert_eq!(gate.began.load(Ordering::SeqCst), 2, "each run must run once");
}

/// A process with waiting runs dies. Another process finds the waiting runs in the store, and starts them in order.
///
/// Guarantees: FLEET-15.
#[tokio::test]
async fn recovery_restores_waiting_runs_within_caps() {
    let world = World::new();
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    let (line, dead) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    for id in ["r0", "r1", "r2", "r3"] {
        world.clock.advance(Duration::from_millis(5));
        start(&dead, &graph, id).await;
    }
    gate.until_began(1).await;
    line.set_down(true);
    line.set_heart(super::world::Heart::Fails);
    world.pass_for(Duration::from_secs(30)).await;
    let mut waiting = RunQuery::default();
    waiting.filter = RunFilter::Orphaned;
    assert_eq!(world.store.runs(&waiting, Page::first(10)).await.unwrap().items.len(), 4);
    let (_, next) = world.process(|b| b.run_limits(RunLimits::new().with_runs(2))).await;
    next.serve(&graph).unwrap();
    world.pass(gate.until_began(3)).await;
    world.pass_for(Duration::from_secs(10)).await;
    assert_eq!(gate.began.load(Ordering::SeqCst), 3, "two at once, plus the one in the dead process");
    for id in ["r0", "r1"] {
        assert_eq!(world_head(&world, &key(id)).await.owner, Some(next.executor()), "{id} is older");
    }
    for (ended, id) in ["r0", "r1", "r2", "r3"].into_iter().enumerate() {
        gate.word.notify_one();
        world
            .pass(async {
                while gate.ended.load(Ordering::SeqCst) <= u32::try_from(ended).unwrap() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        let watching = start(&next, &graph, id).await;
        drop(watching);
    }
    for id in ["r0", "r1", "r2", "r3"] {
        let run = start(&next, &graph, id).await;
        world.pass(run.completed()).await.unwrap();
    }
    assert_eq!(gate.began.load(Ordering::SeqCst), 5);
}

/// Guarantees: FLEET-14.
#[tokio::test]
async fn idle_run_frees_capacity_manual_resume_skips_caps() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    let asks = Graph::<Context>::builder("asks")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .entry("ok")
        .build()
        .unwrap();
    let rests = start(&runtime, &asks, "rests").await;
    assert!(matches!(rests.wait().await.unwrap(), Outcome::Interrupted(_)));
    let gate = Gate::default();
    let busy = start(&runtime, &gate.graph("g", Effect::Write), "busy").await;
    assert!(!busy.is_queued());
    runtime.respond(rests.run(), "ok", Answer::accept(true).unwrap()).await.unwrap();
    let resumed = runtime.resume(&asks, "rests").await.unwrap();
    assert!(resumed.is_driven_here());
    assert!(matches!(resumed.wait().await.unwrap(), Outcome::Completed(_)));
    gate.word.notify_one();
    busy.completed().await.unwrap();
}

#[tokio::test]
async fn waiting_run_can_be_cancelled() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    let busy = start(&runtime, &graph, "busy").await;
    let cancelled = start(&runtime, &graph, "cancelled").await;
    runtime.cancel(cancelled.run(), "not needed").await.unwrap();
    let silent = CheckpointPolicy::default().with_frequency(CheckpointFrequency::Disabled);
    let unrecorded = world::spawn({
        let (runtime, graph) = (runtime.clone(), graph.clone());
        async move { runtime.start(&graph, Context::new()).id("unrecorded").checkpoints(silent).await }
    });
    world.pass_for(Duration::from_secs(1)).await;
    assert!(!unrecorded.is_finished(), "the start is not acknowledged before a slot is free");
    gate.word.notify_one();
    busy.completed().await.unwrap();
    let unrecorded = world.pass(unrecorded).await.unwrap().unwrap();
    assert!(matches!(world.pass(cancelled.wait()).await.unwrap(), Outcome::Cancelled { .. }));
    gate.until_began(2).await;
    gate.word.notify_one();
    assert!(matches!(unrecorded.wait().await.unwrap(), Outcome::Completed(_)));
}

/// A repeated start of a waiting, unrecorded run gets an error that says that this process drives the run, and starts nothing.
///
/// Guarantees: DURABLE-16, FLEET-12.
#[tokio::test]
async fn repeated_unrecorded_start_waits_once() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b.run_limits(RunLimits::new().with_runs(1))).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    let busy = start(&runtime, &graph, "busy").await;
    let silent = CheckpointPolicy::default().with_frequency(CheckpointFrequency::Disabled);
    let unrecorded = || {
        let start = runtime.start(&graph, Context::new()).id("unrecorded").checkpoints(silent);
        world::spawn(start.into_future())
    };
    let (first, second) = (unrecorded(), unrecorded());
    world.pass_for(Duration::from_secs(1)).await;
    assert!(
        !first.is_finished() && !second.is_finished(),
        "neither start is acknowledged before a slot is free"
    );
    gate.word.notify_one();
    busy.completed().await.unwrap();
    let first = world.pass(first).await.unwrap().unwrap();
    // The result is the same as with two free slots.
    for second in [second, unrecorded()] {
        let told = world.pass(second).await.unwrap().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Unavailable, "{told}");
        assert!(told.to_string().contains("this process drives the run without a record"), "{told}");
    }
    gate.until_began(2).await;
    gate.word.notify_one();
    assert!(matches!(first.wait().await.unwrap(), Outcome::Completed(_)));
    world.pass_for(Duration::from_secs(10)).await;
    assert_eq!(gate.began.load(Ordering::SeqCst), 2, "the run must run once");
}

/// A concurrent second start must not repeat a run that has ended without a record, whether runs are limited or not.
///
/// Guarantees: DURABLE-16, FLEET-12.
#[tokio::test]
async fn repeated_unrecorded_start_runs_once() {
    for limits in [RunLimits::new().with_runs(1), RunLimits::new()] {
        let is_limited = limits != RunLimits::new();
        let world = World::new();
        let (_, runtime) = world.process(|b| b.run_limits(limits)).await;
        let gate = Gate::default();
        let busy = start(&runtime, &gate.graph("busy", Effect::Write), "busy").await;
        let count = Arc::new(AtomicU32::new(0));
        let runs = Arc::clone(&count);
        let graph = Graph::<Context>::builder("g")
            .node("count", move |_cx: NodeContext, _s: Draft<Context>| {
                runs.fetch_add(1, Ordering::SeqCst);
                std::future::ready(Ok(()))
            })
            .entry("count")
            .build()
            .unwrap();
        let silent = CheckpointPolicy::default().with_frequency(CheckpointFrequency::Disabled);
        let unrecorded = || {
            let start = runtime.start(&graph, Context::new()).id("unrecorded").checkpoints(silent);
            world::spawn(start.into_future())
        };
        let (first, second) = (unrecorded(), unrecorded());
        if is_limited {
            world.pass_for(Duration::from_secs(1)).await;
        }
        gate.word.notify_one();
        busy.completed().await.unwrap();
        let first = world.pass(first).await.unwrap().unwrap();
        assert!(matches!(world.pass(first.wait()).await.unwrap(), Outcome::Completed(_)));
        let told = world.pass(second).await.unwrap().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Unavailable, "{told}");
        world.pass_for(Duration::from_secs(10)).await;
        assert_eq!(count.load(Ordering::SeqCst), 1, "limited: {is_limited}");
    }
}

#[tokio::test]
async fn a_tenant_is_part_of_the_key() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b.run_limits(RunLimits::new().with_runs_per_tenant(1))).await;
    let gate = Gate::default();
    let graph = gate.graph("g", Effect::Write);
    let of = |tenant: &str| RunKey::new(TenantId::new(tenant).unwrap(), RunId::new("same").unwrap());
    let mut runs = Vec::new();
    for tenant in ["a", "b"] {
        let run = runtime.start(&graph, Context::new()).id("same").tenant(tenant).await.unwrap();
        assert!(!run.is_queued(), "{tenant}");
        runs.push(run);
    }
    let waits = runtime.start(&graph, Context::new()).id("other").tenant("a").await.unwrap();
    assert!(waits.is_queued());
    runtime.shutdown(Duration::ZERO).await.unwrap();
    assert!(matches!(waits.wait().await.unwrap(), Outcome::Released));
    assert!(world_head(&world, waits.run()).await.is_queued(), "other processes find the run unchanged");
    assert_eq!(world_head(&world, &of("b")).await.owner, None);
    let refused = runtime.start(&graph, Context::new()).id("late").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
}
