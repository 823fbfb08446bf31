//! Parents that end before their children, by a cancellation or a deadline: every child is notified, for any number of children and after any crash.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture as _;
use std::time::Duration;

use ferrata_core::ask::Ask;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::record::{FailureKind, RunStatus};
use ferrata_core::runtime::{Outcome, Runtime, RuntimeBuilder};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, Page, RunHead, RunQuery};
use ferrata_testing::{Fault, FaultPlan, FaultStore};

use super::world::{Gate, World, key};

/// A child that asks, and so is idle without a wake-up time.
fn asking() -> Graph<Context> {
    Graph::<Context>::builder("asks")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .entry("ok")
        .build()
        .unwrap()
}

/// A parent that waits for `children` children.
fn parent(child: &Graph<Context>, children: usize, deadline: Option<Duration>) -> Graph<Context> {
    let child = child.clone();
    let graph = Graph::<Context>::builder("parent")
        .node("wait", move |cx: NodeContext, _s: Draft<Context>| {
            let child = child.clone();
            async move {
                let inputs = (0..children).map(|_| Context::new());
                cx.children(&child, inputs).max_running(children).await?;
                Ok(())
            }
        })
        .entry("wait");
    match deadline {
        Some(deadline) => graph.deadline(deadline).build().unwrap(),
        None => graph.build().unwrap(),
    }
}

async fn children(world: &World) -> Vec<RunHead> {
    let mut query = RunQuery::default();
    query.labels.push(("ferrata.parent".to_owned(), "p".to_owned()));
    let mut all = Vec::new();
    let mut page = Page::first(1_000);
    loop {
        let listed = world.store.runs(&query, page).await.unwrap();
        all.extend(listed.items);
        match listed.next {
            Some(next) => {
                page = Page::first(1_000);
                page.cursor = Some(next);
            }
            None => return all,
        }
    }
}

/// Waits until `count` children have this status.
async fn until_all(world: &World, count: usize, status: RunStatus) {
    let there = async {
        loop {
            let all = children(world).await;
            if all.len() == count && all.iter().all(|child| child.status == status) {
                return;
            }
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
    };
    world.pass(there).await;
}

async fn status(world: &World) -> RunStatus {
    world.store.head(&key("p")).await.unwrap().unwrap().status
}

async fn until(world: &World, wanted: RunStatus) {
    let there = async {
        while status(world).await != wanted {
            tokio::task::yield_now().await;
        }
    };
    world.pass(there).await;
}

fn impatient(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.cancel_grace(Duration::ZERO)
}

fn serve(runtime: &Runtime, graphs: &[&Graph<Context>]) {
    graphs.iter().for_each(|graph| runtime.serve(graph).unwrap());
}

/// A cancelled parent cancels each of its 4,000 children. The grace limits how long it waits for their ends, and not which children it notifies.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn cancel_reaches_thousands_of_children() {
    const CHILDREN: usize = 2_000;
    for asleep in [false, true] {
        let world = World::new();
        let (_, runtime) = world.process(impatient).await;
        let child = asking();
        let graph = parent(&child, CHILDREN, None);
        serve(&runtime, &[&graph, &child]);
        runtime.start(&graph, Context::new()).id("p").await.unwrap();
        until_all(&world, CHILDREN, RunStatus::Interrupted).await;
        if asleep {
            world.pass_for(Duration::from_secs(120)).await;
            assert_eq!(world.store.head(&key("p")).await.unwrap().unwrap().owner, None);
        }
        runtime.cancel(&key("p"), "enough").await.unwrap();
        until(&world, RunStatus::Cancelled).await;
        let left = children(&world).await.iter().filter(|child| child.status != RunStatus::Cancelled).count();
        assert_eq!(left, 0, "idle: {asleep}: the children must be active when their parent is cancelled");
    }
}

/// A process that dies while it cancels the children leaves the rest to the next process. The parent becomes `Cancelled` only after each child was
/// cancelled.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn cancel_survives_crash_of_parent() {
    const CHILDREN: usize = 6;
    for write in 0..14 {
        let world = World::new();
        let child = asking();
        let graph = parent(&child, CHILDREN, None);
        let store = std::sync::Arc::new(FaultStore::new(world.store.clone(), FaultPlan::new()));
        let first = Runtime::builder_with(std::sync::Arc::clone(&store) as _)
            .clock(std::sync::Arc::clone(&world.clock) as _)
            .cancel_grace(Duration::ZERO);
        let first = first.build().await.unwrap();
        serve(&first, &[&graph, &child]);
        first.start(&graph, Context::new()).id("p").await.unwrap();
        until_all(&world, CHILDREN, RunStatus::Interrupted).await;
        store.plan(store.operations() + write, Fault::CrashAfter);
        let told = world.pass(first.cancel(&key("p"), "enough").into_future()).await;
        world.pass_for(Duration::from_secs(2)).await;
        if status(&world).await == RunStatus::Cancelled {
            let all = children(&world).await;
            assert!(all.iter().all(|child| child.status == RunStatus::Cancelled), "write {write}: {all:?}");
        }
        store.crash();
        world.pass_for(Duration::from_secs(20)).await;
        let (_, second) = world.process(impatient).await;
        serve(&second, &[&graph, &child]);
        if told.is_err() {
            // The call may fail, and the log shows whether the cancellation is recorded.
            drop(second.cancel(&key("p"), "enough").await);
        }
        until(&world, RunStatus::Cancelled).await;
        until_all(&world, CHILDREN, RunStatus::Cancelled).await;
    }
}

