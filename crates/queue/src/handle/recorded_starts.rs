//! Starts whose runs this process has seen in the store. If such a run is missing later, it was purged.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::state::StartId;

/// Maximum number of remembered starts. If a start was forgotten, the queue waits longer for its missing run.
const MAX_STARTS: usize = 4_096;

/// The start of each run that this process has seen in the store, by entry id.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedStarts(Arc<Mutex<HashMap<String, StartId>>>);

impl RecordedStarts {
    fn lock_starts(&self) -> MutexGuard<'_, HashMap<String, StartId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, id: &str, start: StartId) {
        let mut all = self.lock_starts();
        if all.len() >= MAX_STARTS && !all.contains_key(id) {
            all.clear();
        }
        all.insert(id.to_owned(), start);
    }

    pub(super) fn has(&self, id: &str, start: StartId) -> bool {
        self.lock_starts().get(id) == Some(&start)
    }

    /// Removes the starts whose entries no longer exist.
    pub(super) fn retain(&self, is_entry: impl Fn(&str) -> bool) {
        self.lock_starts().retain(|id, _| is_entry(id));
    }
}
