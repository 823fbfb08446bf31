//! Decodes channels into a typed state. Errors name the channel that does not fit.

use serde::de::value::StringDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde_json::Value;

use super::channels::Channels;
use super::schema::Schema;
use crate::error::{Error, ErrorKind, Result};

/// Decodes a typed state. Errors about a secret channel do not show its value.
pub(super) fn decode<S: DeserializeOwned>(channels: Channels, schema: &Schema) -> Result<S> {
    let mut at: Option<String> = None;
    S::deserialize(ChannelSource { channels, at: &mut at }).map_err(|source| {
        if let Some(name) = at.as_deref().filter(|name| schema.is_secret(name)) {
            let message = format!(
                "channel \"{name}\", which is secret, does not fit the type it is read as; keep its type, or migrate the run"
            );
            return Error::new(ErrorKind::GraphChanged, message);
        }
        let place = at.map_or_else(|| "the state".to_owned(), |name| format!("channel \"{name}\""));
        let message = format!(
            "{place} does not fit the type it is read as: {source}; give new fields `#[serde(default)]`, \
             keep the type of old ones, or migrate the run"
        );
        Error::new(ErrorKind::GraphChanged, message).with_source(source)
    })
}

struct ChannelSource<'a> {
    channels: Channels,
    /// The channel that is being decoded.
    at: &'a mut Option<String>,
}

impl<'de> Deserializer<'de> for ChannelSource<'_> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_map(ChannelAccess { rest: self.channels.into_iter(), value: None, at: self.at })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct ChannelAccess<'a> {
    rest: std::collections::btree_map::IntoIter<String, Value>,
    value: Option<Value>,
    at: &'a mut Option<String>,
}

impl<'de> MapAccess<'de> for ChannelAccess<'_> {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Self::Error> {
        *self.at = None;
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        let source: StringDeserializer<Self::Error> = name.clone().into_deserializer();
        let key = seed.deserialize(source)?;
        *self.at = Some(name);
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Self::Error> {
        let value = seed.deserialize(self.value.take().unwrap_or(Value::Null))?;
        *self.at = None;
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}
