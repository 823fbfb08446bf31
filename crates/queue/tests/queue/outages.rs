//! A store that is away for a moment, as during a failover, is no failure of the nodes that wait for places.

use std::sync::Arc;

use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{Fault, FaultPlan, FaultStore};
use ferrata_core::testing::World;
use ferrata_queue::{Acquire, Queues};
use tokio::sync::Notify;

use crate::support::{MOMENT, WHILE, empty, process, set_up};

#[tokio::test]
async fn a_node_whose_store_is_away_while_it_asks_for_a_place_does_not_fail() {
    // As many writes as are tried for one record, fewer, and more.
    for writes in [3, 8, 9, 12, 20] {
        let world = World::new();
        let beside = process(&world).await;
        let queue = beside.queue("gpu").at_once(1).declare().await.unwrap();
        let line = Arc::new(FaultStore::new(world.store().clone(), FaultPlan::new()));
        let builder = Runtime::builder_with(Arc::clone(&line) as _).clock(Arc::clone(beside.clock()));
        let runtime = world.pass(set_up(builder, WHILE).build()).await.unwrap();
        let (word, began) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let kept = (Arc::clone(&word), Arc::clone(&began));
        let work = move |cx: NodeContext, s: Draft<Context>| {
            let (word, began) = kept.clone();
            async move {
                began.notify_one();
                word.notified().await;
                let place = cx.acquire("gpu", 1).await?;
                drop(place);
                Ok::<_, NodeError>(s)
            }
        };
        let graph = Graph::<Context>::builder("asks").node("work", work).entry("work").build().unwrap();
        let run = world.pass(runtime.start(&graph, Context::new()).id("r")).await.unwrap();
        world.pass(began.notified()).await;
        let next = line.operations();
        (next..next + writes).for_each(|operation| line.plan(operation, Fault::Before));
        word.notify_one();
        world.pass(run.completed()).await.unwrap_or_else(|error| panic!("{writes} writes failed: {error}"));
        world.pass_for(MOMENT).await;
        empty(&world, &queue).await;
    }
}
