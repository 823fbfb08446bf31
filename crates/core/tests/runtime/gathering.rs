//! Batching of appends: when the appends of many runs leave together, and when an append leaves alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore, RunAppend, delegate};
use ferrata_core::{ErrorKind, HeadRef, Result, Timestamp};
use ferrata_testing::ManualClock;
use tokio::sync::Semaphore;

/// A store that performs one batch of appends per permit, and counts the entries of each batch. The first `panics` appends panic.
#[derive(Clone, Debug)]
struct Gate {
    inner: MemoryStore,
    permits: Arc<Semaphore>,
    batches: Arc<Mutex<Vec<usize>>>,
    /// Number of appends that panic before the others succeed.
    panics: Arc<AtomicUsize>,
}

impl Gate {
    fn new() -> Self {
        let permits = Arc::new(Semaphore::new(0));
        Self { inner: MemoryStore::new(), permits, batches: Arc::default(), panics: Arc::default() }
    }

    fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for Gate {
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.batches.lock().unwrap().push(batch.len());
        self.permits.acquire().await.unwrap().forget();
        let left = self.panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "injected panic of the store");
        self.inner.append(batch).await
    }
    fn transactions(&self) -> Option<&dyn ferrata_core::store::Transactions> {
        None
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        None
    }

    fn relay(&self) -> Option<&dyn ferrata_core::store::Relay> {
        None
    }

    delegate! {
        |this| this.inner;
        capabilities, setup, load, load_since, headers, head, runs, prune, purge, heartbeat, is_alive,
        part, subscribe
    }
}

fn chain() -> Graph<Context> {
    let names = ["a", "b", "c", "d"];
    let mut builder = Graph::<Context>::builder("chain").entry("a");
    for name in names {
        builder = builder.node(name, async |_cx, s| Ok(s)).effect(Effect::Write);
    }
    for pair in names.windows(2) {
        builder = builder.edge(pair[0], pair[1]);
    }
    builder.build().unwrap()
}

async fn turns() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Starts `runs` runs. Their appends wait at the gate.
fn start(runtime: &Runtime, runs: usize) -> Vec<tokio::task::JoinHandle<()>> {
    let start = |_| {
        let (runtime, graph) = (runtime.clone(), chain());
        #[expect(clippy::disallowed_methods, reason = "a test has no tasks of its own")]
        tokio::spawn(async move {
            runtime.start(&graph, Context::new()).await.unwrap().wait().await.unwrap().completed().unwrap();
        })
    };
    (0..runs).map(start).collect()
}

/// The first append leaves alone and at once. The appends of 39 runs behind it share at most three batches. Later batches keep these runs together.
#[tokio::test]
async fn a_crowd_shares_its_batches() {
    let gate = Gate::new();
    // The clock stands still, so that no batch leaves because of a time limit.
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000)));
    let runtime = Runtime::builder(gate.clone()).clock(clock).build().await.unwrap();
    let first = start(&runtime, 1);
    turns().await;
    assert_eq!(gate.batches(), [1], "the first append does not wait, because no other append is in flight");
    let others = start(&runtime, 39);
    turns().await;
    let batches = gate.batches();
    assert!(batches.len() <= 4, "{batches:?}");
    gate.permits.add_permits(1_000);
    for run in first.into_iter().chain(others) {
        run.await.unwrap();
    }
    // 40 runs with a start and four nodes, each of which waits for its record: 200 appends.
    let batches = gate.batches();
    assert_eq!(batches.iter().sum::<usize>(), 200);
    assert!(batches.len() <= 30, "{} batches: {batches:?}", batches.len());
}

/// A hanging batch does not delay others forever: after a time limit the next batch leaves next to it, however small.
#[tokio::test]
async fn nobody_waits_for_a_batch_that_hangs() {
    let gate = Gate::new();
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000)));
    let runtime = Runtime::builder(gate.clone()).clock(Arc::clone(&clock) as _).build().await.unwrap();
    let crowd = start(&runtime, 20);
    turns().await;
    let before = gate.batches();
    let (sent, lanes): (usize, usize) = (before.iter().sum(), before.len());
    assert!(sent == 20 && lanes < 4, "fewer than four lanes must be in use: {before:?}");
    let late = start(&runtime, 1);
    turns().await;
    assert_eq!(gate.batches(), before, "the late append waits while the other batches are in flight");
    clock.advance(Duration::from_millis(20));
    turns().await;
    assert_eq!(gate.batches(), [&before[..], &[1]].concat());
    gate.permits.add_permits(1_000);
    for run in crowd.into_iter().chain(late) {
        run.await.unwrap();
    }
}

/// A store that panics is retried, and later appends succeed.
#[tokio::test]
async fn a_store_that_panics_is_tried_again() {
    let gate = Gate::new();
    gate.permits.add_permits(1_000);
    gate.panics.store(7, Ordering::SeqCst);
    let runtime = Runtime::builder(gate.clone()).store_retries(8, Duration::ZERO).build().await.unwrap();
    for run in start(&runtime, 3) {
        run.await.unwrap();
    }
    assert_eq!(gate.panics.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn repeatedly_panicking_store_leaves_unknown_outcome() {
    let gate = Gate::new();
    gate.permits.add_permits(1_000);
    gate.panics.store(1_000, Ordering::SeqCst);
    let runtime = Runtime::builder(gate.clone()).store_retries(8, Duration::ZERO).build().await.unwrap();
    let error = runtime.start(&chain(), Context::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert!(error.to_string().contains("injected panic"), "{error}");
}
