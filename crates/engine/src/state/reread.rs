//! Checks that a state stays the same when it is encoded and decoded by the `Serialize` and `Deserialize` of its type.

use serde_json::Value;

use super::channels::Channels;
use super::contract::State;
use super::schema::Schema;
use crate::error::{Error, ErrorKind, Result};

/// Decodes an encoded state like after a restart, and checks the result.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] with the channel's name if the state cannot be decoded, or if the decoded state is encoded differently.
#[doc(hidden)]
pub fn reread<S: State>(text: &str, schema: &Schema) -> Result<S> {
    let given = Channels::from_json(text)?;
    let read = S::from_channels(given.clone(), schema).map_err(|source| {
        let message = format!("the state could not be read back after a restart: {}", source.message());
        Error::new(ErrorKind::Invalid, message).with_source(source)
    })?;
    let again = Channels::from_json(read.to_channels_json()?.get())?;
    if given == again {
        return Ok(read);
    }
    let differs = |(name, value): &(&String, &Value)| {
        again.get(name).is_none_or(|read| !is_equal_unordered(value, read))
    };
    let added = again.iter().find(|(name, _)| given.get(name).is_none());
    if let Some((name, _)) = given.iter().find(differs).or(added) {
        let message = format!(
            "channel \"{name}\" would have another value after a restart, because the `Deserialize` of its type does not read what its \
             `Serialize` writes; look for skipped fields with another default, and for `untagged` and `flatten`"
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(read)
}

/// Returns whether two values are equal, ignoring the order of items in sets.
fn is_equal_unordered(one: &Value, other: &Value) -> bool {
    one == other || in_order(one) == in_order(other)
}

fn in_order(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(in_order).collect();
            items.sort_by_cached_key(ToString::to_string);
            Value::Array(items)
        }
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), in_order(value))).collect(),
        plain => plain.clone(),
    }
}
