//! Indexes beside logs, where no transaction spans both: what keeps a listing from lacking a run, or showing one that is none.
//!
//! An index of this kind holds *entries*: each says of one life of a run where it stands with some record, and no two records
//! share one. Two rules:
//!
//! 1. *A place is taken before the record.* A writer announces the entry that its record needs, and appends only once that is
//!    stored. Whether a record needs one, [`IndexMove::entry_before`] says.
//! 2. *Every entry is checked against the log.* A reader shows what a run's head says, never what an entry says, and an entry is
//!    given up only on [`EntryCheck::Stale`] or, after a grace, on [`EntryCheck::Unborn`]. A writer gives up what [`IndexMove::stale_entry`] names.
//!
//! **Theorem.** Whichever process dies between whichever steps: (a) a run that has a record has an entry in the place where it
//! stands; (b) no run is shown that has no record, and none as it is not.
//!
//! *Proof.* (b) is rule 2. (a) by induction over the steps, of one life of a run. An append makes record *n* the head: by rule 1
//! the entry for where *n* leaves the run was announced, or the run stands where it stood and has its entry by induction. Nothing
//! removes that entry before a record after *n* moves the run: [`EntryCheck::Stale`] is said of an entry only if its record is not
//! after the head that was read and the run does not stand there with that head; where the entry is of *n* or of an earlier
//! record, that head is *n* or later, and as long as no record after *n* moved the run, it stands there with each of those. An
//! entry of a record after *n* is left alone, whatever it says. [`IndexMove::stale_entry`] names an entry only once a record that moved the
//! run away is in the log, or once the announced record can never be. And a life that has no record yet has no head that could
//! make it stale: it is [`EntryCheck::Unborn`], and given up only if it was older *before the log was read* than the longest time that
//! an append may take from its announcement to its record. A writer that takes longer must not append; a reader that looks at the
//! age only after it has read the log may give up the entry of a record that was written in between.
//!
//! An index may keep one entry for a life instead of one for a record. It then compares the newest record that was announced
//! when it gives up places, in one step with giving them up: that is the same comparison, made by the index.
//!
//! The tests of this module visit every order of the steps of writers, a reader and a purge, with a death between any two.

use std::cmp::Ordering;

use crate::clock::Timestamp;
use crate::id::{ExecutorId, Seq};
use crate::query::RunHead;
use crate::record::{RecordHeader, RunStatus};

/// Where a run stands: what of its head decides in which listings it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunStanding {
    /// The run's status.
    pub status: RunStatus,
    /// Who owns it.
    pub owner: Option<ExecutorId>,
    /// When it is to be woken.
    pub wake_at: Option<Timestamp>,
}

impl RunStanding {
    /// Returns where a run stands with this record as its last.
    pub fn after(last: &RecordHeader) -> Self {
        Self { status: last.status, owner: last.owner, wake_at: last.wake_at }
    }

    /// Returns where a run stands with this head.
    pub fn of(head: &RunHead) -> Self {
        Self { status: head.status, owner: head.owner, wake_at: head.wake_at }
    }
}

/// The effect of an append on a run's entry. `E` names an entry, and is equal exactly if the run stands in the same places.
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
    /// They are not, and never will be.
    Refused,
    /// Whether they are is not known.
    Unknown,
}

impl<E: PartialEq> IndexMove<E> {
    /// A move to where the append's last record leaves the run; `before` is where it stood with the expected head, if that is known.
    pub fn new(before: Option<E>, after: E) -> Self {
        Self { before, after }
    }

    /// Returns the entry to store before the record is written; `None` if the run stays in the place of its entry.
    pub fn entry_before(&self) -> Option<&E> {
        (self.before.as_ref() != Some(&self.after)).then_some(&self.after)
    }

    /// Returns the entry that the writer may remove afterward. In doubt it returns `None`: a reader of the index finds out.
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
    /// Distinguishes the lives of a run under one key: a run that was purged and started again is another life.
    type Life: PartialOrd;

    /// Returns the life that the entry is of.
    fn life(&self) -> &Self::Life;

    /// Returns the record that moves the run to this entry; `None` if the index compares records itself when it removes the entry.
    fn announced_with(&self) -> Option<Seq>;

    /// Returns whether a run that stands so has its place here.
    fn holds(&self, standing: &RunStanding) -> bool;

    /// Checks the entry against the log: the life, the last record and where it leaves the run; `None` if there is no run.
    fn check(&self, log: Option<(&Self::Life, Seq, &RunStanding)>) -> EntryCheck {
        let Some((life, head, standing)) = log else { return EntryCheck::Unborn };
        match self.life().partial_cmp(life) {
            Some(Ordering::Less) => EntryCheck::Stale,
            Some(Ordering::Equal) if self.holds(standing) => EntryCheck::Stands,
            Some(Ordering::Equal) if self.announced_with().is_some_and(|seq| seq > head) => EntryCheck::Ahead,
            Some(Ordering::Equal) => EntryCheck::Stale,
            Some(Ordering::Greater) | None => EntryCheck::Unborn,
        }
    }
}

/// The log's verdict on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryCheck {
    /// The run stands there.
    Stands,
    /// The record that needs the entry is not written yet, or never will be; a later record settles that. Leave the entry.
    Ahead,
    /// The run has moved on, or this life has ended. It may go.
    Stale,
    /// There is no run of this life. It may go when it is too old to belong to an append that is under way.
    Unborn,
}

#[cfg(test)]
mod tests;
