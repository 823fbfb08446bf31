//! The state without its type, and folding patches over it.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::op::Op;
use super::patch::Patch;
use super::strict;
use crate::error::{Error, ErrorKind, Result};

/// The state without its type: every channel's value by name, in the order of the names.
///
/// Folding the patches of a run over its base gives the state after them; no user code takes part.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Channels(BTreeMap<String, Value>);

impl Channels {
    /// Makes a state without channels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the JSON object that a base holds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if it is none.
    pub fn from_json(text: impl AsRef<[u8]>) -> Result<Self> {
        serde_json::from_slice(text.as_ref()).map_err(|source| {
            Error::new(ErrorKind::Corrupt, format!("not a state: {source}")).with_source(source)
        })
    }

    /// Writes the JSON object that a base holds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a value cannot be stored, see [`strict`]. What was folded from records always can.
    pub fn to_json(&self) -> Result<String> {
        strict::state_to_raw_value(self).map(|text| Box::<str>::from(text).into())
    }

    /// Folds a patch over the state.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the patch is damaged or does not fit: an append to what is no array, a merge into what
    /// is no object. Operations before the one that failed have been folded: drop the state.
    pub fn apply(&mut self, patch: &Patch) -> Result<()> {
        patch.ops()?.into_iter().try_for_each(|op| self.apply_op(op))
    }

    /// Folds one operation over the state.
    ///
    /// # Errors
    ///
    /// As [`Channels::apply`].
    pub fn apply_op(&mut self, op: Op) -> Result<()> {
        match op {
            Op::Set(channel, value) => {
                self.0.insert(channel, value);
            }
            Op::Append(channel, items) => match self.0.get_mut(&channel) {
                None => {
                    self.0.insert(channel, Value::Array(items));
                }
                Some(Value::Array(there)) => there.extend(items),
                Some(other) => return Err(mismatch("append", "array", other, &channel)),
            },
            Op::Merge(channel, entries) => match self.0.get_mut(&channel) {
                None => {
                    self.0.insert(channel, Value::Object(entries));
                }
                Some(Value::Object(there)) => there.extend(entries),
                Some(other) => return Err(mismatch("merge", "object", other, &channel)),
            },
            Op::Remove(channel, keys) if keys.is_empty() => {
                self.0.remove(&channel);
            }
            Op::Remove(channel, keys) => match self.0.get_mut(&channel) {
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

    /// Returns a channel's value.
    pub fn get(&self, channel: &str) -> Option<&Value> {
        self.0.get(channel)
    }

    /// Puts a value in the place of the channel's, which is returned.
    pub fn insert(&mut self, channel: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.0.insert(channel.into(), value.into())
    }

    /// Takes a channel away.
    pub fn remove(&mut self, channel: &str) -> Option<Value> {
        self.0.remove(channel)
    }

    /// Returns the channels in the order of their names.
    pub fn iter(&self) -> btree_map::Iter<'_, String, Value> {
        self.0.iter()
    }

    /// Returns how many channels there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells whether there is no channel.
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
    /// Shows the names, never a payload.
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
