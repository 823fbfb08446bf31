//! The timeout of a node that waits for something outside its run, or continues in its own task.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::Clock as _;
use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::FailureKind;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::{Context, Draft};
use ferrata_testing::ManualClock;

use super::world::World;

/// Timeout of the node. A wait takes ten times as long.
const TIMEOUT: Duration = Duration::from_millis(300);
const WAIT: Duration = Duration::from_secs(3);

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(2);

/// A graph of one node with the timeout [`TIMEOUT`].
fn graph<F>(
    clock: &Arc<ManualClock>,
    node: impl Fn(NodeContext, Arc<ManualClock>) -> F + Send + Sync + 'static,
) -> Graph<Context>
where
    F: Future<Output = Result<(), NodeError>> + Send + 'static,
{
    let clock = Arc::clone(clock);
    Graph::<Context>::builder("timeouts")
        .node("n", move |cx: NodeContext, s: Draft<Context>| {
            let done = node(cx, Arc::clone(&clock));
            async move { done.await.map(|()| s) }
        })
        .timeout(TIMEOUT)
        .entry("n")
        .build()
        .unwrap()
}

/// Runs the graph. Returns whether it completed, and checks that otherwise its node timed out.
async fn completes(world: &World, graph: &Graph<Context>) -> bool {
    let run = world.process().await.start(graph, Context::new()).await.unwrap();
    match world.pass(run.wait()).await.unwrap() {
        Outcome::Completed(_) => true,
        Outcome::Failed { failure, .. } => {
            assert_eq!(failure.kind, FailureKind::Timeout, "{failure}");
            false
        }
        other => panic!("{other:?}"),
    }
}

/// A node that waits for a slot or another external event can pause its timeout. After the pause the timeout starts again, in full.
///
/// Guarantees: TIMER-7.
#[tokio::test]
async fn pause_stops_timeout() {
    for (pauses, work, expected) in [(true, SHORT, true), (true, LONG, false), (false, SHORT, false)] {
        let world = World::new();
        let graph = graph(&world.clock, move |cx, clock| async move {
            for _ in 0..2 {
                let pause = pauses.then(|| cx.pause_timeout());
                clock.sleep(WAIT).await;
                drop(pause);
                clock.sleep(work).await;
            }
            Ok(())
        });
        assert_eq!(completes(&world, &graph).await, expected, "pauses: {pauses}, work of {work:?}");
    }
}

/// After a wait, the timeout starts again at once, even if the node only waits for a task that it spawned.
///
/// Guarantees: TIMER-6.
#[tokio::test]
async fn timeout_counts_in_spawned_task() {
    for outside in [true, false] {
        for (work, expected) in [(SHORT, true), (LONG, false)] {
            let world = World::new();
            let graph = graph(&world.clock, move |cx, clock| async move {
                let task = async move {
                    if outside {
                        let _pause = cx.pause_timeout();
                        clock.sleep(WAIT).await;
                    } else {
                        cx.sleep(WAIT).await?;
                    }
                    clock.sleep(work).await;
                    Ok::<_, NodeError>(())
                };
                #[expect(clippy::disallowed_methods, reason = "this is what an application may do")]
                tokio::spawn(task).await?
            });
            assert_eq!(completes(&world, &graph).await, expected, "outside: {outside}, work of {work:?}");
        }
    }
}

/// While a step of the activation is running, the timeout counts, whatever else the node waits for.
///
/// Guarantees: TIMER-6.
#[tokio::test]
async fn step_counts_during_pause() {
    for (work, expected) in [(SHORT, true), (LONG, false)] {
        let world = World::new();
        let graph = graph(&world.clock, move |cx, clock| async move {
            let wait = async {
                let _pause = cx.pause_timeout();
                clock.sleep(WAIT).await;
            };
            let step = cx.step("work", async || {
                clock.sleep(work).await;
                Ok::<_, NodeError>(())
            });
            tokio::join!(wait, step).1
        });
        assert_eq!(completes(&world, &graph).await, expected, "work of {work:?}");
    }
}

/// The guard keeps the run in memory, because only the node's future knows what it waits for.
///
/// Guarantees: TIMER-7.
#[tokio::test]
async fn pause_keeps_run_in_memory() {
    let world = World::new();
    let graph = graph(&world.clock, |cx, clock| async move {
        let _pause = cx.pause_timeout();
        clock.sleep(Duration::from_secs(600)).await;
        Ok(())
    });
    assert!(completes(&world, &graph).await);
}
