//! Starts that run once per window: for each key, the run that it started and the time of the start.

use std::time::Duration;

use ferrata_core::{RunKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::enqueue_undo::OnceUndo;
use super::{EnqueueUndo, OpResult, QueueState};

/// Maximum number of stored keys.
pub(super) const MAX_KEYS: usize = 10_000;

/// Maximum number of keys that are stored after their windows have ended. A later start may name a longer window.
const MAX_EXPIRED_KEYS: usize = 1_000;

/// The run that a key started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OnceEntry {
    pub(super) run: RunKey,
    /// Time of the start.
    pub(super) at: Timestamp,
    /// Time until which the queue retains the entry: the longest window that a start with this key has named.
    pub(super) until: Timestamp,
}

impl QueueState {
    /// Returns the reason why a start with this key starts nothing: the key started another run within the window of this start. Returns `None` if
    /// the start may proceed.
    pub(super) fn check_once(
        &mut self,
        key: &str,
        ms: u64,
        run: &RunKey,
        now: Timestamp,
    ) -> Option<OpResult> {
        self.remove_expired_keys(now);
        let window = Duration::from_millis(ms);
        match self.once_entries.get(key) {
            Some(seen) if seen.run != *run && seen.at.plus(window) > now => {
                let (before, until) = (seen.run.clone(), seen.at.plus(window));
                if seen.until < until {
                    self.once_entries.update(key, |seen| seen.until = until);
                }
                Some(OpResult::Before(before))
            }
            None if self.once_entries.len() >= MAX_KEYS => Some(OpResult::Seen(MAX_KEYS)),
            _ => None,
        }
    }

    /// Records that this key starts a run. Returns the data that undoes the record.
    pub(super) fn note_once(&mut self, key: String, ms: u64, run: &RunKey, now: Timestamp) -> OnceUndo {
        let before = self.once_entries.get(&key).cloned();
        let until =
            now.plus(Duration::from_millis(ms)).max(before.as_ref().map_or(now, |before| before.until));
        let noted = OnceEntry { run: run.clone(), at: now, until };
        self.once_entries.insert(&key, noted.clone());
        OnceUndo { key, noted, before }
    }

    /// Undoes the `once` key of a start that started no run. If another start has used the key since, nothing changes.
    pub(super) fn undo_once(&mut self, entered: &EnqueueUndo) {
        if let Some(OnceUndo { key, noted, before }) = entered.once()
            && self.once_entries.get(key) == Some(noted)
        {
            self.once_entries.remove(key);
            if let Some(before) = before {
                self.once_entries.insert(key, before.clone());
            }
        }
    }

    fn remove_expired_keys(&mut self, now: Timestamp) {
        if self.once_entries.len() <= MAX_EXPIRED_KEYS {
            return;
        }
        let expired: Vec<String> = self
            .once_entries
            .iter()
            .filter(|(_, seen)| seen.until <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in expired {
            self.once_entries.remove(&key);
        }
    }
}
