//! Tracks for how long this process has seen each orphan (a run whose owner is dead). The store knows the time of a run's last record, but not the
//! time when the owner died.

use std::collections::HashMap;

use crate::clock::Timestamp;
use crate::id::{RecordId, RunKey};
use crate::store::RunHead;

/// The maximum number of orphans that are tracked. It equals the number of runs that one sweep covers.
const MOST: usize = 20_000;

/// The orphans that the last sweeps found.
#[derive(Debug, Default)]
pub(super) struct OrphanTracker(HashMap<RunKey, OrphanAge>);

#[derive(Debug)]
struct OrphanAge {
    head: RecordId,
    since: Timestamp,
    /// The number of the last sweep that found the orphan.
    round: u64,
}

impl OrphanTracker {
    /// Returns the time since which a run has had no driver. If the run was released or never claimed, the result is the time in its head. If the
    /// owner is dead, the result is the time of the first sweep that found the dead owner.
    pub(super) fn since(&mut self, head: &RunHead, round: u64, now: Timestamp) -> Timestamp {
        if head.owner.is_none() {
            return head.updated;
        }
        let is_full = self.0.len() >= MOST;
        match self.0.get_mut(&head.run) {
            Some(seen) if seen.head == head.id => seen.round = round,
            None if is_full => return now,
            _ => drop(self.0.insert(head.run.clone(), OrphanAge { head: head.id, since: now, round })),
        }
        self.0.get(&head.run).map_or(now, |seen| seen.since)
    }

    /// Removes the orphans that no sweep since `round` has found.
    pub(super) fn drop_unseen(&mut self, round: u64) {
        self.0.retain(|_, seen| seen.round >= round);
    }
}
