//! The keys of a queue: the last turn of each key, and the number of its slots.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ferrata_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::grants::micros;
use super::tracked_map::TrackedMap;

/// The stored state of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyNote {
    /// The turn at which the key was last granted a slot; before that, the turn at which it arrived.
    pub(super) turn: u64,
    /// Next allowed grant at the key's rate, in microseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) next: i64,
    /// Number of grants since that turn. A key with a weight keeps its turn for as many grants.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) used: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_none(used: &u32) -> bool {
    *used == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(next: &i64) -> bool {
    *next == 0
}

/// The stored state of a key, and its numbers of holders and waiters.
#[derive(Clone, Copy, Debug, Default)]
struct KeyCounts {
    places: u32,
    entries: usize,
}

/// The keys of holders and waiters, and some keys that were used earlier.
#[derive(Debug)]
pub(crate) struct KeyTable {
    notes: TrackedMap<KeyNote>,
    /// Counts of the keys that have an entry.
    loads: HashMap<String, KeyCounts>,
    /// The keys that have a stored state but no entry.
    idle: BTreeSet<String>,
}

impl KeyTable {
    /// Creates the table from stored states. [`count_arrival`](Self::count_arrival) and [`count_slots`](Self::count_slots) then add holders and
    /// waiters.
    pub(super) fn new(notes: BTreeMap<String, KeyNote>) -> Self {
        let idle = notes.keys().cloned().collect();
        Self { notes: TrackedMap::new(notes), loads: HashMap::new(), idle }
    }

    /// Returns the states of the keys, to be stored.
    pub(super) fn notes(&mut self) -> &mut TrackedMap<KeyNote> {
        &mut self.notes
    }

    pub(super) fn bytes(&self) -> usize {
        self.notes.bytes()
    }

    /// Returns whether keys take turns: true once a waiter names a key or a key has a rate.
    pub(super) fn take_turns(&self) -> bool {
        !self.notes.is_empty()
    }

    pub(super) fn key_note(&self, key: &str) -> Option<&KeyNote> {
        self.notes.get(key)
    }

    /// Applies the stored state of a key that another process has written.
    pub(super) fn note_is(&mut self, key: &str, note: Option<KeyNote>) {
        self.idle.remove(key);
        match note {
            Some(note) => {
                self.notes.insert(key, note);
                if !self.loads.contains_key(key) {
                    self.idle.insert(key.to_owned());
                }
            }
            None => drop(self.notes.remove(key)),
        }
    }

    /// Returns the number of slots of a key.
    pub(super) fn places(&self, key: &str) -> u32 {
        self.loads.get(key).map_or(0, |load| load.places)
    }

    /// Records that a request with this key came at this turn. A new key is served after each existing key has been served once.
    pub(super) fn count_arrival(&mut self, key: &str, turn: u64) {
        if !key.is_empty() || self.take_turns() {
            // Waiters without a key take turns from now on, too.
            let keyless = self.loads.contains_key("").then_some("");
            for key in keyless.into_iter().chain([key]) {
                if !self.notes.contains_key(key) {
                    self.notes.insert(key, KeyNote { turn, ..KeyNote::default() });
                }
            }
        }
        self.count_stored_entry(key);
    }

    /// Counts an entry of a key that already has a stored state.
    pub(super) fn count_stored_entry(&mut self, key: &str) {
        self.idle.remove(key);
        self.loads.entry(key.to_owned()).or_default().entries += 1;
    }

    /// Counts slots that were granted to an entry with this key.
    pub(super) fn count_slots(&mut self, key: &str, places: u32) {
        if let Some(load) = self.loads.get_mut(key) {
            load.places = load.places.saturating_add(places);
        }
    }

    /// Records a grant to a key at this turn, and the time of its next allowed grant. The key keeps its earlier turn, and so remains first, until it
    /// was granted as many slots as its weight.
    pub(super) fn record_turn(&mut self, key: &str, turn: u64, weight: u32, next: impl FnOnce(i64) -> i64) {
        let before = self.notes.get(key).cloned().unwrap_or_default();
        let (turn, used) = match before.used.saturating_add(1) {
            used if used < weight => (before.turn, used),
            _ => (turn, 0),
        };
        self.notes.insert(key, KeyNote { turn, next: next(before.next), used });
    }

    /// Records that an entry with this key was removed and released this number of slots.
    pub(super) fn count_departure(&mut self, key: &str, places: u32) {
        let Some(load) = self.loads.get_mut(key) else { return };
        load.places = load.places.saturating_sub(places);
        load.entries = load.entries.saturating_sub(1);
        if load.entries == 0 {
            self.loads.remove(key);
            if self.notes.contains_key(key) {
                self.idle.insert(key.to_owned());
            }
        }
    }

    /// Returns the whole content of the table, in a fixed order.
    #[cfg(test)]
    pub(super) fn debug_text(&self) -> String {
        let loads: BTreeMap<_, _> = self.loads.iter().collect();
        format!("{:?} {loads:?} {:?}", *self.notes, self.idle)
    }

    /// Caps the next allowed time of every key at `most`.
    pub(super) fn bound_rates(&mut self, most: i64) {
        let ahead = self.notes.iter().filter(|(_, note)| note.next > most);
        let ahead: Vec<String> = ahead.map(|(key, _)| key.clone()).collect();
        for key in ahead {
            self.notes.update(&key, |note| note.next = most);
        }
    }

    /// Removes the keys that have no slots and no waiters, and whose rate allows a grant.
    pub(super) fn remove_idle(&mut self, now: Timestamp) {
        let (now, notes) = (micros(now), &mut self.notes);
        self.idle.retain(|key| {
            let is_over = notes.get(key).is_none_or(|note| note.next <= now);
            if is_over {
                notes.remove(key);
            }
            !is_over
        });
    }
}
