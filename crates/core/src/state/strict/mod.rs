//! Encoding of values that users hand in: refuses what JSON cannot give back, instead of changing it in silence.
//!
//! `serde_json` writes NaN as `null`, `Some(None)` as `null`, and reads nothing nested deeper than 128. A checkpoint written so
//! would be another value after a restart, or none. Everything a user gives is therefore encoded through this module.
//!
//! What it sees is serde's data model: of a type whose `Serialize` and `Deserialize` fit each other, exactly those values are
//! accepted that read back equal. What a type's own `Deserialize` makes of the text it cannot see: `untagged`, `flatten` and
//! fields that are left out. [`start`](crate::runtime::Runtime::start) reads its input back for that, and
//! [`check_reads_back`](crate::testing::check_reads_back) does it in tests.

mod compound;
mod keys;
mod path;
mod raw;
mod serializer;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::text::Text;
use crate::error::Result;
use keys::OneKey;
use path::{Subject, Tracker};
use serializer::Strict;

/// How deep a value may be nested.
///
/// `serde_json` refuses to read beyond 128, and a stored value sits a few levels inside its record.
pub const MAX_DEPTH: u8 = 100;

/// Encodes `value` as JSON text.
///
/// Whatever is accepted, `serde_json` reads back as an equal value, if the type's `Deserialize` reads what its `Serialize`
/// writes. The cost over `serde_json::to_string` is a comparison per float and per level of nesting, and a copy of the keys of
/// each map.
///
/// # Errors
///
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the place, for a NaN or an infinity, an integer beyond 64
/// bits, a `Some` of what is written as `null` (`Some(None)`, `Some(())`), a map key that is not text, two keys of one map that
/// are the same text, a tuple variant without fields, nesting deeper than [`MAX_DEPTH`], and for whatever the value's own
/// `Serialize` refuses.
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
    run(Subject::Value, value, |value| serde_json::to_string(value))
}

/// Encodes `value` as JSON text that embeds into other JSON without being read again.
///
/// # Errors
///
/// As [`to_json_string`].
pub fn to_raw_value<T: ?Sized + Serialize>(value: &T) -> Result<Box<RawValue>> {
    run(Subject::Value, value, |value| serde_json::value::to_raw_value(value))
}

/// Converts `value` to a JSON value.
///
/// # Errors
///
/// As [`to_json_string`].
pub fn to_value<T: ?Sized + Serialize>(value: &T) -> Result<Value> {
    run(Subject::Value, value, |value| serde_json::to_value(value))
}

/// Encodes what goes into the channel `name`, so that an error names it.
pub(crate) fn channel_to_text<T: ?Sized + Serialize>(name: &str, value: &T) -> Result<Text> {
    run(Subject::Channel(name), value, |value| Text::of(value))
}

/// Encodes entries to be merged into the channel `name`: of two with one key, the later one replaces the earlier one.
pub(crate) fn channel_entries_to_text<T: ?Sized + Serialize>(name: &str, entries: &T) -> Result<Text> {
    run_at(Subject::Channel(name), (MAX_DEPTH, Role::Entries), entries, |entries| Text::of(entries))
}

/// Converts what goes into the channel `name`, so that an error names it.
pub(crate) fn channel_to_value<T: ?Sized + Serialize>(name: &str, value: &T) -> Result<Value> {
    run(Subject::Channel(name), value, |value| serde_json::to_value(value))
}

/// Encodes a whole state, whose first level are the channels.
pub(crate) fn state_to_raw_value<T: ?Sized + Serialize>(state: &T) -> Result<Box<RawValue>> {
    // The object that holds the channels is no level of any of them: a value that fits a patch fits a base, too.
    run_at(Subject::State, (MAX_DEPTH + 1, Role::Value), state, |state| {
        serde_json::value::to_raw_value(state)
    })
}

/// Encodes a map key the way `serde_json` encodes it inside a map.
pub(crate) fn key_text<K: Serialize>(channel: &str, key: &K) -> Result<String> {
    let map = channel_to_value(channel, &OneKey(key))?;
    let key = map.as_object().and_then(|map| map.keys().next());
    Ok(key.expect("a map of one entry has one key").clone())
}

fn run<T: ?Sized + Serialize, R>(
    subject: Subject<'_>,
    value: &T,
    encode: impl FnOnce(&StrictValue<'_, T>) -> serde_json::Result<R>,
) -> Result<R> {
    run_at(subject, (MAX_DEPTH, Role::Value), value, encode)
}

fn run_at<T: ?Sized + Serialize, R>(
    subject: Subject<'_>,
    (room, role): (u8, Role),
    value: &T,
    encode: impl FnOnce(&StrictValue<'_, T>) -> serde_json::Result<R>,
) -> Result<R> {
    let tracker = Tracker::default();
    encode(&StrictValue { value, room, role, tracker: &tracker })
        .map_err(|source| tracker.into_error(subject, source))
}

/// What a value is to what holds it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Value,
    /// What an option holds: written as `null`, it would be read back as none.
    Held,
    /// A map whose later entries replace earlier ones of the same key.
    Entries,
}

/// A value that serialises through [`Strict`], whatever serializer it is given.
struct StrictValue<'a, T: ?Sized> {
    value: &'a T,
    /// How many more levels it may open.
    room: u8,
    role: Role,
    tracker: &'a Tracker,
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
