//! A wrapped store meets the contract: a fault store without faults, around a shared memory store with the system clock.

use std::sync::Arc;

use async_trait::async_trait;
use ferrata_store::{CheckpointStore, MemoryStore, RunKey};
use ferrata_store_conformance::{Damage, MemorySpace, Space, StoreFactory, suite};
use ferrata_testing::{FaultPlan, FaultStore};

struct WrappedFactory;

struct WrappedSpace(MemorySpace);

#[async_trait]
impl StoreFactory for WrappedFactory {
    async fn fresh(&self) -> Box<dyn Space> {
        let store = MemoryStore::new();
        Box::new(WrappedSpace(MemorySpace { store, ..MemorySpace::default() }))
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
}

suite!(WrappedFactory, without: [
    clock = "the store lives by the machine's clock",
    durable = "the memory store keeps nothing beyond the process",
    torn = "a record is never half in memory",
    swap = "no index leads to the logs",
    tail = "nothing beside the logs says where they end",
    transactions = "there is no database to write to",
]);
