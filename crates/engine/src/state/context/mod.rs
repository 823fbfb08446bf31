//! The context, which is an untyped state: a JSON object in which each key is a channel.

mod apply;
mod diff;
mod join;
mod update;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::contract::State;
use super::schema::Schema;
use super::strict;
use super::writer::PatchWriter;
use crate::error::{Error, ErrorKind, Result};
pub use update::ContextUpdate;

/// The state of a run as a JSON object. Pipelines from files use it, and applications that define no state struct.
///
/// Every key is a channel. The graph may declare a reducer for a key. A key without declaration has [`Reducer::Last`], and so has every key of a
/// context that does not belong to a graph. Clones share the values.
///
/// [`Reducer::Last`]: super::Reducer::Last
///
/// # Examples
///
/// ```
/// use ferrata_core::state::Context;
///
/// let mut context = Context::new();
/// context.set("title", "Ferrata")?;
/// context.push("notes", "begun")?;
/// assert_eq!(context.get::<Vec<String>>("notes")?, Some(vec!["begun".to_owned()]));
/// assert_eq!(serde_json::to_string(&context).unwrap(), r#"{"notes":["begun"],"title":"Ferrata"}"#);
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Context {
    // Shared, because a draft copies the context, and an edit of one key must not copy the others.
    values: BTreeMap<String, Arc<Value>>,
    schema: Schema,
}

impl Context {
    /// Creates a context without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an update without changes.
    pub fn update() -> ContextUpdate {
        ContextUpdate::default()
    }

    /// Decodes the value of a key, or returns `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the value is not of type `T`.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.get_value(key) else { return Ok(None) };
        T::deserialize(value).map(Some).map_err(|source| {
            let wanted = std::any::type_name::<T>();
            let message =
                format!("channel \"{key}\" is not of type {wanted}: {source}; read it as its stored type");
            Error::new(ErrorKind::Invalid, message).with_source(source)
        })
    }

    /// Returns the value of a key.
    pub fn get_value(&self, key: &str) -> Option<&Value> {
        self.values.get(key).map(|value| &**value)
    }

    /// Returns a mutable reference to the value of a key. If another clone shares the value, it is copied first.
    pub(crate) fn get_value_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.values.get_mut(key).map(Arc::make_mut)
    }

    /// Returns whether the key exists.
    pub fn contains_key(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the value cannot be stored, see [`strict`]. The context is unchanged.
    pub fn set(&mut self, key: impl Into<String>, value: impl Serialize) -> Result<()> {
        let key = key.into();
        let value = strict::channel_to_value(&key, &value)?;
        self.values.insert(key, Arc::new(value));
        Ok(())
    }

    /// Appends an item to the array under a key. If the key is absent, an empty array is created first.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the key has another kind of value, or the item cannot be stored. The context is unchanged.
    pub fn push(&mut self, key: impl Into<String>, item: impl Serialize) -> Result<()> {
        self.append(key, [item])
    }

    /// Appends items to the array under a key. If the key is absent, an empty array is created first.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Context::push`].
    pub fn append<T: Serialize>(
        &mut self,
        key: impl Into<String>,
        items: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        let key = key.into();
        let items: Result<Vec<Value>> =
            items.into_iter().map(|item| strict::channel_to_value(&key, &item)).collect();
        let items = items?;
        if let Some(other) = self.values.get(&key).filter(|value| !value.is_array()) {
            return Err(join::mismatch(&key, "append", "an array", other));
        }
        let there = self.values.entry(key).or_insert_with(|| Arc::new(Value::Array(Vec::new())));
        if let Value::Array(there) = Arc::make_mut(there) {
            there.extend(items);
        }
        Ok(())
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.values.remove(key).map(Arc::unwrap_or_clone)
    }

    /// Returns keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns the keys in sorted order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(|key| &**key)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns a context with the keys that begin with `prefix`. The prefix is removed from the keys.
    #[doc(hidden)]
    pub fn part(&self, prefix: &str) -> Self {
        let own = self.under(prefix);
        let own =
            own.filter_map(|(key, value)| Some((key.strip_prefix(prefix)?.to_owned(), Arc::clone(value))));
        Self { values: own.collect(), schema: Schema::default() }
    }

    /// Replaces all keys that begin with `prefix` by the keys of `part`, to which the prefix is added.
    #[doc(hidden)]
    pub fn put_part(&mut self, prefix: &str, part: Self) {
        let gone: Vec<String> = self
            .under(prefix)
            .filter(|(key, _)| key.strip_prefix(prefix).is_some_and(|own| !part.values.contains_key(own)))
            .map(|(key, _)| key.clone())
            .collect();
        gone.iter().for_each(|key| drop(self.values.remove(key)));
        self.values.extend(part.values.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)));
    }

    fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Arc<Value>)> {
        let from = self.values.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Returns the channels that the graph declares.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }
}

impl State for Context {
    type Update = ContextUpdate;

    /// Returns an empty schema. The graph declares the channels and passes them to [`State::bind`].
    fn schema() -> Schema {
        Schema::default()
    }

    fn diff(before: &Self, after: Self) -> Result<ContextUpdate> {
        diff::diff(before, after)
    }

    fn apply(&mut self, update: &ContextUpdate, patch: &mut PatchWriter) -> Result<()> {
        apply::apply(self, update, patch)
    }

    fn bind(&mut self, schema: &Schema) {
        self.schema = schema.clone();
    }
}

impl From<Map<String, Value>> for Context {
    fn from(map: Map<String, Value>) -> Self {
        map.into_iter().collect()
    }
}

impl<K: Into<String>> FromIterator<(K, Value)> for Context {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(entries: I) -> Self {
        let values = entries.into_iter().map(|(key, value)| (key.into(), Arc::new(value))).collect();
        Self { values, schema: Schema::default() }
    }
}

impl TryFrom<Value> for Context {
    type Error = Error;

    /// Converts a JSON object to a context. Any other value is [`ErrorKind::Invalid`].
    fn try_from(value: Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(map.into()),
            _ => Err(Error::new(ErrorKind::Invalid, "a context is a JSON object; name the value with a key")),
        }
    }
}

impl PartialEq for Context {
    /// Compares keys and values, without their declarations.
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Serialize for Context {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(&self.values)
    }
}

impl<'de> Deserialize<'de> for Context {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = BTreeMap::deserialize(deserializer)?;
        Ok(Self { values, schema: Schema::default() })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
