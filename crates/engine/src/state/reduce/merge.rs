//! The `merge` reducer: replaces entries by key.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Difference, Reduce, Step};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::writer::PatchWriter;

/// The reducer that puts entries into a map. Only the new entries and the removed keys are stored.
#[derive(Clone, Copy, Debug)]
pub struct Merge;

/// The input of the `merge` reducer: entries to put, and keys to remove. No key is in both.
#[derive(Clone, Debug)]
pub struct MergeInput<K, V> {
    entries: Vec<(K, V)>,
    removed: Vec<K>,
}

impl<K, V> MergeInput<K, V> {
    /// Creates an input that puts entries.
    pub fn entries(entries: impl IntoIterator<Item = (K, V)>) -> Self {
        Self { entries: entries.into_iter().collect(), removed: Vec::new() }
    }
}

/// A map type that supports merging. It must serialize as an object of its entries.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a channel with `#[state(merge)]`",
    label = "not a map",
    note = "make it a `BTreeMap`, a `HashMap` or a `serde_json::Map`, or choose another reducer"
)]
pub trait MergeChannel: Sized {
    /// The type of the keys of the map. A key must serialize as text.
    type Key: Clone + PartialEq + Serialize + Send + Sync + 'static;
    /// The type of the values of the map.
    type Value: Clone + PartialEq + Serialize + Send + Sync + 'static;

    /// Returns the value of a key, if the map contains the key.
    fn value(&self, key: &Self::Key) -> Option<&Self::Value>;

    /// Returns the keys of the map.
    fn keys(&self) -> impl Iterator<Item = &Self::Key>;

    /// Puts entries into the map.
    fn put(&mut self, entries: Vec<(Self::Key, Self::Value)>);

    /// Removes a key from the map.
    fn take(&mut self, key: &Self::Key);

    /// Returns the entries of the map.
    fn into_entries(self) -> impl Iterator<Item = (Self::Key, Self::Value)>;
}

macro_rules! map_channel {
    ([$($generics:tt)*] $map:ty, $key:ty, $value:ty) => {
        impl<$($generics)*> MergeChannel for $map {
            type Key = $key;
            type Value = $value;

            fn value(&self, key: &$key) -> Option<&$value> {
                self.get(key)
            }

            fn keys(&self) -> impl Iterator<Item = &$key> {
                <$map>::keys(self)
            }

            fn put(&mut self, entries: Vec<($key, $value)>) {
                self.extend(entries);
            }

            fn take(&mut self, key: &$key) {
                self.remove(key);
            }

            fn into_entries(self) -> impl Iterator<Item = ($key, $value)> {
                self.into_iter()
            }
        }
    };
}

map_channel!(
    [K: Ord + Clone + Serialize + Send + Sync + 'static, V: Clone + PartialEq + Serialize + Send + Sync + 'static]
    BTreeMap<K, V>, K, V
);
map_channel!(
    [
        K: Hash + Eq + Clone + Serialize + Send + Sync + 'static,
        V: Clone + PartialEq + Serialize + Send + Sync + 'static,
        H: BuildHasher
    ]
    HashMap<K, V, H>, K, V
);
map_channel!([] Map<String, Value>, String, Value);

impl<T: MergeChannel> Reduce<T> for Merge {
    const EXACT: bool = true;
    type Input = MergeInput<T::Key, T::Value>;
    type More = MergeInput<T::Key, T::Value>;

    fn join(earlier: &mut Self::Input, later: Self::Input) {
        if !earlier.removed.is_empty() {
            earlier.removed.retain(|key| later.entries.iter().all(|(put, _)| put != key));
        }
        if !later.removed.is_empty() {
            earlier.entries.retain(|(key, _)| !later.removed.contains(key));
        }
        earlier.entries.extend(later.entries);
        earlier.removed.extend(later.removed);
    }

    fn diff(_channel: &ChannelId, before: &T, after: T) -> Result<Difference<T, Self::Input>> {
        let removed = before.keys().filter(|key| after.value(key).is_none()).cloned().collect();
        let changed = after.into_entries().filter(|(key, value)| before.value(key) != Some(value));
        Ok(Difference::Input(MergeInput { entries: changed.collect(), removed }))
    }

    fn prepare(
        channel: &ChannelId,
        _current: &T,
        input: &Self::Input,
        patch: &mut PatchWriter,
    ) -> Result<Step<T, Self::More>> {
        patch.merge(channel, &input.entries)?;
        patch.remove_keys(channel, &input.removed)?;
        let nothing = input.entries.is_empty() && input.removed.is_empty();
        Ok(if nothing { Step::Keep } else { Step::Extend(input.clone()) })
    }

    fn extend(current: &mut T, more: Self::More) {
        current.put(more.entries);
        for key in &more.removed {
            current.take(key);
        }
    }
}
