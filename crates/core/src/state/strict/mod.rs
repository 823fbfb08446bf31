//! Encoding of values that users hand in: refuses what JSON cannot give back, instead of changing it in silence.
//!
//! `serde_json` writes NaN as `null`, and reads nothing nested deeper than 128. A checkpoint written so would be another
//! value after a restart, or none. Everything a user gives is therefore encoded through this module.

mod compound;
mod path;
mod serializer;

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::text::Text;
use crate::error::Result;
use path::{Subject, Tracker};
use serializer::Strict;

/// How deep a value may be nested.
///
/// `serde_json` refuses to read beyond 128, and a stored value sits a few levels inside its record.
pub const MAX_DEPTH: u8 = 100;

/// Encodes `value` as JSON text.
///
/// Whatever is accepted, `serde_json` reads back as an equal value. The cost over `serde_json::to_string` is a
/// comparison per float and per level of nesting.
///
/// # Errors
///
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the place, for a NaN or an infinity, an integer beyond 64
/// bits, a map key that is not text, nesting deeper than [`MAX_DEPTH`], and for whatever the value's own `Serialize`
/// refuses.
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

/// Encodes `value` as JSON text into `writer`.
///
/// # Errors
///
/// As [`to_json_string`]; a failure of the writer is [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), too, with the
/// failure as its source. What was written before the error stays written.
pub fn to_json_writer<W: io::Write, T: ?Sized + Serialize>(writer: W, value: &T) -> Result<()> {
    run(Subject::Value, value, |value| serde_json::to_writer(writer, value))
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

/// Converts what goes into the channel `name`, so that an error names it.
pub(crate) fn channel_to_value<T: ?Sized + Serialize>(name: &str, value: &T) -> Result<Value> {
    run(Subject::Channel(name), value, |value| serde_json::to_value(value))
}

/// Encodes a whole state, whose first level are the channels.
pub(crate) fn state_to_raw_value<T: ?Sized + Serialize>(state: &T) -> Result<Box<RawValue>> {
    // The object that holds the channels is no level of any of them: a value that fits a patch fits a base, too.
    run_at(Subject::State, MAX_DEPTH + 1, state, |state| serde_json::value::to_raw_value(state))
}

/// Encodes a map key the way `serde_json` encodes it inside a map.
pub(crate) fn key_text<K: Serialize>(channel: &str, key: &K) -> Result<String> {
    struct OneKey<'a, K>(&'a K);
    impl<K: Serialize> Serialize for OneKey<'_, K> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map([(self.0, ())])
        }
    }
    let map = channel_to_value(channel, &OneKey(key))?;
    let key = map.as_object().and_then(|map| map.keys().next());
    Ok(key.expect("a map of one entry has one key").clone())
}

fn run<T: ?Sized + Serialize, R>(
    subject: Subject<'_>,
    value: &T,
    encode: impl FnOnce(&Guarded<'_, T>) -> serde_json::Result<R>,
) -> Result<R> {
    run_at(subject, MAX_DEPTH, value, encode)
}

fn run_at<T: ?Sized + Serialize, R>(
    subject: Subject<'_>,
    room: u8,
    value: &T,
    encode: impl FnOnce(&Guarded<'_, T>) -> serde_json::Result<R>,
) -> Result<R> {
    let tracker = Tracker::default();
    encode(&Guarded { value, room, tracker: &tracker }).map_err(|source| tracker.into_error(subject, source))
}

/// A value that serialises through [`Strict`], whatever serializer it is given.
struct Guarded<'a, T: ?Sized> {
    value: &'a T,
    /// How many more levels it may open.
    room: u8,
    tracker: &'a Tracker,
}

impl<T: ?Sized + Serialize> Serialize for Guarded<'_, T> {
    #[inline]
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Strict { inner: serializer, room: self.room, tracker: self.tracker })
    }
}

#[cfg(test)]
mod tests;
