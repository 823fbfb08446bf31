//! Encodes values of users as JSON, and rejects values that JSON cannot represent instead of changing them silently.
//!
//! `serde_json` writes NaN as `null`, `Some(None)` as `null`, and cannot read nesting deeper than 128. A checkpoint with such a value would decode to
//! another value after a restart, or fail. All user values are therefore encoded through this module.
//!
//! The module sees a value only through serde's data model. If the `Serialize` and `Deserialize` of a type fit each other, the module accepts exactly
//! the values that decode to an equal value. It cannot see what the type's `Deserialize` does, for example with `untagged`, `flatten` or skipped
//! fields. So `start` decodes its input again and compares it. In tests, use `check_reads_back` of `ferrata::testing`.

mod compound;
mod keys;
mod path;
mod raw;
mod serializer;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::text::JsonText;
use crate::error::Result;
use keys::OneKey;
use path::{EncodingSubject, PathTracker};
use serializer::Strict;

/// The maximum nesting depth of a value.
///
/// `serde_json` reads at most 128 levels, and a stored value is nested a few levels inside its record.
pub const MAX_DEPTH: u8 = 100;

/// Encodes `value` as JSON text.
///
/// `serde_json` decodes every accepted value to an equal value, if the type's `Deserialize` fits its `Serialize`. Compared with
/// `serde_json::to_string`, the additional cost is a comparison for each float and for each level of nesting, and a copy of the keys of each map.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) with the path, for:
///
/// - a NaN or an infinity;
/// - an integer beyond 64 bits;
/// - a `Some` of a value that is written as `null` (`Some(None)`, `Some(())`);
/// - a map key other than text, or two keys of one map with the same text;
/// - a tuple variant without fields;
/// - nesting deeper than [`MAX_DEPTH`];
/// - any error of the value's own `Serialize`.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::strict;
///
/// assert_eq!(strict::to_json_string(&[1, 2])?, "[1,2]");
/// let error = strict::to_json_string(&[f64::NAN]).unwrap_err();
/// assert!(error.message().starts_with("value[0]: NaN cannot be stored"));
/// # Ok::<(), ferrata_core::Error>(())
/// ```
pub fn to_json_string<T: ?Sized + Serialize>(value: &T) -> Result<String> {
    run(EncodingSubject::Value, value, |value| serde_json::to_string(value))
}

/// Encodes `value` as JSON text in a form that can be embedded in other JSON without parsing it.
///
/// # Errors
///
/// Returns the errors of [`to_json_string`].
pub fn to_raw_value<T: ?Sized + Serialize>(value: &T) -> Result<Box<RawValue>> {
    run(EncodingSubject::Value, value, |value| serde_json::value::to_raw_value(value))
}

/// Converts `value` to a JSON value.
///
/// # Errors
///
/// Returns the errors of [`to_json_string`].
pub fn to_value<T: ?Sized + Serialize>(value: &T) -> Result<Value> {
    run(EncodingSubject::Value, value, |value| serde_json::to_value(value))
}

/// Encodes a value of the channel `name`. Errors contain the name.
pub(crate) fn channel_to_text<T: ?Sized + Serialize>(name: &str, value: &T) -> Result<JsonText> {
    run(EncodingSubject::Channel(name), value, |value| JsonText::of(value))
}

/// Encodes entries to be merged into the channel `name`. If two entries have the same key, the later one wins.
pub(crate) fn channel_entries_to_text<T: ?Sized + Serialize>(name: &str, entries: &T) -> Result<JsonText> {
    run_at(EncodingSubject::Channel(name), (MAX_DEPTH, Role::Entries), entries, |entries| {
        JsonText::of(entries)
    })
}

/// Converts a value of the channel `name`. Errors contain the name.
pub(crate) fn channel_to_value<T: ?Sized + Serialize>(name: &str, value: &T) -> Result<Value> {
    run(EncodingSubject::Channel(name), value, |value| serde_json::to_value(value))
}

/// Encodes a whole state, with channels as its first level.
#[doc(hidden)]
pub fn state_to_raw_value<T: ?Sized + Serialize>(state: &T) -> Result<Box<RawValue>> {
    // The outer object does not count as a level: a value that fits a patch also fits a base.
    run_at(EncodingSubject::State, (MAX_DEPTH + 1, Role::Value), state, |state| {
        serde_json::value::to_raw_value(state)
    })
}

/// Encodes a map key as `serde_json` does inside a map.
pub(crate) fn key_text<K: Serialize>(channel: &str, key: &K) -> Result<String> {
    let map = channel_to_value(channel, &OneKey(key))?;
    let key = map.as_object().and_then(|map| map.keys().next());
    Ok(key.expect("a map of one entry has one key").clone())
}

fn run<T: ?Sized + Serialize, R>(
    subject: EncodingSubject<'_>,
    value: &T,
    encode: impl FnOnce(&StrictValue<'_, T>) -> serde_json::Result<R>,
) -> Result<R> {
    run_at(subject, (MAX_DEPTH, Role::Value), value, encode)
}

fn run_at<T: ?Sized + Serialize, R>(
    subject: EncodingSubject<'_>,
    (room, role): (u8, Role),
    value: &T,
    encode: impl FnOnce(&StrictValue<'_, T>) -> serde_json::Result<R>,
) -> Result<R> {
    let tracker = PathTracker::default();
    encode(&StrictValue { value, room, role, tracker: &tracker })
        .map_err(|source| tracker.into_error(subject, source))
}

/// The role of a value in its container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Value,
    /// The value is the content of an option. If it were written as `null`, it would be decoded as `None`.
    Held,
    /// The value is a list of map entries, in which a later entry replaces an earlier entry with the same key.
    Entries,
}

/// A value that serializes through [`Strict`] with any serializer.
struct StrictValue<'a, T: ?Sized> {
    value: &'a T,
    /// The remaining levels of nesting.
    room: u8,
    role: Role,
    tracker: &'a PathTracker,
}

impl<T: ?Sized + Serialize> Serialize for StrictValue<'_, T> {
    #[inline]
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Strict {
            inner: serializer,
            room: self.room,
            role: self.role,
            tracker: self.tracker,
        })
    }
}

#[cfg(test)]
mod tests;
