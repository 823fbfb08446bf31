//! Undo data of starts that fail after they entered the queue. Each start undoes only its own changes.

use ferrata_core::{RunKey, Timestamp};

use super::once::OnceEntry;
use super::{ExpiredStart, OverStart, QueueState, StartId};

/// The changes that a start made outside its own new entry.
#[derive(Debug)]
pub(crate) struct EnqueueUndo {
    run: RunKey,
    at: Timestamp,
    /// An earlier start of the run that missed its deadline, if the run was still to be cancelled.
    late: Option<ExpiredStart>,
    once: Option<OnceUndo>,
    /// The start that this start replaced.
    replaced: Option<String>,
}

/// The `once` key of a start, with the data that undoes it.
#[derive(Debug)]
pub(super) struct OnceUndo {
    pub(super) key: String,
    pub(super) noted: OnceEntry,
    /// The previous entry of the `once` key.
    pub(super) before: Option<OnceEntry>,
}

impl EnqueueUndo {
    pub(super) fn new(
        run: RunKey,
        at: Timestamp,
        late: Option<ExpiredStart>,
        once: Option<OnceUndo>,
        replaced: Option<String>,
    ) -> Self {
        Self { run, at, late, once, replaced }
    }

    pub(super) fn once(&self) -> Option<&OnceUndo> {
        self.once.as_ref()
    }

    /// Returns whether this start recorded a `once` key.
    pub(crate) fn has_once(&self) -> bool {
        self.once.is_some()
    }
}

impl QueueState {
    /// Undoes the changes of a start. If another start of the same run has come since, the entry belongs to that start and stays.
    pub(super) fn take_back(&mut self, id: &str, start_id: StartId, entered: &EnqueueUndo, now: Timestamp) {
        let is_late = self.expired.get(id).is_some_and(|late| late.at == entered.at);
        let is_its = match self.starts_of(id) {
            Some(start_ids) => start_ids == [start_id],
            // Older versions do not store which starts an entry belongs to.
            None => self.last_requester(id).is_some_and(|(by, _)| by == start_id.by),
        };
        if !is_late && !is_its {
            self.resolve_starts(id, &[OverStart::without_run(start_id)], None);
            return;
        }
        self.remove_entry(id);
        self.expired.remove(id);
        if let Some(late) = &entered.late {
            self.expired.insert(id, late.clone());
        }
        self.undo_once(entered);
        if let Some(before) = &entered.replaced {
            self.restore_before(before, &entered.run, now);
        }
    }
}
