//! The starts of a process that are under way.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::ledger::Entered;

/// What was entered by the last start of each run, until that has come to its end. A start before it takes nothing back any more: the run may be
/// that of the last one.
#[derive(Default)]
pub(super) struct Starts(HashMap<String, Weak<Entered>>);

impl Starts {
    /// Notes that a run is started.
    pub(super) fn begin(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Notes what the last start of a run has entered.
    pub(super) fn enter(&mut self, id: String, entered: Entered) -> Arc<Entered> {
        let entered = Arc::new(entered);
        self.0.insert(id, Arc::downgrade(&entered));
        entered
    }

    /// Tells whether a start that was refused takes back what it has entered.
    pub(super) fn is_last(&self, id: &str, entered: &Arc<Entered>) -> bool {
        self.0.get(id).is_some_and(|last| last.as_ptr() == Arc::as_ptr(entered))
    }

    /// Forgets the starts that have come to their ends.
    pub(super) fn forget(&mut self) {
        self.0.retain(|_, entered| entered.strong_count() > 0);
    }
}
