//! Since when orphans are seen: a store says when a run's last record was made, and not when its owner died.

use std::collections::HashMap;

use crate::clock::Timestamp;
use crate::id::{RecordId, RunKey};
use crate::store::RunHead;

/// How many orphans are remembered: as many as one look goes through.
const MOST: usize = 20_000;

/// The orphans that the last looks found.
#[derive(Debug, Default)]
pub(super) struct OrphanTracker(HashMap<RunKey, OrphanAge>);

#[derive(Debug)]
struct OrphanAge {
    head: RecordId,
    since: Timestamp,
    /// The look that found it last.
    round: u64,
}

impl OrphanTracker {
    /// Returns since when a run is known to have no driver. One that was let go of, or that no process began with, says so itself; of one
    /// whose owner died, it is known since the first look that found it so.
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

    /// Forgets what no look since this one has found.
    pub(super) fn forget_before(&mut self, round: u64) {
        self.0.retain(|_, seen| seen.round >= round);
    }
}
