//! A cache of the places of runs, which saves searches.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferrata_store::RunKey;

/// The number of runs remembered in each of two halves. A place takes about 100 bytes, and both halves about 13 MB. A process that drives more runs
/// at once finds some of them again, with one read each.
const HALF: usize = 65_536;

/// The known places of runs with more than one possible place. An entry is a hint: a purged run may start again elsewhere.
#[derive(Debug, Default)]
pub(crate) struct KnownPlaces(Mutex<PlaceHalves>);

/// A full young half becomes the old half. The runs of the old half are forgotten unless a caller used them since.
#[derive(Debug, Default)]
struct PlaceHalves {
    young: HashMap<RunKey, usize>,
    old: HashMap<RunKey, usize>,
}

impl KnownPlaces {
    fn halves(&self) -> MutexGuard<'_, PlaceHalves> {
        // Locked for a few lookups. After a panic, the content is still a hint.
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

    /// Forgets a run, and tells whether it was known.
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
