//! Starts that are refused once the queue knows of them: each takes back what it has entered, and nothing else.

use ferrata_core::Timestamp;

use super::{Late, Ledger, Life, Seen};

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
    /// Takes back what a start has entered. Where another start of the same run has come since, the entry is of that one.
    pub(super) fn take_back(&mut self, id: &str, life: Life, entered: &Entered) {
        let is_late = self.late.get(id).is_some_and(|late| late.at == entered.at);
        let is_its = match self.lives(id) {
            Some(lives) => lives == [life],
            // An earlier program does not keep which starts stand in it.
            None => self.asked_by(id).is_some_and(|(by, _)| by == life.by),
        };
        if !is_late && !is_its {
            self.settle(id, &[life], None);
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
