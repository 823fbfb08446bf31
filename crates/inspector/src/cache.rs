//! Answers about a run that stay true as long as its head is the same, so that a page that is open costs the store one question at a time.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata_core::{RecordId, RunKey};
use serde_json::Value;

/// How many answers are kept, and how many bytes one may have: beyond that it is made anew.
const ENTRIES: usize = 2_048;

/// What an answer is about.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) run: RunKey,
    /// The head for which it holds: a run of the same name in another life has another.
    pub(crate) head: RecordId,
    /// Which answer.
    pub(crate) what: &'static str,
}

/// Answers that stay true as long as a run's head is the same.
#[derive(Default)]
pub(crate) struct Cache(Mutex<VecDeque<(About, Arc<Value>)>>);

impl Cache {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(About, Arc<Value>)>> {
        // What is in there is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds an answer.
    pub(crate) fn get(&self, about: &About) -> Option<Arc<Value>> {
        let all = self.lock();
        all.iter().rev().find(|(known, _)| known == about).map(|(_, value)| Arc::clone(value))
    }

    /// Keeps an answer, in the place of an older one of the same run.
    pub(crate) fn put(&self, about: About, value: Value) -> Arc<Value> {
        let value = Arc::new(value);
        let mut all = self.lock();
        all.retain(|(known, _)| known.run != about.run || known.what != about.what);
        all.push_back((about, Arc::clone(&value)));
        while all.len() > ENTRIES {
            all.pop_front();
        }
        value
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cache").field(&self.lock().len()).finish()
    }
}
