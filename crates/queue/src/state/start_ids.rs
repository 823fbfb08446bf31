//! The starts of a run id in an entry. Callers may purge a run and start its id again while the queue still handles the previous run.

use std::fmt;
use std::str::FromStr;

use ferrata_core::record::{RunFacts, RunStatus};
use ferrata_core::store::RunHead;
use ferrata_core::{ExecutorId, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use super::{QueueState, SlotHolder, SlotKind, SlotWaiter};
use crate::queue_run::START_ID;

/// A start whose run has ended or will never exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverStart {
    pub(crate) start: StartId,
    /// The record that ended its run. If the start will never record a run, or its run was purged, this is the highest possible number.
    pub(crate) ended_at: Seq,
}

impl OverStart {
    /// Creates the value for a start that has no run and will never have one.
    pub(crate) fn without_run(start: StartId) -> Self {
        Self { start, ended_at: Seq::new(u64::MAX) }
    }
}

/// A run that was found in the store and had not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundRun {
    pub(crate) start: StartId,
    /// The last record of the run when it was found.
    pub(crate) at: Seq,
}

impl FoundRun {
    /// Creates the value from a head; `None` if the run names no start.
    pub(crate) fn of(head: &RunHead) -> Option<Self> {
        StartId::of(&head.facts).map(|start| Self { start, at: head.seq })
    }

    /// Creates the value as [`of`](Self::of) does, for a run that may be on hold at its last record. In this case the number of the record before is
    /// used, so that the request of this run still counts as new.
    pub(crate) fn of_holder(head: &RunHead) -> Option<Self> {
        let mut found = Self::of(head)?;
        if head.status == RunStatus::Interrupted {
            found.at = Seq::new(found.at.get().saturating_sub(1));
        }
        Some(found)
    }
}

/// The id of one start of a run id. The starter chooses the id before it requests the slot. The entry contains the id, and a label of the recorded
/// run contains it too. The id is unique among the starts of the run id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct StartId {
    /// The process that requests the slot, and the time since which it waits.
    pub(crate) by: ExecutorId,
    pub(crate) since: Timestamp,
    /// Distinguishes starts that one process requested at the same time. The first of these starts has the number 0.
    pub(crate) nth: u64,
}

impl StartId {
    /// Returns the start that recorded the run. `None` if the run has no such label or the label cannot be parsed, for example because an earlier
    /// version recorded the run.
    pub(crate) fn of(facts: &RunFacts) -> Option<Self> {
        facts.labels.get(START_ID)?.parse().ok()
    }
}

impl fmt::Display for StartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.by, self.since.unix_ms(), self.nth)
    }
}

impl FromStr for StartId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (by, rest) = text.split_once('.')?;
            let (since, nth) = rest.split_once('.')?;
            let since = Timestamp::from_unix_ms(since.parse().ok()?);
            Some(Self { by: by.parse().ok()?, since, nth: nth.parse().ok()? })
        };
        read().ok_or_else(|| format!("`{text}` is not the name of a start; use `process.moment.number`"))
    }
}

impl TryFrom<String> for StartId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<StartId> for String {
    fn from(start_id: StartId) -> Self {
        start_id.to_string()
    }
}

impl SlotWaiter {
    /// Returns the default start of an entry. The default is not stored, so an entry of a long line takes fewer bytes.
    fn first_start(&self) -> StartId {
        StartId { by: self.executor, since: self.since, nth: 0 }
    }

    /// Returns the starts of a run in this entry; none for a node.
    pub(super) fn all_starts(&self) -> Vec<StartId> {
        match self.kind {
            SlotKind::Node => Vec::new(),
            SlotKind::Run if self.start_ids.is_empty() => vec![self.first_start()],
            SlotKind::Run => self.start_ids.clone(),
        }
    }

    /// Sets the starts of a run that this entry belongs to.
    pub(crate) fn is_of(&mut self, start_ids: Vec<StartId>) {
        self.start_ids = if start_ids == [self.first_start()] { Vec::new() } else { start_ids };
    }
}

impl SlotHolder {
    /// Returns whether the run of this start is known to have been stored.
    pub(crate) fn was_on_record(&self, start: StartId) -> bool {
        self.alive.is_some_and(|alive| alive.start == start)
    }

    /// Returns whether the starts of this entry are known. Otherwise the entry stands for any start of its run.
    pub(crate) fn has_start_ids(&self) -> bool {
        !self.start_ids.is_empty()
    }
}

impl QueueState {
    /// Returns the starts in the entry of a run; `None` if there is no entry, or if the entry stands for any start.
    pub(super) fn starts_of(&self, id: &str) -> Option<Vec<StartId>> {
        let start_ids = match self.held.get(id) {
            Some(held) => held.start_ids.clone(),
            None => self.waiting.get(id)?.all_starts(),
        };
        (!start_ids.is_empty()).then_some(start_ids)
    }

    /// Removes ended starts from an entry, and adds the start of a run that is stored and has not ended. Removing the last start removes the entry. A
    /// start stays if its run was revived after the recorded end.
    pub(super) fn resolve_starts(&mut self, id: &str, gone: &[OverStart], found: Option<FoundRun>) {
        let Some(before) = self.starts_of(id) else { return };
        let mut start_ids = before.clone();
        let alive = self.running_start(id);
        let is_over = |start_id: &StartId| {
            let revived =
                |ended_at| alive.is_some_and(|alive| alive.start == *start_id && alive.at >= ended_at);
            gone.iter().any(|over| over.start == *start_id && !revived(over.ended_at))
        };
        start_ids.retain(|start_id| !is_over(start_id));
        if let Some(found) = found {
            start_ids.extend((!start_ids.contains(&found.start)).then_some(found.start));
            self.mark_alive(id, Some(found));
        }
        if start_ids.is_empty() {
            self.remove_entry(id);
        } else if start_ids != before {
            self.set_start_ids(id, start_ids);
        }
    }

    /// Adds starts to an entry. Removes the earlier starts of the same process with unknown outcome.
    pub(super) fn add_start(&mut self, id: &str, start_ids: &[StartId], doubts: &[StartId]) {
        if let Some(before) = self.starts_of(id) {
            let mut all = before.clone();
            all.retain(|start_id| !doubts.contains(start_id));
            all.extend(start_ids.iter().filter(|start_id| !before.contains(start_id)));
            if all != before {
                self.set_start_ids(id, all);
            }
        }
    }

    fn running_start(&self, id: &str) -> Option<FoundRun> {
        match self.held.get(id) {
            Some(held) => held.alive,
            None => self.waiting.get(id)?.alive,
        }
    }

    /// Records that a run of an entry had not ended at this record.
    pub(super) fn mark_alive(&mut self, id: &str, found: Option<FoundRun>) {
        let Some(found) = found else { return };
        if self.running_start(id).is_some_and(|alive| alive.start == found.start && alive.at >= found.at) {
            return;
        }
        if self.held.contains_key(id) {
            self.held.update(id, |held| held.alive = Some(found));
        } else {
            self.waiting.update(id, |waiting| waiting.alive = Some(found));
        }
    }

    fn set_start_ids(&mut self, id: &str, start_ids: Vec<StartId>) {
        if self.held.contains_key(id) {
            self.held.update(id, |held| held.start_ids = start_ids);
        } else {
            self.waiting.update(id, |waiting| waiting.is_of(start_ids));
        }
    }
}
