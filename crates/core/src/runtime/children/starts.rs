//! The children that this process is about to start: an activation that ends meanwhile waits until it can cancel them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::RunKey;

/// The children that this process is about to start, with how often.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildStarts(Arc<Mutex<HashMap<RunKey, usize>>>);

/// A start under way.
#[derive(Debug)]
pub(crate) struct ChildStartGuard {
    all: ChildStarts,
    run: RunKey,
}

impl ChildStarts {
    /// Counts a start as under way until what this returns is dropped.
    pub(crate) fn begin(&self, run: &RunKey) -> ChildStartGuard {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(run.clone()).or_default() += 1;
        ChildStartGuard { all: self.clone(), run: run.clone() }
    }

    /// Whether a start of this run is under way here.
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
