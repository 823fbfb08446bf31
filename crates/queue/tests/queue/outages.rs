//! A short outage of the store, as in a failover, does not fail the nodes that wait for slots.

use std::sync::Arc;

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_queue::{NodeQueueExt, RuntimeQueueExt};
use ferrata_testing::{Fault, FaultPlan, FaultStore, World};
use tokio::sync::Notify;

use crate::support::{MOMENT, WHILE, Witness, empty, in_a_place, patient, process, set_up};

#[tokio::test]
async fn store_outage_during_slot_request_spares_node() {
    // The number of failed writes: as many as one record is retried, fewer, and more.
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

/// A node that cannot become idle waits in memory. If its queue is purged and forgets it, it requests its slot again.
#[tokio::test]
async fn node_waiting_in_memory_asks_purged_queue_again() {
    let (world, witness) = (World::new(), Witness::default());
    let (beside, process) = (patient(&world, 100 * WHILE).await, process(&world).await);
    let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
    let holder = beside.start(&in_a_place(&witness, 60 * WHILE), Context::new()).id("holder").await.unwrap();
    world.pass_for(MOMENT).await;
    let seen = witness.clone();
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let witness = seen.clone();
        async move {
            let place = cx.acquire("gpu", 1).await?;
            drop((witness.enter("external"), place));
            Ok::<_, NodeError>(s)
        }
    };
    let graph = Graph::<Context>::builder("external").node("work", work).effect(Effect::External);
    let graph = graph.entry("work").build().unwrap();
    let external = process.start(&graph, Context::new()).id("external").await.unwrap();
    world.pass_for(5 * WHILE).await;
    assert_eq!((gpu.status().await.unwrap().waiting, witness.came().len()), (1, 1));
    let run = gpu.status().await.unwrap().run;
    process.cancel(&run, "away with it").await.unwrap();
    process.purge(&run).await.unwrap();
    let gpu = process.queue("gpu").at_once(1).declare().await.unwrap();
    world.pass_for(WHILE).await;
    let head = process.head(external.run()).await.unwrap().unwrap();
    assert_eq!((head.status, witness.came().len()), (RunStatus::Completed, 2));
    world.pass(holder.completed()).await.unwrap();
    empty(&world, &gpu).await;
}
