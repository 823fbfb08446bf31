//! Debounced starts: each start replaces the previous start if the previous start still waits, so the last start runs.

use std::time::Duration;

use ferrata_core::{RunKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::{QueueState, SlotWaiter};

/// The debounce group of a waiting start. A later start of the same group may replace it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DebounceGroup {
    /// The key of the group.
    pub key: String,
    /// The time of the first start of the group.
    pub first: Timestamp,
}

/// The debounce options of a start, with times in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct DebounceOptions {
    pub(crate) key: String,
    pub(crate) period: u64,
    pub(crate) most: Option<u64>,
}

/// A start that a later start replaced. The entry remains until its run is cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplacedStart {
    pub(crate) waiting: SlotWaiter,
    pub(crate) by: RunKey,
    pub(crate) at: Timestamp,
}

impl QueueState {
    /// Delays a start until no other start of the group has come for the quiet time.
    pub(super) fn delay(
        &self,
        waiting: &mut SlotWaiter,
        debounce: &DebounceOptions,
        before: Option<&str>,
        now: Timestamp,
    ) {
        let before = before.and_then(|id| self.waiting.get(id)?.debounced.as_ref());
        let first = before.map_or(now, |before| before.first);
        let until = now.plus(Duration::from_millis(debounce.period));
        let until = debounce.most.map_or(until, |most| until.min(first.plus(Duration::from_millis(most))));
        waiting.not_before = waiting.not_before.max(Some(until));
        waiting.debounced = Some(DebounceGroup { key: debounce.key.clone(), first });
    }

    /// Removes a waiter from the line, because the run `by` has replaced it.
    pub(super) fn replace(&mut self, id: &str, by: &RunKey, now: Timestamp) {
        let Some(waiting) = self.waiting.get(id).cloned() else { return };
        self.remove_entry(id);
        // The same run now also replaces the starts that this waiter replaced earlier.
        let earlier = self.replaced.iter().filter(|(_, replaced)| replaced.by == waiting.run);
        let earlier: Vec<String> = earlier.map(|(id, _)| id.clone()).collect();
        for id in earlier {
            self.replaced.update(&id, |replaced| (replaced.by, replaced.at) = (by.clone(), now));
        }
        self.replaced.insert(id, ReplacedStart { waiting, by: by.clone(), at: now });
    }

    /// Puts back a waiter that a failed start had replaced. The waiter then replaces the earlier starts again.
    pub(super) fn restore_before(&mut self, id: &str, by: &RunKey, now: Timestamp) {
        let Some(replaced) = self.replaced.get(id).filter(|replaced| replaced.by == *by).cloned() else {
            return;
        };
        let earlier = self.replaced.iter().filter(|(other, replaced)| *other != id && replaced.by == *by);
        let earlier: Vec<String> = earlier.map(|(id, _)| id.clone()).collect();
        for earlier in earlier {
            self.replaced.update(&earlier, |one| (one.by, one.at) = (replaced.waiting.run.clone(), now));
        }
        self.restore(id, by, now);
    }

    /// Puts a waiter back into the line, because the start that replaced it was never recorded.
    pub(super) fn restore(&mut self, id: &str, by: &RunKey, now: Timestamp) {
        let Some(replaced) = self.replaced.get(id).filter(|replaced| replaced.by == *by).cloned() else {
            return;
        };
        self.replaced.remove(id);
        let key = replaced.waiting.debounced.as_ref().map(|one| one.key.clone()).unwrap_or_default();
        let other = self.waiting.debounced_run(&key);
        self.insert_waiter(id.to_owned(), replaced.waiting.clone());
        // Of two starts of a group, the later stays in the line.
        let Some(other) = other else { return };
        let Some(waiting) = self.waiting.get(&other).cloned() else { return };
        if waiting.run == *by {
            self.remove_entry(&other);
        } else if waiting.since < replaced.waiting.since {
            self.replace(&other, &replaced.waiting.run, now);
        } else {
            self.replace(id, &waiting.run, now);
        }
    }
}
