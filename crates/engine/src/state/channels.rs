//! The untyped state of a run, and the application of patches to it.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::op::{FoldedChange, Op};
use super::patch::{Patch, corrupt};
use super::strict;
use crate::error::{Error, ErrorKind, Result};

/// The untyped state of a run: the JSON value of every channel, sorted by the channel's name.
///
/// A base is a record with the full state. If you apply the patches of the later records to this state, you get the later state without any code of
/// the user.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Channels(BTreeMap<String, Value>);

impl Channels {
    /// Creates a state without channels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes the state from a JSON object, the form in which a base contains it.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the text is not a JSON object.
    pub fn from_json(text: impl AsRef<[u8]>) -> Result<Self> {
        serde_json::from_slice(text.as_ref()).map_err(|source| {
            Error::new(ErrorKind::Corrupt, format!("not a state: {source}")).with_source(source)
        })
    }

    /// Encodes the state as a JSON object, the form in which a base contains it.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if a value cannot be stored, see [`strict`]. A state that was read from records can always be stored.
    pub fn to_json(&self) -> Result<String> {
        strict::state_to_raw_value(self).map(|text| Box::<str>::from(text).into())
    }

    /// Applies a patch to the state.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the patch is damaged or does not fit: an append to a value other than an array, or a merge into a value
    /// other than an object. The operations before the failed one have then changed the state, so do not use the state any more.
    pub fn apply(&mut self, patch: &Patch) -> Result<()> {
        let text = patch.as_raw_json()?;
        self.fold(serde_json::from_str(text.get()).map_err(corrupt)?)
    }

    /// Folds a decoded patch, like [`apply`](Self::apply).
    pub(crate) fn fold(&mut self, changes: Vec<FoldedChange<'_>>) -> Result<()> {
        changes.into_iter().try_for_each(|change| self.fold_one(change))
    }

    /// Returns the operations that restore the current state if `patch` is applied later, completely or in part. Their size depends on the changes of
    /// the patch and not on the size of the state.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the patch is damaged.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::state::{Channels, Patch};
    ///
    /// let before = Channels::from_json(r#"{"scores":{"a":1}}"#)?;
    /// let patch = Patch::from_json(r#"[{"merge":["scores",{"a":2,"b":3}]},{"set":["draft","text"]}]"#)?;
    /// let undo = before.undo_ops(&patch)?;
    /// let mut state = before.clone();
    /// state.apply(&patch)?;
    /// undo.into_iter().try_for_each(|op| state.apply_op(op))?;
    /// assert_eq!(state, before);
    /// # Ok::<(), ferrata_core::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn undo_ops(&self, patch: &Patch) -> Result<Vec<Op>> {
        let (mut whole, mut entries) = (Vec::new(), Vec::new());
        for op in patch.ops()? {
            let (channel, keys): (_, Vec<String>) = match op {
                Op::Set(channel, _) | Op::Append(channel, _) => (channel, Vec::new()),
                Op::Merge(channel, entries) => (channel, entries.into_iter().map(|(key, _)| key).collect()),
                Op::Remove(channel, keys) => (channel, keys),
            };
            match self.0.get(&channel) {
                None => whole.push(Op::Remove(channel, Vec::new())),
                Some(Value::Object(there)) if !keys.is_empty() => {
                    let (known, strange): (Vec<_>, Vec<_>) =
                        keys.into_iter().partition(|key| there.contains_key(key));
                    let before = |key: String| there.get(&key).cloned().map(|value| (key, value));
                    let known: Map<String, Value> = known.into_iter().filter_map(before).collect();
                    if !known.is_empty() {
                        entries.push(Op::Merge(channel.clone(), known));
                    }
                    if !strange.is_empty() {
                        entries.push(Op::Remove(channel, strange));
                    }
                }
                Some(value) => whole.push(Op::Set(channel, value.clone())),
            }
        }
        // Each operation restores the value from before the whole patch. A channel that was replaced by another kind of value must be restored before
        // its entries.
        whole.append(&mut entries);
        Ok(whole)
    }

    /// Applies one operation to the state.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Channels::apply`].
    #[doc(hidden)]
    pub fn apply_op(&mut self, op: Op) -> Result<()> {
        self.fold_one(op.into())
    }

    fn fold_one(&mut self, change: FoldedChange<'_>) -> Result<()> {
        match change {
            FoldedChange::Set(channel, value) => match self.0.get_mut(&*channel) {
                None => drop(self.0.insert(channel.into_owned(), value)),
                Some(there) => *there = value,
            },
            FoldedChange::Append(channel, items) => match self.0.get_mut(&*channel) {
                None => drop(self.0.insert(channel.into_owned(), Value::Array(items))),
                Some(Value::Array(there)) => there.extend(items),
                Some(other) => return Err(mismatch("append", "array", other, &channel)),
            },
            FoldedChange::Merge(channel, entries) => match self.0.get_mut(&*channel) {
                None => drop(self.0.insert(channel.into_owned(), Value::Object(entries))),
                Some(Value::Object(there)) => there.extend(entries),
                Some(other) => return Err(mismatch("merge", "object", other, &channel)),
            },
            FoldedChange::Remove(channel, keys) if keys.is_empty() => drop(self.0.remove(&*channel)),
            FoldedChange::Remove(channel, keys) => match self.0.get_mut(&*channel) {
                None => {}
                Some(Value::Object(there)) => {
                    for key in &keys {
                        there.remove(key);
                    }
                }
                Some(other) => return Err(mismatch("remove", "object", other, &channel)),
            },
        }
        Ok(())
    }

    /// Returns the value of a channel.
    pub fn get(&self, channel: &str) -> Option<&Value> {
        self.0.get(channel)
    }

    /// Sets the value of a channel, and returns the replaced value.
    pub fn insert(&mut self, channel: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.0.insert(channel.into(), value.into())
    }

    /// Removes a channel, and returns its value.
    pub fn remove(&mut self, channel: &str) -> Option<Value> {
        self.0.remove(channel)
    }

    /// Returns the channels, sorted by name.
    pub fn iter(&self) -> btree_map::Iter<'_, String, Value> {
        self.0.iter()
    }

    /// Returns the number of channels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no channels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn mismatch(verb: &str, wanted: &str, found: &Value, channel: &str) -> Error {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let message = format!("channel \"{channel}\": {verb} needs an {wanted} and the state holds {found}");
    Error::new(ErrorKind::Corrupt, message)
}

