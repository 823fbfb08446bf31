//! The timeout of a node with a queue covers only the node's work, not the wait for a slot.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::Clock;
use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::FailureKind;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::{Context, Draft};
use ferrata_queue::{GraphQueueExt, NodeQueueExt, RuntimeQueueExt};
use ferrata_testing::World;

use crate::support::{MOMENT, WHILE, empty, patient};

const TIMEOUT: Duration = Duration::from_secs(15);
/// How long each node works in its slot.
const WORK: Duration = MOMENT;

/// How a node gets its slot.
#[derive(Clone, Copy, Debug)]
enum SlotSource {
    LimitThenTimeout,
    TimeoutThenLimit,
    Acquire,
}

const SOURCES: [SlotSource; 3] =
    [SlotSource::LimitThenTimeout, SlotSource::TimeoutThenLimit, SlotSource::Acquire];

/// A graph with one node, which works in a slot of the queue `gpu`. The runtime cannot see that work as a wait.
fn graph(source: SlotSource, clock: &Arc<dyn Clock>, work: Duration) -> Graph<Context> {
    let clock = Arc::clone(clock);
    let node = move |cx: NodeContext, s: Draft<Context>| {
        let clock = Arc::clone(&clock);
        async move {
            let _slot = match source {
                SlotSource::Acquire => Some(cx.acquire("gpu", 1).await?),
                _ => None,
            };
            clock.sleep(work).await;
            Ok::<_, NodeError>(s)
        }
    };
    let builder = Graph::<Context>::builder("work").node("work", node);
    let builder = match source {
        SlotSource::LimitThenTimeout => builder.limit("gpu").timeout(TIMEOUT),
        SlotSource::TimeoutThenLimit => builder.timeout(TIMEOUT).limit("gpu"),
        SlotSource::Acquire => builder.timeout(TIMEOUT),
    };
    builder.entry("work").build().unwrap()
}

/// Twenty nodes with two slots wait for several times their timeout. None fails, in whatever order limit and timeout are declared, whether the
/// nodes wait in memory or their runs become idle.
///
/// Guarantees: QUEUE-11, TIMER-11.
#[tokio::test]
async fn timeout_skips_wait_for_slot() {
    for source in SOURCES {
        for release_after in [MOMENT / 2, 60 * WHILE] {
            let world = World::new();
            let process = patient(&world, release_after).await;
            let graph = graph(source, process.clock(), WORK);
            process.serve(&graph).unwrap();
            let gpu = process.queue("gpu").at_once(2).declare().await.unwrap();
            let mut runs = Vec::new();
            for n in 0..20 {
                runs.push(process.start(&graph, Context::new()).id(format!("r{n}")).await.unwrap());
            }
            for run in &runs {
                let done = world.pass(run.completed()).await;
                assert!(done.is_ok(), "{source:?}, idle after {release_after:?}: {done:?}");
            }
            empty(&world, &gpu).await;
        }
    }
}

/// Once the node has its slot, its timeout counts in full, after a wait in memory and after an idle one.
///
/// Guarantees: TIMER-11.
#[tokio::test]
async fn timeout_counts_work_after_wait() {
    for source in SOURCES {
        for release_after in [MOMENT / 2, 60 * WHILE] {
            let world = World::new();
            let process = patient(&world, release_after).await;
            let slow = graph(source, process.clock(), 3 * TIMEOUT);
            process.serve(&slow).unwrap();
            let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
            let holder = Graph::<Context>::builder("holder")
                .node("hold", async |cx: NodeContext, s| {
                    let slot = cx.acquire("gpu", 1).await?;
                    cx.sleep(5 * MOMENT).await?;
                    drop(slot);
                    Ok::<_, NodeError>(s)
                })
                .entry("hold")
                .build()
                .unwrap();
            let keeper = patient(&world, 60 * WHILE).await;
            let first = keeper.start(&holder, Context::new()).await.unwrap();
            world.pass_for(MOMENT / 10).await;
            let run = process.start(&slow, Context::new()).id("slow").await.unwrap();
            world.pass(first.completed()).await.unwrap();
            world.pass_for(WHILE).await;
            let Outcome::Failed { failure, .. } = world.pass(run.wait()).await.unwrap() else {
                panic!("{source:?}, idle after {release_after:?}: the run did not fail")
            };
            assert_eq!(failure.kind, FailureKind::Timeout, "{failure}");
            empty(&world, &gpu).await;
        }
    }
}
