//! Processes on one store in memory, with a clock under the test's control.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::Timestamp;
use ferrata_core::runtime::Runtime;
use ferrata_core::store::MemoryStore;
use ferrata_testing::{FaultPlan, FaultStore, ManualClock};

pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) clock: Arc<ManualClock>,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
        Self { store: MemoryStore::with_clock(Arc::clone(&clock) as _), clock }
    }

    /// Creates the next process.
    pub(crate) async fn process(&self) -> Runtime {
        Runtime::builder(self.store.clone()).clock(Arc::clone(&self.clock) as _).build().await.unwrap()
    }

    /// Creates a process for a multi-threaded test. There, the test may advance the clock while a loaded machine delays the heartbeat thread.
    pub(crate) async fn patient_process(&self) -> Runtime {
        let builder = Runtime::builder(self.store.clone()).clock(Arc::clone(&self.clock) as _);
        builder.heartbeat_ttl(Duration::from_secs(86_400)).build().await.unwrap()
    }

    /// Creates a process that can die. After its death, the store gets no call of it, not even a heartbeat.
    pub(crate) async fn mortal(&self) -> (Arc<FaultStore<MemoryStore>>, Runtime) {
        let store = Arc::new(FaultStore::new(self.store.clone(), FaultPlan::new()));
        let runtime = Runtime::builder_with(Arc::clone(&store) as _).clock(Arc::clone(&self.clock) as _);
        (store, runtime.build().await.unwrap())
    }

    /// Advances the clock until `done` is ready, in steps smaller than any interval of the runtime.
    ///
    /// The limit only ends a test that hangs, and is far above the needs of any test. On a multi-threaded runtime of a loaded machine, this loop can
    /// advance the clock while the awaited threads are delayed.
    pub(crate) async fn pass<T>(&self, done: impl Future<Output = T>) -> T {
        let mut done = std::pin::pin!(done);
        for _ in 0..1_000_000 {
            tokio::select! {
                biased;
                result = &mut done => return result,
                () = tokio::task::yield_now() => self.clock.advance(Duration::from_millis(50)),
            }
        }
        panic!("the future is not ready after 50,000 s of the test's clock");
    }
}