/// A child that is active in another process gets its cancellation through its log.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn cancel_reaches_children_elsewhere() {
    const CHILDREN: usize = 20;
    let world = World::new();
    let ((_, here), (_, there)) = (world.process(impatient).await, world.process(|b| b).await);
    let kid = Gate::default();
    let child = kid.graph("kid", Effect::Pure);
    let graph = parent(&child, CHILDREN, None);
    here.start(&graph, Context::new()).id("p").await.unwrap();
    kid.until_began(20).await;
    for child_run in children(&world).await {
        there.resume(&child, child_run.run).take_over().await.unwrap();
    }
    kid.until_began(40).await;
    here.cancel(&key("p"), "enough").await.unwrap();
    until(&world, RunStatus::Cancelled).await;
    until_all(&world, CHILDREN, RunStatus::Cancelled).await;
}

/// A runtime that shuts down while it cancels the children releases the parent, and the next process completes the cancellation.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn cancel_survives_shutdown_of_parent() {
    const CHILDREN: usize = 50;
    let world = World::new();
    let (line, first) = world.process(impatient).await;
    let child = asking();
    let graph = parent(&child, CHILDREN, None);
    serve(&first, &[&graph, &child]);
    first.start(&graph, Context::new()).id("p").await.unwrap();
    until_all(&world, CHILDREN, RunStatus::Interrupted).await;
    // The slow store delays the cancellations, so the shutdown comes in between.
    line.set_heads_take(Duration::from_secs(5));
    first.cancel(&key("p"), "enough").await.unwrap();
    world.pass(first.shutdown(Duration::ZERO)).await.unwrap();
    let (_, second) = world.process(impatient).await;
    serve(&second, &[&graph, &child]);
    until(&world, RunStatus::Cancelled).await;
    until_all(&world, CHILDREN, RunStatus::Cancelled).await;
}

/// A slow store delays the owner's cancellations beyond its grace. The owner waits for the store, and does not end the parent early.
#[tokio::test]
async fn slow_store_delays_cancel() {
    let world = World::new();
    let (line, runtime) = world.process(impatient).await;
    let child = asking();
    let graph = parent(&child, 5, None);
    serve(&runtime, &[&graph, &child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_all(&world, 5, RunStatus::Interrupted).await;
    line.set_heads_take(Duration::from_secs(3));
    world.pass(runtime.cancel(&key("p"), "enough").into_future()).await.unwrap();
    until(&world, RunStatus::Cancelled).await;
    until_all(&world, 5, RunStatus::Cancelled).await;
}

/// A child becomes idle after its parent has ended. No process claims it, because it waits for an answer, but it is still found and cancelled.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn idle_child_of_ended_parent_is_cancelled() {
    let world = World::new();
    let (_, runtime) = world.process(|b| b).await;
    let child = asking();
    let graph = parent(&child, 3, None);
    serve(&runtime, &[&child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_all(&world, 3, RunStatus::Interrupted).await;
    world.pass_for(Duration::from_secs(120)).await;
    // Purge the parent, as if a suspended process had started the children late, and had died before it checked their parent.
    world.store.purge(&key("p"), None).await.unwrap();
    until_all(&world, 3, RunStatus::Cancelled).await;
}

/// A parent that fails by its own deadline cancels its children, because a retry would fail at once.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn deadline_of_parent_ends_children() {
    for (working, asleep) in [(false, false), (false, true), (true, false)] {
        let world = World::new();
        let (_, runtime) = world.process(|b| b).await;
        let kid = Gate::default();
        let child = if working { kid.graph("kid", Effect::Pure) } else { asking() };
        let wait = if asleep { 600 } else { 30 };
        let graph = parent(&child, 3, Some(Duration::from_secs(wait)));
        serve(&runtime, &[&graph, &child]);
        let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
        if asleep {
            world.pass_for(Duration::from_secs(120)).await;
            assert_eq!(world.store.head(&key("p")).await.unwrap().unwrap().owner, None);
        }
        until(&world, RunStatus::Failed).await;
        let all = children(&world).await;
        let ended = all.iter().filter(|child| child.status == RunStatus::Cancelled).count();
        assert_eq!(ended, 3, "active: {working}, idle: {asleep}: {all:?}");
        if !asleep {
            let Outcome::Failed { failure, .. } = world.pass(run.wait()).await.unwrap() else { panic!() };
            assert_eq!(failure.kind, FailureKind::Deadline);
        }
    }
}

/// A process that dies between the deadline and the failure leaves both to the next process.
///
/// Guarantees: CHILD-10.
#[tokio::test]
async fn deadline_survives_crash_of_parent() {
    for write in 0..8 {
        let world = World::new();
        let child = asking();
        let graph = parent(&child, 3, Some(Duration::from_secs(30)));
        let store = std::sync::Arc::new(FaultStore::new(world.store.clone(), FaultPlan::new()));
        let first = Runtime::builder_with(std::sync::Arc::clone(&store) as _)
            .clock(std::sync::Arc::clone(&world.clock) as _)
            .build()
            .await
            .unwrap();
        serve(&first, &[&graph, &child]);
        first.start(&graph, Context::new()).id("p").await.unwrap();
        until_all(&world, 3, RunStatus::Interrupted).await;
        world.pass_for(Duration::from_secs(28)).await;
        store.plan(store.operations() + write, Fault::CrashAfter);
        world.pass_for(Duration::from_secs(10)).await;
        store.crash();
        world.pass_for(Duration::from_secs(20)).await;
        let (_, second) = world.process(|b| b).await;
        serve(&second, &[&graph, &child]);
        until(&world, RunStatus::Failed).await;
        until_all(&world, 3, RunStatus::Cancelled).await;
    }
}
