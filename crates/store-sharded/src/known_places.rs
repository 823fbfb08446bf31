//! A cache of the shards of runs. It saves searches.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferrata_store::RunKey;

/// The maximum number of runs in each of the two halves of the cache. A run takes about 100 bytes, so both halves take about 13 MB. A process that
/// drives more runs at the same time must search some of them again, with one read each.
const HALF: usize = 65_536;

/// The known shards of runs that may be in more than one shard. An entry is only a hint: a purged run may start again in another shard.
#[derive(Debug, Default)]
pub(crate) struct KnownPlaces(Mutex<PlaceHalves>);

/// When the young half is full, it becomes the old half. The previous old half is dropped, except for the runs that were used since.
#[derive(Debug, Default)]
struct PlaceHalves {
    young: HashMap<RunKey, usize>,
    old: HashMap<RunKey, usize>,
}

impl KnownPlaces {
    fn halves(&self) -> MutexGuard<'_, PlaceHalves> {
        // Locked for a few lookups. After a panic, the contents are still valid hints.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, run: &RunKey) -> Option<usize> {
        let mut halves = self.halves();
        if let Some(shard) = halves.young.get(run) {
            return Some(*shard);
        }
        let shard = halves.old.remove(run)?;
        halves.put(run.clone(), shard);
        Some(shard)
    }

    pub(crate) fn put(&self, run: &RunKey, shard: usize) {
        self.halves().put(run.clone(), shard);
    }

    /// Removes a run. Returns whether it was in the cache.
    pub(crate) fn remove(&self, run: &RunKey) -> bool {
        let mut halves = self.halves();
        let (young, old) = (halves.young.remove(run), halves.old.remove(run));
        young.or(old).is_some()
    }
}

impl PlaceHalves {
    fn put(&mut self, run: RunKey, shard: usize) {
        if self.young.len() >= HALF {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(run, shard);
    }
}
