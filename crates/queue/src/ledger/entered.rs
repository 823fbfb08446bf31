//! Starts that are refused once the queue knows of them: each takes back what it has entered, and nothing else.

use ferrata_core::{ExecutorId, Timestamp};

use super::{Late, Ledger, Seen};

/// What a start has changed beside its entry, which was not in the queue before.
#[derive(Debug)]
pub(crate) struct Entered {
    at: Timestamp,
    /// Its run was to be cancelled.
    late: Option<Late>,
    once: Option<Noted>,
}

/// By which key a start is remembered.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) key: String,
    pub(super) seen: Seen,
    /// What was remembered by the key before.
    pub(super) before: Option<Seen>,
}

impl Entered {
    pub(super) fn new(at: Timestamp, late: Option<Late>, once: Option<Noted>) -> Self {
        Self { at, late, once }
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
        // Its time may be over, and another start be remembered by the key since.
        if let Some(Noted { key, seen, before }) = &entered.once
            && self.seen.get(key) == Some(seen)
        {
            self.seen.remove(key);
            if let Some(before) = before {
                self.seen.insert(key, before.clone());
            }
        }
    }
}
