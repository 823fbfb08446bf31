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

/// A store that appends when it is let, a batch for each permit, and counts the entries of each batch; or panics then.
#[derive(Clone, Debug)]
struct Gate {
    inner: MemoryStore,
    permits: Arc<Semaphore>,
    batches: Arc<Mutex<Vec<usize>>>,
    /// How many appends panic before the others do their work.
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
        assert!(left.is_err(), "the store is out of order");
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

/// Starts that many runs, which stand before the gate.
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

/// The first leaves alone and at once; of a crowd behind it, no three go out as commits of one. Once batches are as large as the
/// crowd, its runs stay together.
#[tokio::test]
async fn a_crowd_shares_its_batches() {
    let gate = Gate::new();
    // It stands still: what leaves because a batch hangs is another test's.
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000)));
    let runtime = Runtime::builder(gate.clone()).clock(clock).build().await.unwrap();
    let first = start(&runtime, 1);
    turns().await;
    assert_eq!(gate.batches(), [1], "nobody is waited for where nothing is under way");
    let others = start(&runtime, 39);
    turns().await;
    let batches = gate.batches();
    assert!(batches.len() <= 4, "{batches:?}");
    gate.permits.add_permits(1_000);
    for run in first.into_iter().chain(others) {
        run.await.unwrap();
    }
    // 40 runs of a start and four nodes, which wait for each record: 200 appends.
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
    assert!(sent == 20 && lanes < 4, "there is a lane left: {before:?}");
    let late = start(&runtime, 1);
    turns().await;
    assert_eq!(gate.batches(), before, "it gathers beside a crowd that is under way");
    clock.advance(Duration::from_millis(20));
    turns().await;
    assert_eq!(gate.batches(), [&before[..], &[1]].concat());
    gate.permits.add_permits(1_000);
    for run in crowd.into_iter().chain(late) {
        run.await.unwrap();
    }
}

/// What a panic took away was never made up for: after four, nothing of the process was written any more.
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
    assert!(error.to_string().contains("out of order"), "{error}");
}
