//! What a node returns to change a context: operations in the order they were asked for.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::state::strict;
use crate::state::update::{IntoUpdate, Update};

/// What a node returns to change a [`Context`]: operations, applied in order.
///
/// A value that cannot be stored is reported when the update is applied.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::{Context, PatchWriter, State, Update};
///
/// let update = Context::update().set("title", "Ferrata").append("notes", ["begun"]);
/// let mut context = Context::new();
/// Update::<Context>::from(update).apply(&mut context, &mut PatchWriter::recording())?;
/// assert_eq!(context.len(), 2);
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Default)]
pub struct ContextUpdate {
    pub(super) changes: Vec<(String, Change)>,
    /// The first value that could not be stored.
    pub(super) error: Option<Error>,
}

/// What to do to one key.
#[derive(Clone)]
pub(super) enum Change {
    /// Whatever its reducer is, replace it.
    Set(Value),
    /// Join by its reducer.
    Reduce(Value),
    Append(Vec<Value>),
    Merge(Map<String, Value>),
    RemoveKeys(Vec<String>),
    RemoveChannel,
}

impl ContextUpdate {
    /// Gives a key a value, whatever its reducer is.
    #[must_use]
    pub fn set(self, key: impl Into<String>, value: impl Serialize) -> Self {
        self.encode(key.into(), |key| strict::channel_to_value(key, &value).map(Change::Set))
    }

    /// Joins a value into a key by the key's reducer, as a typed update does.
    ///
    /// `append` and `union` take an array or a single item, `merge` takes an object; where none is declared, the value
    /// replaces what is there.
    #[must_use]
    pub fn reduce(self, key: impl Into<String>, value: impl Serialize) -> Self {
        self.encode(key.into(), |key| strict::channel_to_value(key, &value).map(Change::Reduce))
    }

    /// Adds items at the end of a key's array, which is made if the key is absent.
    #[must_use]
    pub fn append<T: Serialize>(self, key: impl Into<String>, items: impl IntoIterator<Item = T>) -> Self {
        self.encode(key.into(), |key| {
            let items = items.into_iter().map(|item| strict::channel_to_value(key, &item));
            items.collect::<Result<_>>().map(Change::Append)
        })
    }

    /// Puts entries into a key's object, which is made if the key is absent.
    #[must_use]
    pub fn merge<K: Into<String>, V: Serialize>(
        self,
        key: impl Into<String>,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.encode(key.into(), |key| {
            let entries = entries.into_iter();
            let entries =
                entries.map(|(name, value)| Ok((name.into(), strict::channel_to_value(key, &value)?)));
            entries.collect::<Result<_>>().map(Change::Merge)
        })
    }

    /// Takes names out of a key's object; what is not there is ignored.
    #[must_use]
    pub fn remove_keys<K: Into<String>>(
        self,
        key: impl Into<String>,
        names: impl IntoIterator<Item = K>,
    ) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        if names.is_empty() { self } else { self.with(key.into(), Change::RemoveKeys(names)) }
    }

    /// Takes a key away.
    #[must_use]
    pub fn remove(self, key: impl Into<String>) -> Self {
        self.with(key.into(), Change::RemoveChannel)
    }

    /// Tells whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.error.is_none()
    }

    /// Returns what could not be stored, as a fresh error: an update may be applied more than once.
    pub(super) fn check(&self) -> Result<()> {
        match &self.error {
            None => Ok(()),
            Some(error) => Err(Error::new(ErrorKind::Invalid, error.message())),
        }
    }

    pub(super) fn with(mut self, key: String, change: Change) -> Self {
        self.changes.push((key, change));
        self
    }

    fn encode(mut self, key: String, encode: impl FnOnce(&str) -> Result<Change>) -> Self {
        match encode(&key) {
            Ok(change) => self.with(key, change),
            Err(error) => {
                self.error.get_or_insert(error);
                self
            }
        }
    }
}

impl fmt::Debug for ContextUpdate {
    /// Shows the keys, never a payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContextUpdate ")?;
        f.debug_list().entries(self.changes.iter().map(|(key, _)| key)).finish()
    }
}

impl IntoUpdate<Context> for ContextUpdate {
    fn into_update(self) -> Update<Context> {
        self.into()
    }
}

impl From<ContextUpdate> for Update<Context> {
    fn from(update: ContextUpdate) -> Self {
        Self::new(update)
    }
}
