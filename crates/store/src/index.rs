//! Indexes next to logs, in stores without a transaction over both. The rules here keep every listing complete and correct.
//!
//! An index holds *entries*. An entry names one generation of a run (a purge and a new start of the same id begin the next generation), one record,
//! and a position in a listing. No two records share an entry. Two rules apply:
//!
//! 1. *The entry comes before the record.* A writer stores the entry that its record needs, and only then appends the record.
//!    [`IndexMove::entry_before`] says whether a record needs one.
//! 2. *Readers check every entry against the log.* A reader shows the head of the run, never the entry. It removes an entry only on
//!    [`EntryCheck::Stale`] or, after a grace, on [`EntryCheck::Unborn`]. A writer removes the entry that [`IndexMove::stale_entry`] names.
//!
//! **Theorem.** Even if processes die between any two steps: (a) a run with a record has an entry at its position; (b) no listing shows a run
//! without a record, or a run with a false head.
//!
//! *Proof.* (b) is rule 2. (a) holds by induction over the steps of one generation. Let an append make record *n* the head. If *n* moves the run to
//! another position, rule 1 stored the entry for that position first. If it does not, the run has its entry by induction. That entry stays until a
//! record after *n* moves the run:
//!
//! - A reader finds an entry [`EntryCheck::Stale`] only if its record is not after the head that the reader loaded, and that head has another
//!   position. For an entry of *n* or of an earlier record, the head is *n* or later. Until a record after *n* moves the run, each such head has
//!   the position of the entry.
//! - A reader never removes the entry of a record after *n*.
//! - [`IndexMove::stale_entry`] names an entry only once a record that moves the run is in the log, or the record of the entry can never follow.
//! - A generation without a record has no head. Its entry is [`EntryCheck::Unborn`]. A reader removes it only if the entry was, *before the reader
//!   loaded the log*, older than the longest time from an entry to its record. A writer that takes longer must not append.
//!
//! An index may keep one entry for a generation instead of one for a record. It then compares the newest announced record, in one step with the
//! removal: the index itself makes the same comparison.
//!
//! The tests of this module visit every order of the steps of writers, a reader and a purge, with a death between any two.

use std::cmp::Ordering;

use crate::clock::Timestamp;
use crate::id::{ExecutorId, Seq};
use crate::query::RunHead;
use crate::record::{RecordHeader, RunStatus};

/// The fields of a run's head that decide in which listings the run appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunStanding {
    /// The run's status.
    pub status: RunStatus,
    /// The owner of the run.
    pub owner: Option<ExecutorId>,
    /// The time at which the run is to be woken.
    pub wake_at: Option<Timestamp>,
}

impl RunStanding {
    /// Returns the fields after the record `last`.
    pub fn after(last: &RecordHeader) -> Self {
        Self { status: last.status, owner: last.owner, wake_at: last.wake_at }
    }

    /// Returns the fields of `head`.
    pub fn of(head: &RunHead) -> Self {
        Self { status: head.status, owner: head.owner, wake_at: head.wake_at }
    }
}

/// The effect of an append on a run's index entry. `E` names an entry. Two values of `E` are equal if and only if the run appears at the same
/// positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMove<E> {
    before: Option<E>,
    after: E,
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The records are in the log.
    Written,
    /// The records are not in the log, and never will be.
    Refused,
    /// It is unknown whether the records are in the log.
    Unknown,
}

impl<E: PartialEq> IndexMove<E> {
    /// Creates a move. `after` is the entry that the append's last record needs; `before` is the entry of the expected head, if it is known.
    pub fn new(before: Option<E>, after: E) -> Self {
        Self { before, after }
    }

    /// Returns the entry to store before the record is written; `None` if the run keeps its entry.
    pub fn entry_before(&self) -> Option<&E> {
        (self.before.as_ref() != Some(&self.after)).then_some(&self.after)
    }

    /// Returns the entry that the writer may remove after the append. Returns `None` if the outcome is unknown; a reader of the index removes the
    /// entry later.
    pub fn stale_entry(self, outcome: AppendOutcome) -> Option<E> {
        let is_moved = self.entry_before().is_some();
        match outcome {
            AppendOutcome::Written => self.before.filter(|_| is_moved),
            AppendOutcome::Refused => is_moved.then_some(self.after),
            AppendOutcome::Unknown => None,
        }
    }
}

/// An entry of an index, as a reader finds it.
pub trait IndexEntry {
    /// Distinguishes the generations of a run id. A run that was purged and started again is another generation.
    type Generation: PartialOrd;

    /// Returns the generation that the entry belongs to.
    fn generation(&self) -> &Self::Generation;

    /// Returns the record that moves the run to this entry; `None` if the index itself compares records when it removes the entry.
    fn announced_with(&self) -> Option<Seq>;

    /// Returns whether a run with these head fields belongs at the position of this entry.
    fn holds(&self, standing: &RunStanding) -> bool;

    /// Checks the entry against the log. `log` has the generation, the number of the last record and the head fields; `None` means that the run
    /// does not exist.
    fn check(&self, log: Option<(&Self::Generation, Seq, &RunStanding)>) -> EntryCheck {
        let Some((generation, head, standing)) = log else { return EntryCheck::Unborn };
        match self.generation().partial_cmp(generation) {
            Some(Ordering::Less) => EntryCheck::Stale,
            Some(Ordering::Equal) if self.holds(standing) => EntryCheck::Stands,
            Some(Ordering::Equal) if self.announced_with().is_some_and(|seq| seq > head) => EntryCheck::Ahead,
            Some(Ordering::Equal) => EntryCheck::Stale,
            Some(Ordering::Greater) | None => EntryCheck::Unborn,
        }
    }
}

/// The result of checking an entry against the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryCheck {
    /// The run belongs at the position of the entry.
    Stands,
    /// The record that needs the entry is not written yet, or never will be. Leave the entry; a later record decides.
    Ahead,
    /// The run has moved on, or this generation has ended. The entry may be removed.
    Stale,
    /// The log has no run of this generation. The entry may be removed once it is too old to belong to an append in progress.
    Unborn,
}

#[cfg(test)]
mod tests;
