//! A pause of a parent pauses the children that would be cancelled with it, at any depth, and no others. The unpause reaches them, too.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{OnParentEnd, Position, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{ErrorKind, RunKey};

use super::family::*;
use super::world::World;

const BY_PARENT: Option<&str> = Some("its parent default/p is paused");

async fn paused(runtime: &Runtime, run: &RunKey) -> Option<String> {
    runtime.checkpoint(run, Position::Latest).await.unwrap().paused
}

/// Waits until a run is paused or unpaused.
async fn until_paused(world: &World, runtime: &Runtime, run: &RunKey, wanted: bool) {
    let there = async {
        while paused(runtime, run).await.is_some() != wanted {
            tokio::task::yield_now().await;
        }
    };
    world.pass(there).await;
}

async fn yes(runtime: &Runtime, run: &RunKey) {
    runtime.respond(run, "ok", Answer::accept(true).unwrap()).await.unwrap();
}

/// Guarantees: CHILD-12.
#[tokio::test]
async fn pause_reaches_only_bound_descendants() {
    let world = World::new();
    let (runtime, child) = (world.process().await, gate());
    let middle = parent(&child, "yes");
    let graph = Graph::<Context>::builder("top")
        .node("start", using!(child, middle; cx, s => {
            cx.child(&child, with(1)).id("left").name("left").on_parent_end(OnParentEnd::Leave).start().await?;
            cx.spawn(&child, with(1)).id("alone").name("alone").await?;
            cx.child(&middle, with(1)).id("middle").await?;
            Ok(s)
        }))
        .entry("start")
        .build()
        .unwrap();
    served(&runtime, &[&graph, &middle, &child]);
    for asleep in [false, true] {
        let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
        until(&world, &key("left"), RunStatus::Interrupted).await;
        let reached = async {
            while children_of(&world, "middle").await.iter().all(|head| head.status != RunStatus::Interrupted)
            {
                tokio::task::yield_now().await;
            }
        };
        world.pass(reached).await;
        if asleep {
            until_asleep(&world, &key("p")).await;
            until_asleep(&world, &key("middle")).await;
        }
        runtime.pause(&key("p"), "lunch").await.unwrap();
        until(&world, &key("p"), RunStatus::Interrupted).await;
        assert_eq!(paused(&runtime, &key("p")).await.as_deref(), Some("lunch"));
        // The parent's reported status implies that its children know of the pause.
        assert_eq!(paused(&runtime, &key("middle")).await.as_deref(), BY_PARENT);
        until(&world, &key("middle"), RunStatus::Interrupted).await;
        let below = only_child_of(&world, "middle").await.run;
        assert_eq!(paused(&runtime, &below).await.as_deref(), Some("its parent default/middle is paused"));
        for other in ["left", "alone"] {
            assert_eq!(paused(&runtime, &key(other)).await, None, "{other}");
        }
        // An answer during the pause is recorded, and the run stays paused.
        yes(&runtime, &below).await;
        world.clock.advance(HOUR);
        until(&world, &below, RunStatus::Interrupted).await;
        runtime.unpause(&key("p")).await.unwrap();
        world.pass(run.completed()).await.unwrap();
        for run in [key("p"), key("middle"), below] {
            assert_eq!(status(&world, &run).await, RunStatus::Completed);
        }
        for run in ["left", "alone"] {
            runtime.cancel(&key(run), "done").await.unwrap();
        }
        for run in ["p", "middle", "left", "alone"] {
            world.store.purge(&key(run), None).await.unwrap();
        }
        for head in children_of(&world, "middle").await {
            world.store.purge(&head.run, None).await.unwrap();
        }
    }
}

/// Guarantees: CHILD-12.
#[tokio::test]
async fn separately_paused_child_stays_paused_with_parent_unpaused() {
    let world = World::new();
    let (runtime, child) = (world.process().await, gate());
    let graph = parent(&child, "yes");
    served(&runtime, &[&graph, &child]);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let below = only_child_of(&world, "p").await.run;
    runtime.pause(&below, "I look at it").await.unwrap();
    runtime.pause(&key("p"), "lunch").await.unwrap();
    until(&world, &key("p"), RunStatus::Interrupted).await;
    runtime.unpause(&key("p")).await.unwrap();
    yes(&runtime, &below).await;
    until_asleep(&world, &key("p")).await;
    assert_eq!(paused(&runtime, &below).await.as_deref(), Some("I look at it"));
    let twice = runtime.pause(&below, "again").await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::WrongStatus, "the child records one pause of its own");
    runtime.unpause(&below).await.unwrap();
    world.pass(run.completed()).await.unwrap();
}