impl fmt::Debug for Channels {
    /// Shows the names without payloads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channels ")?;
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl IntoIterator for Channels {
    type Item = (String, Value);
    type IntoIter = btree_map::IntoIter<String, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Channels {
    type Item = (&'a String, &'a Value);
    type IntoIter = btree_map::Iter<'a, String, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl FromIterator<(String, Value)> for Channels {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(channels: I) -> Self {
        Self(channels.into_iter().collect())
    }
}

impl From<Map<String, Value>> for Channels {
    fn from(map: Map<String, Value>) -> Self {
        map.into_iter().collect()
    }
}

impl From<Channels> for Value {
    fn from(channels: Channels) -> Self {
        Self::Object(channels.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_folded_can_be_taken_back() {
        let states =
            ["{}", r#"{"a":{"x":1,"y":2},"b":[1],"c":"text"}"#, r#"{"a":{"x":1}}"#, r#"{"a":5,"b":{"x":1}}"#];
        let patches = [
            r#"[{"merge":["a",{"x":3,"z":4}]}]"#,
            r#"[{"remove":["a",["x"]]},{"merge":["a",{"y":9}]},{"remove":["a",["z"]]}]"#,
            r#"[{"merge":["a",{"x":7}]},{"remove":["a",[]]},{"merge":["a",{"w":1}]}]"#,
            r#"[{"set":["a",5]},{"set":["c",null]},{"append":["b",[2]]},{"set":["new",1]}]"#,
            // The second operation does not fit the result of the first, so the test undoes the folded part.
            r#"[{"set":["a","text"]},{"merge":["a",{"x":1}]},{"set":["c",1]}]"#,
            r#"[{"append":["b",[2]]},{"append":["c",[1]]}]"#,
            "[]",
        ];
        for (state, patch) in states.iter().flat_map(|state| patches.iter().map(move |patch| (state, patch)))
        {
            let before = Channels::from_json(state).unwrap();
            let patch = Patch::from_json(patch).unwrap();
            let (mut after, undo) = (before.clone(), before.undo_ops(&patch).unwrap());
            let folded = after.apply(&patch);
            undo.into_iter().for_each(|op| after.apply_op(op).unwrap());
            assert_eq!(
                after.to_json().unwrap(),
                before.to_json().unwrap(),
                "{patch:?}, which was {folded:?}"
            );
        }
    }
}
