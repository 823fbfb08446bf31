//! Tracks the starts of children that are in progress in this process. If an activation ends during such a start, it waits until it can cancel the
//! child.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::RunKey;

/// The child starts in progress in this process, with a count per run.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildStarts(Arc<Mutex<HashMap<RunKey, usize>>>);

/// A start in progress.
#[derive(Debug)]
pub(crate) struct ChildStartGuard {
    all: ChildStarts,
    run: RunKey,
}

impl ChildStarts {
    /// Counts a start as in progress until the returned guard is dropped.
    pub(crate) fn begin(&self, run: &RunKey) -> ChildStartGuard {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(run.clone()).or_default() += 1;
        ChildStartGuard { all: self.clone(), run: run.clone() }
    }

    /// Returns whether a start of this run is in progress in this process.
    pub(crate) fn is_starting(&self, run: &RunKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(run)
    }
}

impl Drop for ChildStartGuard {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.run) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.run);
            }
        }
    }
}
