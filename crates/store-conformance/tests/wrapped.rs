//! Wrappers keep the contract of what they wrap: a fault store without faults, around a shared memory store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::store::{CheckpointStore, FaultPlan, FaultStore};
use ferrata_core::{RunKey, Timestamp};
use ferrata_store_conformance::{Damage, MemorySpace, Space, StoreFactory, suite};

struct WrappedFactory;

struct WrappedSpace(MemorySpace);

#[async_trait]
impl StoreFactory for WrappedFactory {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(WrappedSpace(MemorySpace::default()))
    }
}

#[async_trait]
impl Space for WrappedSpace {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::new(FaultStore::new(self.0.open().await, FaultPlan::new()))
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        self.0.damage(run, damage).await
    }

    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        self.0.advance_clock(by).await
    }
}

suite!(WrappedFactory, without: [
    durable = "the memory store keeps nothing beyond the process",
    torn = "a record is never half in memory",
]);
