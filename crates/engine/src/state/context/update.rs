//! Updates of a context, which are lists of operations.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::state::strict;
use crate::state::update::{IntoUpdate, Update};

/// An update of a [`Context`], which a node returns. It is a list of operations that are applied in order.
///
/// A value that cannot be stored causes an error when the update is applied.
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::Graph;
/// use ferrata_core::state::Context;
///
/// let graph = Graph::<Context>::builder("write")
///     .node("begin", async |_cx, _s| Ok(Context::update().set("title", "Ferrata").append("notes", ["begun"])))
///     .entry("begin")
///     .build()?;
/// # Ok::<(), ferrata_core::graph::GraphError>(())
/// ```
#[derive(Default)]
pub struct ContextUpdate {
    pub(super) changes: Vec<(String, KeyChange)>,
    /// The first value that could not be stored.
    pub(super) error: Option<Error>,
}

/// A change of one key.
#[derive(Clone)]
pub(super) enum KeyChange {
    /// Replaces the value, whatever the reducer of the key is.
    Set(Value),
    /// Joins the value by the reducer of the key.
    Reduce(Value),
    Append(Vec<Value>),
    Merge(Map<String, Value>),
    RemoveKeys(Vec<String>),
    RemoveChannel,
}

impl ContextUpdate {
    /// Replaces the value of a key, whatever the reducer of the key is.
    #[must_use]
    pub fn set(self, key: impl Into<String>, value: impl Serialize) -> Self {
        self.encode(key.into(), |key| strict::channel_to_value(key, &value).map(KeyChange::Set))
    }

    /// Joins a value into a key by the reducer of the key, like a typed update.
    ///
    /// For the reducers `append` and `union`, the value may be an array or a single item. For `merge`, it must be an object. If the key has no
    /// declared reducer, the value replaces the current value.
    #[must_use]
    pub fn reduce(self, key: impl Into<String>, value: impl Serialize) -> Self {
        self.encode(key.into(), |key| strict::channel_to_value(key, &value).map(KeyChange::Reduce))
    }

    /// Appends items to the array under a key. If the key is absent, an empty array is created first.
    #[must_use]
    pub fn append<T: Serialize>(self, key: impl Into<String>, items: impl IntoIterator<Item = T>) -> Self {
        self.encode(key.into(), |key| {
            let items = items.into_iter().map(|item| strict::channel_to_value(key, &item));
            items.collect::<Result<_>>().map(KeyChange::Append)
        })
    }

    /// Puts entries into the object under a key. If the key is absent, an empty object is created first.
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
            entries.collect::<Result<_>>().map(KeyChange::Merge)
        })
    }

    /// Removes entries from the object under a key. Names that the object does not contain are ignored.
    #[must_use]
    pub fn remove_keys<K: Into<String>>(
        self,
        key: impl Into<String>,
        names: impl IntoIterator<Item = K>,
    ) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        if names.is_empty() { self } else { self.with(key.into(), KeyChange::RemoveKeys(names)) }
    }

    /// Removes a key.
    #[must_use]
    pub fn remove(self, key: impl Into<String>) -> Self {
        self.with(key.into(), KeyChange::RemoveChannel)
    }

    /// Returns whether the update has no operations.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.error.is_none()
    }

    /// Returns the first error of a stored value as a new error, because an update may be applied more than once.
    pub(super) fn check(&self) -> Result<()> {
        match &self.error {
            None => Ok(()),
            Some(error) => Err(Error::new(ErrorKind::Invalid, error.message())),
        }
    }

    pub(super) fn with(mut self, key: String, change: KeyChange) -> Self {
        self.changes.push((key, change));
        self
    }

    fn encode(mut self, key: String, encode: impl FnOnce(&str) -> Result<KeyChange>) -> Self {
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
    /// Shows the keys without payloads.
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
