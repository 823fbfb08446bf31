//! A bounded cache of heads. Each cached head is only a guess, which the server confirms or refutes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ferrata_store::RunKey;

use crate::view::CachedHead;

/// The heads of the runs that were used last.
///
/// The cache has two halves. A head that is used moves to the young half. When the young half is full, it becomes the old half, and the previous
/// old half is dropped.
#[derive(Debug)]
pub(crate) struct HeadCache {
    most: usize,
    // Locked for a lookup or a move, never across an await.
    halves: Mutex<CacheHalves>,
}

#[derive(Debug, Default)]
struct CacheHalves {
    young: HashMap<RunKey, Arc<CachedHead>>,
    old: HashMap<RunKey, Arc<CachedHead>>,
}

impl HeadCache {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, halves: Mutex::default() }
    }

    pub(crate) fn get(&self, run: &RunKey) -> Option<Arc<CachedHead>> {
        // After a panic, the maps are still valid, and their contents are only guesses.
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = halves.young.get(run) {
            return Some(Arc::clone(seen));
        }
        let seen = halves.old.remove(run)?;
        self.insert(&mut halves, run, Arc::clone(&seen));
        Some(seen)
    }

    pub(crate) fn put(&self, run: &RunKey, seen: Arc<CachedHead>) {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.old.remove(run);
        self.insert(&mut halves, run, seen);
    }

    pub(crate) fn remove(&self, run: &RunKey) {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.young.remove(run);
        halves.old.remove(run);
    }

    fn insert(&self, halves: &mut CacheHalves, run: &RunKey, seen: Arc<CachedHead>) {
        if halves.young.len() >= self.most.div_ceil(2) {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(run.clone(), seen);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let halves = self.halves.lock().unwrap();
        halves.young.len() + halves.old.len()
    }
}

#[cfg(test)]
mod tests {
    use ferrata_store::RunId;

    use super::*;

    #[test]
    fn cache_keeps_used_entries_within_bound() {
        let cache = HeadCache::new(10);
        let key = |n: usize| RunKey::from(RunId::new(format!("r-{n}")).unwrap());
        for n in 0..100 {
            cache.put(&key(n), Arc::new(CachedHead::example()));
            assert!(cache.get(&key(0)).is_some(), "used repeatedly");
            assert!(cache.len() <= 10);
        }
        assert!(cache.get(&key(1)).is_none(), "unused for long");
        cache.remove(&key(0));
        assert!(cache.get(&key(0)).is_none());
    }
}
