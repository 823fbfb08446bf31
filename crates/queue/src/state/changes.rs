//! Applies the changes of other processes to this process's copy of a queue. The time is proportional to the size of the change.

use ferrata_core::state::Op;
use ferrata_core::{ExecutorId, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::entry::{SlotHolder, StoredSize};
use super::keys::KeyNote;
use super::store::{
    HELD, KEYS, LATE, OVERRIDES, PULSE, REPLACED, SEEN, SETTINGS, WAITING, entry, executor_of,
    read_plain_run, run_named,
};
use super::tracked_map::TrackedMap;
use super::wait_queue::{RUN, WaiterKey, waiter_key};
use super::{DirtyFlags, QueueState, SlotWaiter};

/// A change of a channel entry.
#[derive(Clone, Copy)]
enum EntryChange<'a> {
    Is(&'a Value),
    Gone,
}

impl QueueState {
    /// Applies changes of the channels to a state that was [read](Self::read) before. Returns `None` if the caller must read the whole state again.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read).
    pub(crate) fn apply_changes(mut self, changes: &[Op]) -> Result<Option<Self>> {
        // A waiter is still to be moved to another key. Applying the changes would lose this move, so the state must be read again.
        if self.waiting.is_touched() {
            return Ok(None);
        }
        for change in changes {
            if !self.take_in(change)? {
                return Ok(None);
            }
        }
        for touched in [
            self.held.take_touched(),
            self.expired.take_touched(),
            self.replaced.take_touched(),
            self.keys.notes().take_touched(),
            self.once_entries.take_touched(),
        ] {
            drop(touched);
        }
        drop(self.waiting.take_touched());
        self.dirty = DirtyFlags::default();
        self.granted.clear();
        self.undos.clear();
        Ok(Some(self))
    }

    /// Applies one change; returns `false` if its kind is unknown.
    fn take_in(&mut self, change: &Op) -> Result<bool> {
        match change {
            Op::Set(channel, value) => match channel.as_str() {
                SETTINGS => self.settings = entry(channel, value)?,
                OVERRIDES => self.overrides = entry(channel, value)?,
                PULSE => self.grants = entry(channel, value)?,
                _ => {
                    let Some(entries) = value.as_object() else { return Ok(false) };
                    return Ok(self.empty(channel)? && self.merge(channel, entries)?);
                }
            },
            Op::Remove(channel, ids) if ids.is_empty() => match channel.as_str() {
                OVERRIDES => self.overrides = Default::default(),
                PULSE => self.grants = Default::default(),
                _ => return self.empty(channel),
            },
            Op::Remove(channel, ids) => {
                for id in ids {
                    if !self.change(channel, id, EntryChange::Gone)? {
                        return Ok(false);
                    }
                }
            }
            Op::Merge(channel, entries) => return self.merge(channel, entries),
            Op::Append(..) => return Ok(false),
        }
        Ok(true)
    }

    /// Inserts entries into a channel.
    fn merge(&mut self, channel: &str, entries: &Map<String, Value>) -> Result<bool> {
        for (id, entry) in entries {
            if !self.change(channel, id, EntryChange::Is(entry))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes all entries of a channel.
    fn empty(&mut self, channel: &str) -> Result<bool> {
        let ids: Vec<String> = match channel {
            HELD => self.held.keys().cloned().collect(),
            LATE => self.expired.keys().cloned().collect(),
            REPLACED => self.replaced.keys().cloned().collect(),
            KEYS => self.keys.notes().keys().cloned().collect(),
            SEEN => self.once_entries.keys().cloned().collect(),
            WAITING => self.waiting.keys().cloned().collect(),
            _ => match executor_of(channel)? {
                Some(executor) => self.waiting.plain_of(executor),
                None => return Ok(false),
            },
        };
        for id in ids {
            if !self.change(channel, &id, EntryChange::Gone)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn change(&mut self, channel: &str, id: &str, fate: EntryChange<'_>) -> Result<bool> {
        match channel {
            HELD => {
                if let Some(held) = self.held.remove(id) {
                    self.in_use = self.in_use.saturating_sub(held.places);
                    self.keys.count_departure(&held.key, held.places);
                }
                if let EntryChange::Is(value) = fate {
                    let held: SlotHolder = entry(channel, value)?;
                    self.in_use = self.in_use.saturating_add(held.places);
                    self.keys.count_stored_entry(&held.key);
                    self.keys.count_slots(&held.key, held.places);
                    self.held.insert(id, held);
                }
            }
            LATE => put_entry(&mut self.expired, channel, id, fate)?,
            REPLACED => put_entry(&mut self.replaced, channel, id, fate)?,
            SEEN => put_entry(&mut self.once_entries, channel, id, fate)?,
            KEYS => {
                let note: Option<KeyNote> = match fate {
                    EntryChange::Is(value) => Some(entry(channel, value)?),
                    EntryChange::Gone => None,
                };
                self.keys.note_is(id, note);
            }
            WAITING => match fate {
                EntryChange::Gone => self.remove_waiter_at(id, &WaiterKey::Other(id.to_owned())),
                EntryChange::Is(value) => {
                    let waiting: SlotWaiter = entry(channel, value)?;
                    if waiter_key(id, &waiting) != WaiterKey::Other(id.to_owned()) {
                        return Ok(false);
                    }
                    self.insert_waiter_at(id.to_owned(), waiting);
                }
            },
            _ => {
                let Some(executor) = executor_of(channel)? else { return Ok(false) };
                self.change_plain(channel, executor, id, fate)?;
            }
        }
        Ok(true)
    }

    fn change_plain(
        &mut self,
        channel: &str,
        executor: ExecutorId,
        name: &str,
        fate: EntryChange<'_>,
    ) -> Result<()> {
        match fate {
            EntryChange::Is(value) => {
                let waiting = read_plain_run(channel, executor, name, value)?;
                self.insert_waiter_at(format!("{RUN}{}", waiting.run), waiting);
            }
            EntryChange::Gone => {
                let id = format!("{RUN}{}", run_named(channel, name)?);
                self.remove_waiter_at(&id, &WaiterKey::Plain(executor, name.to_owned()));
            }
        }
        Ok(())
    }

    /// Removes a waiter from the line if it is stored under this key. An earlier change may have moved it to another key.
    fn remove_waiter_at(&mut self, id: &str, at: &WaiterKey) {
        if self.waiting.get(id).is_some_and(|waiting| waiter_key(id, waiting) == *at)
            && let Some(waiting) = self.waiting.remove(id)
        {
            self.keys.count_departure(&waiting.key, 0);
        }
    }

    fn insert_waiter_at(&mut self, id: String, waiting: SlotWaiter) {
        if let Some(before) = self.waiting.remove(&id) {
            self.keys.count_departure(&before.key, 0);
        }
        self.keys.count_stored_entry(&waiting.key);
        self.waiting.insert(id, waiting);
    }
}

/// Inserts or removes an entry.
fn put_entry<T: DeserializeOwned + StoredSize>(
    table: &mut TrackedMap<T>,
    channel: &str,
    id: &str,
    fate: EntryChange<'_>,
) -> Result<()> {
    match fate {
        EntryChange::Is(value) => table.insert(id, entry(channel, value)?),
        EntryChange::Gone => drop(table.remove(id)),
    }
    Ok(())
}
