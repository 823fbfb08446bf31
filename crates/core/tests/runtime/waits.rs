//! Repeated waits on a handle, and the clock of a child's deadline.

use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{ChildError, Outcome};
use ferrata_core::state::{Context, Draft};

use super::family::*;
use super::world::World;

/// A second `wait` waits for the next event, and does not return the same answered question again.
///
/// Guarantees: CONTROL-18.
#[tokio::test]
async fn second_wait_tells_later_outcome() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, gate());
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    for _ in 0..2 {
        let Outcome::Interrupted(questions) = run.wait().await.unwrap() else { panic!("it asks") };
        assert_eq!(questions.len(), 1);
    }
    let again = run.clone();
    runtime.serve(&graph).unwrap();
    runtime.respond(&key("r"), "ok", Answer::accept(true).unwrap()).await.unwrap();
    until(&world, &key("r"), RunStatus::Completed).await;
    for handle in [&run, &again] {
        assert!(matches!(world.pass(handle.wait()).await.unwrap(), Outcome::Completed(_)));
    }
}

/// The same for a first `wait` that is called after the run continued.
///
/// Guarantees: CONTROL-18.
#[tokio::test]
async fn late_first_wait_tells_later_outcome() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, gate());
    runtime.serve(&graph).unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    until(&world, &key("r"), RunStatus::Interrupted).await;
    runtime.respond(&key("r"), "ok", Answer::accept(true).unwrap()).await.unwrap();
    until(&world, &key("r"), RunStatus::Completed).await;
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
}

/// The error of a driver that lost its run is returned once. After that, the handle watches the run in its new process.
///
/// Guarantees: CONTROL-18.
#[tokio::test]
async fn wait_after_fenced_watches_run() {
    let world = World::new();
    let (first, second) = (world.process().await, world.process().await);
    let graph = Graph::<Context>::builder("sleeps")
        .node("sleep", async |cx: NodeContext, s: Draft<Context>| {
            cx.sleep(Duration::from_secs(20)).await?;
            Ok(s)
        })
        .entry("sleep")
        .build()
        .unwrap();
    let run = first.start(&graph, Context::new()).id("r").await.unwrap();
    let there = second.resume(&graph, "r").take_over().await.unwrap();
    let fenced = world.pass(run.wait()).await.unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Fenced, "{fenced}");
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    drop(there);
}

/// A child's deadline follows the wall clock, also while its parent is in memory. So it expires at once after the machine slept for an hour.
///
/// Guarantees: CHILD-9.
#[tokio::test]
async fn child_deadline_follows_wall_clock() {
    let world = World::new();
    let (runtime, child) = (world.process().await, gate());
    let graph = Graph::<Context>::builder("parent")
        .node(
            "wait",
            using!(child; cx, s => {
                let error = cx.child(&child, with(1)).deadline(HOUR).await.unwrap_err();
                assert!(matches!(error, ChildError::Cancelled { .. }), "{error}");
                Ok(s)
            }),
        )
        .entry("wait")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let asks = async {
        while children_of(&world, "p").await.iter().all(|child| child.status != RunStatus::Interrupted) {
            tokio::task::yield_now().await;
        }
    };
    world.pass(asks).await;
    let before = ferrata_core::Clock::monotonic(&*world.clock);
    world.clock.set_now(ferrata_core::Clock::now(&*world.clock).plus(HOUR));
    assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Completed(_)));
    let took = ferrata_core::Clock::monotonic(&*world.clock) - before;
    assert!(took < Duration::from_secs(10), "{took:?}");
}
