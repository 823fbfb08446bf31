//! A panicking driver: the live process releases its run, waiters receive the cause, and the run is not retried forever.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Outcome;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{ErrorKind, IdSource, Timestamp};
use ferrata_testing::SeqIds;

use super::world::{World, key};

/// Ids that panic in the driver. Each record needs an id, and no node, update or route creates one.
#[derive(Debug)]
struct Brittle {
    ids: SeqIds,
    /// Number of ids until the single panic.
    left: AtomicI32,
}

impl Brittle {
    fn new() -> Arc<Self> {
        Arc::new(Self { ids: SeqIds::new(1), left: AtomicI32::new(0) })
    }
}

impl IdSource for Brittle {
    fn next(&self, now: Timestamp) -> uuid::Uuid {
        assert!(self.left.fetch_sub(1, Ordering::SeqCst) != 1, "no id is left");
        self.ids.next(now)
    }
}

fn graph(ids: &Arc<Brittle>, left: i32) -> Graph<Context> {
    let ids = Arc::clone(ids);
    Graph::<Context>::builder("g")
        .node("first", async |_cx, _s| Ok(()))
        .node("second", move |_cx, _s: Draft<Context>| {
            ids.left.store(left, Ordering::SeqCst);
            async { Ok(()) }
        })
        .entry("first")
        .edge("first", "second")
        .build()
        .unwrap()
}

#[tokio::test]
async fn driver_panic_releases_run_and_reports_outcome() {
    let (world, ids) = (World::new(), Brittle::new());
    let (_, owner) = world.process(|b| b.ids(Arc::clone(&ids) as _)).await;
    let run = owner.start(&graph(&ids, 1), Context::new()).id("r").await.unwrap();
    let error = world.pass(run.wait()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("panicked: no id is left"), "{error}");
    // No heartbeat expires, because the process is alive.
    let free = async {
        while world.store.head(&key("r")).await.unwrap().unwrap().owner.is_some() {
            tokio::task::yield_now().await;
        }
    };
    world.pass(free).await;
    let (_, other) = world.process(|b| b).await;
    other.serve(&graph(&ids, -1)).unwrap();
    let watching = other.start(&graph(&ids, -1), Context::new()).id("r").await.unwrap();
    world.pass(watching.completed()).await.unwrap();
    owner.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn repeated_driver_panic_parks_run() {
    let (world, ids) = (World::new(), Brittle::new());
    let (_, server) = world.process(|b| b.ids(Arc::clone(&ids) as _).max_claims(3)).await;
    let graph = graph(&ids, 1);
    server.serve(&graph).unwrap();
    let run = server.start(&graph, Context::new()).id("r").await.unwrap();
    world.pass(run.wait()).await.unwrap_err();
    let parked = async {
        while world.store.head(&key("r")).await.unwrap().unwrap().status == RunStatus::InProgress {
            tokio::task::yield_now().await;
        }
    };
    world.pass(parked).await;
    let watching = server.start(&graph, Context::new()).id("r").await.unwrap();
    let Outcome::Paused { reason, .. } = world.pass(watching.wait()).await.unwrap() else { panic!() };
    assert!(reason.contains("claims without progress: 3"), "{reason}");
}
