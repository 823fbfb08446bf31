//! Starts that are refused once the queue knows of them: each takes back what it has entered, and nothing else.

use ferrata_core::{ExecutorId, Timestamp};

use super::{Late, Ledger};

/// What a start has changed beside its entry, which was not in the queue before.
#[derive(Debug)]
pub(crate) struct Entered {
    at: Timestamp,
    /// Its run was to be cancelled.
    late: Option<Late>,
}

impl Entered {
    pub(super) fn new(at: Timestamp, late: Option<Late>) -> Self {
        Self { at, late }
    }
}

impl Ledger {
    /// Takes back what a start of this process has entered. Where another process has started the same run since, the entry is of that start.
    pub(super) fn take_back(&mut self, id: &str, executor: ExecutorId, entered: &Entered) {
        let is_late = self.late.get(id).is_some_and(|late| late.at == entered.at);
        if !is_late && self.asked_by(id).is_none_or(|(by, _)| by != executor) {
            return;
        }
        self.leave(id);
        self.late.remove(id);
        if let Some(late) = &entered.late {
            self.late.insert(id, late.clone());
        }
    }
}
