//! The name of a blob, as it stands in states.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use ferrata_store::{Error, ErrorKind};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// What each name begins with. A collection finds the names by it in whatever a record holds, so it is never written otherwise.
const PREFIX: &str = "ferrata-blob:";

/// How many digits of the id follow.
const DIGITS: usize = 32;

/// The name of a large value that is kept beside the records: what a state holds in its place, some sixty bytes.
///
/// It is a text in JSON, `"ferrata-blob:<id>.<bytes>"`. Make one with [`Blobs::put`](crate::Blobs::put). It names a value within a tenant: with the
/// [`Blobs`](crate::Blobs) of another tenant nothing is found.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blob {
    pub(crate) id: Uuid,
    pub(crate) len: u64,
}

impl Blob {
    /// Returns how many bytes the value has.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Tells whether the value has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Display for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}.{}", self.id.simple(), self.len)
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Blob {
    type Err = Error;

    /// Reads a name as it is displayed, and nothing else.
    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let (id, len) = text.strip_prefix(PREFIX)?.split_once('.')?;
            let blob = Self { id: Uuid::try_parse(id).ok()?, len: len.parse().ok()? };
            (blob.to_string() == text).then_some(blob)
        };
        parse().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "the text names no blob; a name is what `Blobs::put` returned")
        })
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| D::Error::custom(error.message()))
    }
}

/// Adds the ids of all blobs that are named in what a record holds, wherever in it and whatever stands around.
pub(crate) fn named_in(body: &[u8], ids: &mut HashSet<Uuid>) {
    let text = String::from_utf8_lossy(body);
    for (at, _) in text.match_indices(PREFIX) {
        let digits = at + PREFIX.len();
        let id = text.get(digits..digits + DIGITS).and_then(|digits| Uuid::try_parse(digits).ok());
        ids.extend(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_in_no_other_form() {
        let blob = Blob { id: Uuid::from_u128(0xAB), len: 7 };
        let text = "ferrata-blob:000000000000000000000000000000ab.7";
        assert_eq!((blob.to_string().as_str(), text.parse::<Blob>().unwrap()), (text, blob));
        for other in [
            "",
            "ferrata-blob:",
            "ferrata-blob:ab.7",
            "ferrata-blob:000000000000000000000000000000ab",
            "ferrata-blob:000000000000000000000000000000AB.7",
            "ferrata-blob:000000000000000000000000000000ab.07",
            "ferrata-blob:000000000000000000000000000000ab.+7",
            "ferrata-blob:000000000000000000000000000000ab.18446744073709551616",
            "ferrata-blob:00000000-0000-0000-0000-0000000000ab.7",
            " ferrata-blob:000000000000000000000000000000ab.7",
        ] {
            assert_eq!(other.parse::<Blob>().unwrap_err().kind(), ErrorKind::Invalid, "{other}");
        }
    }

    #[test]
    fn a_name_is_found_whatever_stands_around_it() {
        let blob = Blob { id: Uuid::from_u128(0xAB), len: 7 };
        let hidden =
            format!("{{\"a\":\"{{\\\"b\\\":\\\"{blob}\\\"}}\",\"é\":\"ferrata-blob:ferrata-blob:\"}}");
        let mut ids = HashSet::new();
        named_in(hidden.as_bytes(), &mut ids);
        named_in(&[b"\xFF\xFE".as_slice(), blob.to_string().as_bytes(), b"\xC3"].concat(), &mut ids);
        named_in("ferrata-blob:0000000000000000000000000000000é".as_bytes(), &mut ids);
        named_in(b"ferrata-blob:", &mut ids);
        assert_eq!(ids, HashSet::from([blob.id]));
    }
}
