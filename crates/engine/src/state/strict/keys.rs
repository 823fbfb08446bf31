//! The keys of one map. Two keys with the same text are rejected, because they would be decoded as one entry or cause an error.

use serde::{Serialize, Serializer};

/// The byte that ends each key. UTF-8 text never contains this byte, so two different keys cannot look the same.
const END: u8 = 0xff;

/// The keys of a map so far, in their stored form.
#[derive(Default)]
pub(super) struct MapKeys {
    text: Vec<u8>,
    /// The start of the last key.
    last: usize,
    /// Whether a key was not greater than the key before it. In a sorted map, which is the usual case, this is false and no further check is needed.
    out_of_order: bool,
}

impl MapKeys {
    /// Adds a key that the encoder has accepted.
    pub(super) fn add_key<K: ?Sized + Serialize>(&mut self, key: &K) {
        let begin = self.text.len();
        // The encoder succeeded, so this cannot fail.
        if serde_json::to_writer(&mut self.text, &OneKey(key)).is_err() {
            self.text.truncate(begin);
            return;
        }
        self.text.push(END);
        let (before, key) = self.text.split_at(begin);
        let last = before.get(self.last..).unwrap_or_default();
        self.out_of_order |= !before.is_empty() && last >= key;
        self.last = begin;
    }

    /// Returns a duplicate key.
    pub(super) fn repeated(&self) -> Option<String> {
        if !self.out_of_order {
            return None;
        }
        let mut keys: Vec<&[u8]> =
            self.text.split(|byte| *byte == END).filter(|key| !key.is_empty()).collect();
        keys.sort_unstable();
        let twice = keys.iter().zip(keys.iter().skip(1)).find(|(one, next)| one == next)?.0;
        let map: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(twice).ok()?;
        map.into_iter().next().map(|(key, _)| key)
    }
}

/// A map of one key, which makes `serde_json` return the key's text.
pub(super) struct OneKey<'a, K: ?Sized>(pub(super) &'a K);

impl<K: ?Sized + Serialize> Serialize for OneKey<'_, K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, ())])
    }
}
