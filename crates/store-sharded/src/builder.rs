//! Naming the shards and the generations of a sharded store.

use std::sync::Arc;

use crate::known_places::KnownPlaces;
use crate::map::ShardMap;
use crate::shard::Shard;
use crate::store::ShardedStore;
use ferrata_store::{CheckpointStore, Clock, Result, SystemClock};

/// Names the shards and the generations of a [`ShardedStore`].
#[derive(Debug, Default)]
#[must_use]
pub struct ShardedStoreBuilder {
    clock: Option<Arc<dyn Clock>>,
    names: Vec<String>,
    stores: Vec<Arc<dyn CheckpointStore>>,
    generations: Vec<Vec<String>>,
}

impl ShardedStoreBuilder {
    /// Adds a store under a name, which is its own for ever: where runs go depends on it. The address may change.
    pub fn shard(mut self, name: impl Into<String>, store: impl CheckpointStore) -> Self {
        self.names.push(name.into());
        self.stores.push(Arc::new(store));
        self
    }

    /// Adds a generation after those before: the names of the shards that new runs are spread over from then on.
    ///
    /// Without any, there is one of all shards, in the order in which they were added.
    pub fn generation(mut self, shards: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.generations.push(shards.into_iter().map(Into::into).collect());
        self
    }

    /// Takes the time from another clock, by which a shard that does not answer has missed a heartbeat: for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Checks the names and builds the store. Reads and writes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid): there is no shard, a name is not plain or given twice, a generation
    /// is empty or names what is no shard, or a shard is in no generation.
    pub fn build(self) -> Result<ShardedStore> {
        let Self { clock, names, stores, mut generations } = self;
        if generations.is_empty() && !names.is_empty() {
            generations.push(names.clone());
        }
        let map = ShardMap::new(names, &generations)?;
        let shards =
            map.names.iter().cloned().zip(stores).map(|(name, store)| Shard::new(name, store)).collect();
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        Ok(ShardedStore { map, shards, known: KnownPlaces::default(), clock })
    }
}
