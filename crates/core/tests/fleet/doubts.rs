//! A process finds out the unknown outcome of its start or claim, even if the run id was purged and reused.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ErrorKind;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::{At, CheckpointStore, MemoryStore, RunAppend};
use ferrata_testing::{Fault, FaultPlan, FaultStore};

use super::world::{Gate, World, key};

/// Creates a process that sends an append at most twice.
async fn process(world: &World) -> (Arc<FaultStore<MemoryStore>>, Runtime) {
    let store = Arc::new(FaultStore::new(world.store.clone(), FaultPlan::new()));
    let runtime = Runtime::builder_with(Arc::clone(&store) as _).clock(Arc::clone(&world.clock) as _);
    (store, runtime.store_retries(2, Duration::from_millis(50)).build().await.unwrap())
}

/// Lets the next write succeed without a reply. Its repetition fails, and so do `looks` reads that check its outcome. Returns the number of the next
/// operation.
fn lose(store: &FaultStore<MemoryStore>, looks: u64) -> u64 {
    let next = store.operations();
    store.plan(next, Fault::After);
    (1..2 + looks).for_each(|at| store.plan(next + at, Fault::Before));
    next + 2 + looks
}

/// A process has two claims of one run with unknown outcome. It resolves both, and releases the run if it has no driver for it.
///
/// Guarantees: CONTROL-22.
#[tokio::test]
async fn process_releases_both_claims_with_unknown_outcome() {
    let world = World::new();
    let ((_, starter), (_, other)) = (world.process(|b| b).await, world.process(|b| b).await);
    let (store, owner) = process(&world).await;
    let graph = Gate::default().graph("g", Effect::Write);
    starter.start(&graph, Context::new()).id("r").await.unwrap();
    starter.shutdown(Duration::ZERO).await.unwrap();

    let until = lose(&store, 5);
    let claimed = world.pass(owner.resume(&graph, "r").into_future()).await.unwrap_err();
    assert_eq!(claimed.kind(), ErrorKind::Indeterminate);
    world
        .pass(async {
            while store.operations() < until {
                tokio::task::yield_now().await;
            }
        })
        .await;
    // The next check follows in four seconds.
    world.pass_for(Duration::from_secs(1)).await;
    drop(other.resume(&graph, "r").take_over().await.unwrap());
    other.shutdown(Duration::ZERO).await.unwrap();
    let again = lose(&store, 4);
    let claimed = world.pass(owner.resume(&graph, "r").into_future()).await.unwrap_err();
    assert_eq!(claimed.kind(), ErrorKind::Indeterminate);
    let head = world.store.head(&key("r")).await.unwrap().unwrap();
    assert_eq!((head.epoch.get(), head.owner), (4, Some(owner.executor())));

    world.pass_for(Duration::from_secs(60)).await;
    assert!(store.operations() > again, "both outcomes must be checked again");
    let head = world.store.head(&key("r")).await.unwrap().unwrap();
    assert_eq!((head.status, head.owner), (RunStatus::InProgress, None));
}

/// The reply of a purge comes after another run was started under the id, also with unknown outcome.
///
/// Guarantees: CONTROL-22.
#[tokio::test]
async fn late_purge_reply_preserves_unknown_start() {
    let world = World::new();
    let (store, first) = process(&world).await;
    let ends =
        Graph::<Context>::builder("g").node("one", async |_cx, _s| Ok(())).entry("one").build().unwrap();
    let waits = Gate::default().graph("waits", Effect::Write);
    let run = first.start(&ends, Context::new()).id("r").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let (line, inner, starter) = (Arc::clone(&store), world.store.clone(), first.clone());
    store.after(store.operations(), async move {
        let next = line.operations();
        lose(&line, 3);
        // The append arrives after the process has checked its outcome.
        let (way, network) = (Arc::new(Mutex::new(None)), inner.clone());
        let sent = Arc::clone(&way);
        line.before(next + 1, async move {
            let run = key("r");
            let records = network.load(&run, At::Latest).await.unwrap().unwrap();
            let facts = network.head(&run).await.unwrap().map(|head| head.facts);
            network.purge(&run, None).await.unwrap();
            *sent.lock().unwrap() = Some(RunAppend { run, expected: None, records, facts });
        });
        let started = starter.start(&waits, Context::new()).id("r").await.unwrap_err();
        assert_eq!(started.kind(), ErrorKind::Indeterminate);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let arrived = way.lock().unwrap().take().unwrap();
        inner.append(vec![arrived]).await.pop().unwrap().unwrap();
    });
    assert!(world.pass(first.purge(&key("r"))).await.unwrap().records > 0);
    let head = world.store.head(&key("r")).await.unwrap().unwrap();
    assert_eq!(head.owner, Some(first.executor()));
    world.pass_for(Duration::from_secs(60)).await;
    let head = world.store.head(&key("r")).await.unwrap().unwrap();
    assert_eq!((head.status, head.owner), (RunStatus::InProgress, None));
}
