//! The delay until an idle parent is notified of the end of its child.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::{Clock, RunKey};

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Position, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, MemoryStore, Page, RunQuery};
use ferrata_testing::{FaultPlan, FaultStore};
use tokio::task::JoinSet;

use super::family::*;
use super::world::World;

/// Shorter than the interval at which an idle parent polls its children.
const SOON: Duration = Duration::from_secs(4);

/// The time of the child's end: before or after a store operation of the process that drives the parent.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Before(u64),
    After(u64),
}

/// A parent that becomes idle as soon as it waits, in a process whose store operations the test can delay.
async fn resting(world: &World) -> (Arc<FaultStore<MemoryStore>>, Runtime, Graph<Context>) {
    let store = Arc::new(FaultStore::new(world.store.clone(), FaultPlan::new()));
    let runtime = Runtime::builder_with(Arc::clone(&store) as _)
        .clock(Arc::clone(&world.clock) as _)
        .release_after(Duration::ZERO)
        .build()
        .await
        .unwrap();
    let graph = parent(&gate(), "yes");
    served(&runtime, &[&graph, &gate()]);
    (store, runtime, graph)
}

async fn child_of(store: &MemoryStore) -> Option<(RunKey, RunStatus)> {
    let mut query = RunQuery::default();
    query.labels.push(("ferrata.parent".to_owned(), "p".to_owned()));
    let mut found = store.runs(&query, Page::first(2)).await.unwrap().items;
    found.pop().map(|head| (head.run, head.status))
}

/// Answers the child's question once it is asked. Waits until the child's driver has had time to notify the parent.
async fn end_child(store: MemoryStore, by: Runtime) {
    loop {
        if let Some((child, _)) = child_of(&store).await
            && by.respond(&child, "ok", Answer::accept(true).unwrap()).await.is_ok()
        {
            break;
        }
        tokio::task::yield_now().await;
    }
    while child_of(&store).await.is_some_and(|(_, status)| status != RunStatus::Completed) {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Returns how long the parent takes if the child ends at this moment.
async fn time_to_hear(moment: Moment, elsewhere: bool) -> Duration {
    let world = World::new();
    let (store, runtime, graph) = resting(&world).await;
    let other = world.process().await;
    served(&other, &[&gate()]);
    let by = if elsewhere { other } else { runtime.clone() };
    let inner = world.store.clone();
    let hook = async move {
        let mut ending = JoinSet::new();
        ending.spawn(end_child(inner, by));
        for _ in 0..400 {
            if ending.try_join_next().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        // If the operation itself blocks the child's end, the child ends after the operation.
        ending.detach_all();
    };
    match moment {
        Moment::Before(operation) => store.before(operation, hook),
        Moment::After(operation) => store.after(operation, hook),
    }
    let run = runtime.start(&graph, Context::new()).id("p").await.unwrap();
    let began = world.clock.monotonic();
    let mut done = std::pin::pin!(run.completed());
    for turn in 1..=1_000_000 {
        tokio::select! {
            biased;
            state = &mut done => {
                assert_eq!(state.unwrap().get::<bool>("got").unwrap(), Some(true));
                break;
            }
            () = tokio::task::yield_now() => {
                // Advance the clock slowly, so that only waits for time take time.
                if turn % 200 == 0 {
                    world.clock.advance(Duration::from_millis(50));
                }
            }
        }
    }
    world.clock.monotonic() - began
}

/// A child ends while its parent becomes idle. The parent still gets the result at once, and not at its next poll.
///
/// Guarantees: CHILD-2.
#[tokio::test]
async fn child_end_wakes_parent_that_is_going_idle() {
    let world = World::new();
    let (store, runtime, graph) = resting(&world).await;
    runtime.start(&graph, Context::new()).id("p").await.unwrap();
    until_asleep(&world, &key("p")).await;
    let operations = store.operations();
    assert!(
        operations >= 5,
        "both runs start, the child asks, the parent notes it and becomes idle: {operations}"
    );
    let mut late = Vec::new();
    for operation in 0..operations {
        for moment in [Moment::Before(operation), Moment::After(operation)] {
            for elsewhere in [false, true] {
                let took = time_to_hear(moment, elsewhere).await;
                if took >= SOON {
                    late.push((moment, elsewhere, took));
                }
            }
        }
    }
    assert!(late.is_empty(), "late moments, each with whether the child ended in another process: {late:#?}");
}

/// A run that waits for a timer or a deadline is still notified of earlier events.
///
/// Guarantees: CHILD-2.
#[tokio::test]
async fn parent_released_by_shutdown_wakes_on_child_end() {
    for timed in [false, true] {
        let world = World::new();
        let child = gate();
        let graph = Graph::<Context>::builder("parent")
            .node(
                "wait",
                using!(child; cx, mut s => {
                    let child = cx.child(&child, with(1)).start().await?;
                    let ended = match timed {
                        false => child.await?,
                        true => tokio::select! {
                            ended = child.result() => ended?,
                            slept = cx.sleep(24 * HOUR) => {
                                slept?;
                                return Ok(s);
                            }
                        },
                    };
                    s.set("got", ended.get::<bool>("yes")?)?;
                    Ok(s)
                }),
            )
            .deadline(48 * HOUR)
            .entry("wait")
            .build()
            .unwrap();
        let (first, second) = (world.process().await, world.process().await);
        first.start(&graph, Context::new()).id("p").await.unwrap();
        let asked = async {
            while child_of(&world.store).await.is_none_or(|(_, status)| status != RunStatus::Interrupted) {
                tokio::task::yield_now().await;
            }
        };
        world.pass(asked).await;
        world.pass(first.shutdown(Duration::from_secs(1))).await.unwrap();
        served(&second, &[&graph, &child]);
        let (child, _) = child_of(&world.store).await.unwrap();
        second.respond(&child, "ok", Answer::accept(true).unwrap()).await.unwrap();
        let began = world.clock.monotonic();
        until(&world, &key("p"), RunStatus::Completed).await;
        let took = world.clock.monotonic() - began;
        assert!(took < Duration::from_secs(60), "timed {timed}: {took:?}");
        let state = second.state_at(&graph, &key("p"), Position::Latest).await.unwrap();
        assert_eq!(state.get::<bool>("got").unwrap(), Some(true));
    }
}

/// Work that a shutdown interrupts continues as soon as another process serves the workflow, whatever timer is open.
#[tokio::test]
async fn work_stopped_by_shutdown_ignores_sibling_timer() {
    let world = World::new();
    let (first, second) = (world.process().await, world.process().await);
    let begun = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&begun);
    let graph = Graph::<Context>::builder("both")
        .node("split", async |_cx, s| Ok(s))
        .node("sleep", async |cx, s| {
            cx.sleep(24 * HOUR).await?;
            Ok(s)
        })
        .node(
            "work",
            using!(count; _cx, s => {
                if count.fetch_add(1, Ordering::SeqCst) == 0 {
                    std::future::pending::<()>().await;
                }
                Ok(s)
            }),
        )
        .entry("split")
        .edge("split", ["sleep", "work"])
        .build()
        .unwrap();
    first.start(&graph, Context::new()).id("p").await.unwrap();
    let works = async |wanted| {
        while begun.load(Ordering::SeqCst) < wanted {
            tokio::task::yield_now().await;
        }
    };
    world.pass(works(1)).await;
    world.pass(first.shutdown(Duration::from_secs(1))).await.unwrap();
    served(&second, &[&graph]);
    let began = world.clock.monotonic();
    world.pass(works(2)).await;
    let took = world.clock.monotonic() - began;
    assert!(took < Duration::from_secs(60), "{took:?}");
}
