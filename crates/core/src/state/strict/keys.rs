//! The keys of one map: two that are the same text would be one entry, or none, when they are read back.

use serde::{Serialize, Serializer};

/// Stands behind each key. No UTF-8 text has this byte, so texts that differ stay different with it.
const END: u8 = 0xff;

/// The keys of a map so far, as the text they are stored as.
#[derive(Default)]
pub(super) struct Keys {
    text: Vec<u8>,
    /// Where the last one begins.
    last: usize,
    /// Whether one was not greater than the one before. Maps that are in order, as most are, need no further look.
    out_of_order: bool,
}

impl Keys {
    /// Notes a key that the encoder has taken.
    pub(super) fn note<K: ?Sized + Serialize>(&mut self, key: &K) {
        let begin = self.text.len();
        // Cannot fail where the encoder did not.
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

    /// Returns a key that is there twice.
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

/// A map of one key, which is how `serde_json` is asked for the text of one.
pub(super) struct OneKey<'a, K: ?Sized>(pub(super) &'a K);

impl<K: ?Sized + Serialize> Serialize for OneKey<'_, K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, ())])
    }
}
