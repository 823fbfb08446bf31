//! A sharded store passes the conformance suite: over three stores, and over three with two that were added to existing runs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{CheckpointStore, Clock, MemoryStore, RunKey, Timestamp};
use ferrata_store_conformance::{Damage, MemorySpace, Space, StoreFactory};
use ferrata_store_sharded::ShardedStore;
use ferrata_testing::ManualClock;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Creates three memory stores with these generations.
#[derive(Clone, Copy)]
struct Shards(&'static [&'static [&'static str]]);

struct ShardSpace {
    generations: &'static [&'static [&'static str]],
    stores: [MemoryStore; 3],
    clock: ManualClock,
}

impl ShardSpace {
    fn sharded(&self) -> ShardedStore {
        let mut builder = ShardedStore::builder();
        for (name, store) in NAMES.iter().zip(&self.stores) {
            builder = builder.shard(*name, store.clone());
        }
        let named = |builder: ferrata_store_sharded::ShardedStoreBuilder, shards: &&[&'static str]| {
            builder.generation(shards.iter().copied())
        };
        self.generations.iter().fold(builder, named).build().expect("a valid map")
    }
}

#[async_trait]
impl StoreFactory for Shards {
    async fn fresh(&self) -> Box<dyn Space> {
        let clock = ManualClock::default();
        let stores = NAMES.map(|_| MemoryStore::with_clock(Arc::new(clock.clone())));
        Box::new(ShardSpace { generations: self.0, stores, clock })
    }
}

#[async_trait]
impl Space for ShardSpace {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::new(self.sharded())
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let sharded = self.sharded();
        let shard = sharded.shard_of(run).await.expect("the shards of a run").expect("a run to damage");
        let index = NAMES.iter().position(|name| *name == shard).expect("a name");
        let (store, clock) = (self.stores[index].clone(), self.clock.clone());
        MemorySpace { store, clock }.damage(run, damage).await
    }

    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        self.clock.advance(by);
        Some(self.clock.now())
    }
}

mod one_generation {
    ferrata_store_conformance::suite!(super::Shards(&[&["a", "b", "c"]]), without: [
        durable = "the memory store keeps nothing beyond the process",
        torn = "a record is never half in memory",
        swap = "the memory store has no index that leads to its logs",
        tail = "nothing beside the logs in memory says where they end",
        transactions = "the store has none",
    ]);
}

mod generations {
    // Nearly every run has two or three possible shards, and some return to their first one.
    ferrata_store_conformance::suite!(super::Shards(&[&["a"], &["b", "c"], &["a", "c"]]), without: [
        durable = "the memory store keeps nothing beyond the process",
        torn = "a record is never half in memory",
        swap = "the memory store has no index that leads to its logs",
        tail = "nothing beside the logs in memory says where they end",
        transactions = "the store has none",
    ]);
}
