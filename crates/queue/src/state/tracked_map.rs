//! A table of queue entries by id, which tracks the entries changed since the last patch and their maximum size in the state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use super::entry::{StoredSize, text};

/// Entries by id. Only this type changes them, so each change is in the next patch.
#[derive(Debug)]
pub(crate) struct TrackedMap<T> {
    entries: BTreeMap<String, T>,
    touched: BTreeSet<String>,
    bytes: usize,
}

impl<T: StoredSize> TrackedMap<T> {
    /// Creates a table from stored entries.
    pub(super) fn new(entries: BTreeMap<String, T>) -> Self {
        let bytes = entries.iter().map(|(id, entry)| weight(id, entry)).sum();
        Self { entries, touched: BTreeSet::new(), bytes }
    }

    /// Returns the maximum number of bytes that the table takes in the state.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn insert(&mut self, id: &str, entry: T) {
        self.remove(id);
        self.bytes += weight(id, &entry);
        self.touched.insert(id.to_owned());
        self.entries.insert(id.to_owned(), entry);
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<T> {
        let (id, entry) = self.entries.remove_entry(id)?;
        self.bytes -= weight(&id, &entry);
        self.touched.insert(id);
        Some(entry)
    }

    /// Changes an entry, if it exists.
    pub(super) fn update(&mut self, id: &str, change: impl FnOnce(&mut T)) {
        if let Some(mut entry) = self.remove(id) {
            change(&mut entry);
            self.insert(id, entry);
        }
    }

    /// Returns the ids of the entries that were changed since the last call.
    pub(super) fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }
}

fn weight<T: StoredSize>(id: &str, entry: &T) -> usize {
    text(id) + entry.bytes()
}

impl<T> Deref for TrackedMap<T> {
    type Target = BTreeMap<String, T>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}
