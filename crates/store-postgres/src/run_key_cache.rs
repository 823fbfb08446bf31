//! The keys of recently used runs, so that an append finds its run without its name.
//!
//! A key may be outdated: another process may have purged the run and started it again. No run gets that key again, and a purge removes all records
//! of the key. So an append with an outdated key writes nothing, and then reads the key again.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, PoisonError};

use ferrata_store::RunKey;

/// The maximum number of keys in each of the two maps.
const LIMIT: usize = 16_384;

/// A cache of the keys of runs. It removes runs that were not used since [`LIMIT`] others were.
#[derive(Debug, Default)]
pub(crate) struct RunKeyCache(Mutex<RecentKeys>);

#[derive(Debug, Default)]
struct RecentKeys {
    recent: HashMap<RunKey, i64>,
    /// The previous `recent` map.
    older: HashMap<RunKey, i64>,
}

impl RunKeyCache {
    /// Returns the key of a run, if the cache has it.
    pub(crate) fn get(&self, run: &RunKey) -> Option<i64> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = keys.recent.get(run) {
            return Some(*key);
        }
        let (run, key) = keys.older.remove_entry(run)?;
        keys.insert(run, key);
        Some(key)
    }

    /// Sets the key of a run.
    pub(crate) fn set(&self, run: &RunKey, key: i64) {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match keys.recent.get_mut(run) {
            Some(known) => *known = key,
            None => keys.insert(run.clone(), key),
        }
    }
}

impl RecentKeys {
    fn insert(&mut self, run: RunKey, key: i64) {
        if self.recent.len() >= LIMIT {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(run, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_removes_least_recent_runs() {
        let cache = RunKeyCache::default();
        let run = |n: usize| RunKey::try_from(&*format!("r-{n}")).unwrap();
        for n in 0..3 * LIMIT {
            cache.set(&run(n), i64::try_from(n).unwrap());
            assert_eq!(cache.get(&run(0)), Some(0), "a run in use stays");
        }
        assert_eq!(cache.get(&run(1)), None);
        assert_eq!(cache.get(&run(3 * LIMIT - 1)), i64::try_from(3 * LIMIT - 1).ok());
        cache.set(&run(0), 7);
        assert_eq!(cache.get(&run(0)), Some(7));
        let keys = cache.0.lock().unwrap();
        assert!(keys.recent.len() + keys.older.len() <= 2 * LIMIT);
    }
}
