//! Builds a sharded store from its shards and generations.

use std::sync::Arc;

use crate::known_places::KnownPlaces;
use crate::map::ShardMap;
use crate::shard::Shard;
use crate::store::ShardedStore;
use ferrata_store::{CheckpointStore, Clock, Result, SystemClock};

/// A builder that takes the shards and the generations of a [`ShardedStore`].
#[derive(Debug, Default)]
#[must_use]
pub struct ShardedStoreBuilder {
    clock: Option<Arc<dyn Clock>>,
    names: Vec<String>,
    stores: Vec<Arc<dyn CheckpointStore>>,
    generations: Vec<Vec<String>>,
}

impl ShardedStoreBuilder {
    /// Adds a store as a shard with this name. The name must never change, because it decides which runs go to the shard. The address of the store
    /// may change.
    pub fn shard(mut self, name: impl Into<String>, store: impl CheckpointStore) -> Self {
        self.names.push(name.into());
        self.stores.push(Arc::new(store));
        self
    }

    /// Adds a generation after the previous generations: the names of the shards over which the store spreads new runs from then on.
    ///
    /// If no generation is added, there is one generation with all shards, in the order in which they were added.
    pub fn generation(mut self, shards: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.generations.push(shards.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the clock that decides whether a shard has answered a heartbeat in time. It is for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Checks the names and builds the store. Reads and writes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) in these cases: there is no shard; a name has characters that are not allowed, or
    /// occurs twice; a generation is empty, or names an unknown shard; or a shard is in no generation.
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
