//! State with panicking code: the process releases the run, notifies waiters, and does not retry forever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::store::MemoryStore;
use ferrata::testing::ManualClock;
use ferrata::{ErrorKind, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Whether encoding a [`Brittle`] panics, how many decodings panic, and how many did.
static WRITING: AtomicBool = AtomicBool::new(false);
static READING: AtomicBool = AtomicBool::new(false);
static READ: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Debug, Default, PartialEq)]
struct Brittle;

impl Serialize for Brittle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(!WRITING.load(Ordering::SeqCst), "cannot be written");
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for Brittle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if READING.load(Ordering::SeqCst) {
            READ.fetch_add(1, Ordering::SeqCst);
            panic!("cannot be read");
        }
        <()>::deserialize(deserializer).map(|()| Self)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Work {
    /// Large enough that the next record contains the whole state.
    text: String,
    brittle: Brittle,
}

fn graph() -> Graph<Work> {
    Graph::<Work>::builder("work")
        .node("write", async |_cx, mut s| {
            s.text = "x".repeat(100_000);
            Ok(s)
        })
        .node("rest", async |_cx, _s| {
            WRITING.store(true, Ordering::SeqCst);
            Ok(())
        })
        .node("last", async |_cx, _s| Ok(()))
        .entry("write")
        .edge("write", "rest")
        .edge("rest", "last")
        .build()
        .unwrap()
}

struct World {
    store: MemoryStore,
    clock: Arc<ManualClock>,
}

impl World {
    async fn process(&self) -> Runtime {
        let builder = Runtime::builder(self.store.clone()).clock(Arc::clone(&self.clock) as _);
        builder.heartbeat_ttl(Duration::from_secs(6_000)).build().await.unwrap()
    }

    /// Advances the clock by 50 ms, with yields to all tasks.
    async fn pass(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        self.clock.advance(Duration::from_millis(50));
    }

    /// Advances the clock until the condition holds, for at most ten minutes.
    async fn until(&self, what: &str, mut done: impl AsyncFnMut() -> bool) {
        for _ in 0..12_000 {
            if done().await {
                return;
            }
            self.pass().await;
        }
        panic!("{what}, for ten minutes of the test's clock");
    }
}

#[tokio::test]
async fn panicking_state_locks_run_in_no_process() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
    let world = World { store: MemoryStore::with_clock(Arc::clone(&clock) as _), clock };
    let (graph, first) = (graph(), world.process().await);
    let run = first.start(&graph, Work::default()).id("r").await.unwrap();
    let outcome = run.wait().await.map(|outcome| outcome.completed().map(|_| "completed"));
    let error = outcome.unwrap_err();
    WRITING.store(false, Ordering::SeqCst);
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("panicked: cannot be written"), "{error}");
    let is_free = async || first.head(run.run()).await.unwrap().unwrap().owner.is_none();
    world.until("the run is not let go of", is_free).await;

    READING.store(true, Ordering::SeqCst);
    let second = world.process().await;
    second.serve(&graph).unwrap();
    world.until("the run is not listed", async || !second.stalled().is_empty()).await;
    assert!(second.stalled()[0].error.to_string().contains("panicked: cannot be read"));
    // Wait for at least two polls of the idle run.
    for _ in 0..60 {
        world.pass().await;
    }
    assert_eq!(READ.load(Ordering::SeqCst), 1, "the run was retried at once");
}
