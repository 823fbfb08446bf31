//! A store that notes who sent a heartbeat, so that a place can be left as if no process ever had.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ferrata::store::delegate;
use ferrata::{CheckpointStore, ExecutorId, Result};

/// Who sent heartbeats.
pub(super) type Executors = Arc<Mutex<BTreeSet<ExecutorId>>>;

/// A store that notes who sent a heartbeat.
#[derive(Debug)]
pub(super) struct HeartbeatProbe {
    /// The store itself.
    pub(super) store: Arc<dyn CheckpointStore>,
    /// Who sent one.
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
