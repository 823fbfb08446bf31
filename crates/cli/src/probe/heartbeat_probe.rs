//! A store that records which processes send heartbeats, so that all data of a probe can be removed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ferrata::store::delegate;
use ferrata::{CheckpointStore, ExecutorId, Result};

/// The processes that have sent heartbeats.
pub(super) type Executors = Arc<Mutex<BTreeSet<ExecutorId>>>;

/// A store that records the senders of heartbeats.
#[derive(Debug)]
pub(super) struct HeartbeatProbe {
    /// The store that this store wraps.
    pub(super) store: Arc<dyn CheckpointStore>,
    /// The processes that have sent heartbeats.
    pub(super) executors: Executors,
}

#[deny(clippy::missing_trait_methods, reason = "what is not passed on would be tried on another store")]
#[async_trait]
impl CheckpointStore for HeartbeatProbe {
    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        self.executors.lock().unwrap_or_else(PoisonError::into_inner).insert(*executor);
        self.store.heartbeat(executor, ttl).await
    }

    fn transactions(&self) -> Option<&dyn ferrata::store::Transactions> {
        None
    }

    delegate! {
        |this| this.store;
        capabilities, setup, append, load, load_since, headers, head, runs, prune, purge, is_alive, part,
        resealing, relay, subscribe
    }
}
