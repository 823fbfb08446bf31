//! Naming the shards and the generations of a sharded store.

use std::sync::Arc;

use super::known::Known;
use super::map::ShardMap;
use super::shard::Shard;
use super::{CheckpointStore, ShardedStore};
use crate::error::Result;

/// Names the shards and the generations of a [`ShardedStore`].
#[derive(Debug, Default)]
#[must_use]
pub struct ShardedStoreBuilder {
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

    /// Checks the names and makes the store. Nothing is read or written.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid): there is no shard, a name is not plain or given twice, a generation
    /// is empty or names what is no shard, or a shard is in no generation.
    pub fn build(self) -> Result<ShardedStore> {
        let Self { names, stores, mut generations } = self;
        if generations.is_empty() && !names.is_empty() {
            generations.push(names.clone());
        }
        let map = ShardMap::new(names, &generations)?;
        let shards =
            map.names.iter().cloned().zip(stores).map(|(name, store)| Shard::new(name, store)).collect();
        Ok(ShardedStore { map, shards, known: Known::default() })
    }
}