/// Guarantees: CHILD-12.
#[tokio::test]
async fn child_pauses_separately_from_parent_pause() {
    let world = World::new();
    let (runtime, child) = (world.process().await, gate());
    let graph = parent(&child, "yes");
    served(&runtime, &[&graph, &child]);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let below = only_child_of(&world, "p").await.run;
    runtime.pause(&key("p"), "lunch").await.unwrap();
    until(&world, &key("p"), RunStatus::Interrupted).await;
    runtime.pause(&below, "I look at it").await.unwrap();
    runtime.unpause(&below).await.unwrap();
    assert_eq!(
        paused(&runtime, &below).await,
        None,
        "an unpause of the child lifts every pause of the child"
    );
    yes(&runtime, &below).await;
    until(&world, &below, RunStatus::Completed).await;
    assert_eq!(status(&world, &key("p")).await, RunStatus::Interrupted);
    runtime.unpause(&key("p")).await.unwrap();
    world.pass(run.completed()).await.unwrap();
}

/// A parent with a node that starts a child, and then waits for it. The test releases each of the two steps.
fn working(child: &Graph<Context>, go: &[Arc<AtomicBool>; 2]) -> Graph<Context> {
    let (child, [start, wait]) = (child.clone(), go.clone());
    Graph::<Context>::builder("working")
        .node(
            "wait",
            using!(child, start, wait; cx, s => {
                while !start.load(Ordering::SeqCst) {
                    tokio::task::yield_now().await;
                }
                let child = cx.child(&child, with(1)).start().await?;
                while !wait.load(Ordering::SeqCst) {
                    tokio::task::yield_now().await;
                }
                child.await?;
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap()
}

/// Guarantees: CHILD-12.
#[tokio::test]
async fn child_started_during_pause_follows_parent() {
    let world = World::new();
    let (runtime, child) = (world.process().await, gate());
    let go: [Arc<AtomicBool>; 2] = Default::default();
    let graph = working(&child, &go);
    served(&runtime, &[&graph, &child]);
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    runtime.pause(&key("p"), "lunch").await.unwrap();
    go[0].store(true, Ordering::SeqCst);
    let started = async {
        while children_of(&world, "p").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    world.pass(started).await;
    let below = only_child_of(&world, "p").await.run;
    for _ in 0..2 {
        until_paused(&world, &runtime, &below, true).await;
        assert_eq!(status(&world, &key("p")).await, RunStatus::InProgress, "the parent's node is running");
        runtime.unpause(&key("p")).await.unwrap();
        until_paused(&world, &runtime, &below, false).await;
        runtime.pause(&key("p"), "lunch").await.unwrap();
    }
    go[1].store(true, Ordering::SeqCst);
    until(&world, &key("p"), RunStatus::Interrupted).await;
    until(&world, &below, RunStatus::Interrupted).await;
    yes(&runtime, &below).await;
    runtime.unpause(&key("p")).await.unwrap();
    world.pass(run.completed()).await.unwrap();
}

/// A parent asks a person, next to a child that it does not wait for. It must become idle without a wake-up time.
///
/// Guarantees: CHILD-12.
#[tokio::test]
async fn parent_idle_on_question_pauses_and_cancels_children() {
    let world = World::new();
    let (runtime, child) = (world.process().await, gate());
    let graph = Graph::<Context>::builder("asking")
        .node(
            "ask",
            using!(child; cx, s => {
                cx.child(&child, with(1)).id("below").start().await?;
                let _yes: bool = cx.ask("go", "Go on?").await?;
                Ok(s)
            }),
        )
        .entry("ask")
        .build()
        .unwrap();
    served(&runtime, &[&graph, &child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until(&world, &key("p"), RunStatus::Interrupted).await;
    until(&world, &key("below"), RunStatus::Interrupted).await;
    runtime.pause(&key("p"), "lunch").await.unwrap();
    until_paused(&world, &runtime, &key("below"), true).await;
    until(&world, &key("p"), RunStatus::Interrupted).await;
    runtime.unpause(&key("p")).await.unwrap();
    until_paused(&world, &runtime, &key("below"), false).await;
    until(&world, &key("p"), RunStatus::Interrupted).await;
    runtime.cancel(&key("p"), "no need").await.unwrap();
    until(&world, &key("p"), RunStatus::Cancelled).await;
    assert_eq!(status(&world, &key("below")).await, RunStatus::Cancelled);
}

#[tokio::test]
async fn a_paused_family_is_cancelled_with_its_parent() {
    let world = World::new();
    let (runtime, child) = (world.process().await, gate());
    let graph = parent(&child, "yes");
    served(&runtime, &[&graph, &child]);
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    runtime.pause(&key("p"), "lunch").await.unwrap();
    until(&world, &key("p"), RunStatus::Interrupted).await;
    runtime.cancel(&key("p"), "no need").await.unwrap();
    until(&world, &key("p"), RunStatus::Cancelled).await;
    assert_eq!(only_child_of(&world, "p").await.status, RunStatus::Cancelled);
}
