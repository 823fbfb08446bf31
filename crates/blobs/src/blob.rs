//! The name of a blob, as it appears in a state.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use ferrata_store::{Error, ErrorKind};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// The prefix of each blob name. A collection searches records for this prefix, so names are written in this spelling only.
const PREFIX: &str = "ferrata-blob:";

/// The number of hexadecimal digits of the id.
const DIGITS: usize = 32;

/// The maximum number of escape levels that the search decodes. JSON inside a JSON text adds one level. The limit bounds the time for hostile text.
const LEVELS: u32 = 16;

/// The name of a large value stored outside the records. A state holds this name, about sixty bytes, instead of the value.
///
/// Its JSON form is the text `"ferrata-blob:<id>.<bytes>"`. Create a blob with [`Blobs::put`](crate::Blobs::put). A name is valid within one tenant:
/// the [`Blobs`](crate::Blobs) of another tenant find no value with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blob {
    pub(crate) id: Uuid,
    pub(crate) len: u64,
}

impl Blob {
    /// Returns the size of the value in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the value has no bytes.
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

    /// Parses a name. Accepts only the exact text that `Display` writes.
    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let (id, len) = text.strip_prefix(PREFIX)?.split_once('.')?;
            let blob = Self { id: Uuid::try_parse(id).ok()?, len: len.parse().ok()? };
            (blob.to_string() == text).then_some(blob)
        };
        parse().ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "the text is not the name of a blob; use a name that `Blobs::put` returned",
            )
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

/// Adds the ids of all blobs named in a record's body, at any position and in any JSON spelling.
///
/// A JSON text may spell any character with an escape, and the text may itself be JSON. So the search looks for names in the body, then in the body
/// with its escapes decoded, and so on, once for each level of nesting.
pub(crate) fn collect_blob_ids(body: &[u8], ids: &mut HashSet<Uuid>) {
    let mut text = String::from_utf8_lossy(body);
    for _ in 0..LEVELS {
        find_names(&text, ids);
        // Only `\u` escapes can spell the characters of a name.
        if !text.contains("\\u") {
            return;
        }
        text = Cow::Owned(unescape(&text));
    }
    find_names(&text, ids);
}

fn find_names(text: &str, ids: &mut HashSet<Uuid>) {
    for (at, _) in text.match_indices(PREFIX) {
        let digits = at + PREFIX.len();
        let id = text.get(digits..digits + DIGITS).and_then(|digits| Uuid::try_parse(digits).ok());
        ids.extend(id);
    }
}

/// Decodes one level of JSON escapes at any position, and leaves other text unchanged.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let escaped = &rest[at + 1..];
        let digits = escaped.strip_prefix('u').and_then(|digits| digits.get(..4));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        rest = match (code, escaped.chars().next()) {
            (Some(code), _) => {
                // Half of a surrogate pair becomes a replacement character, which no name contains.
                plain.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                &escaped[5..]
            }
            (None, Some(c @ ('\\' | '/' | '"'))) => {
                plain.push(c);
                &escaped[1..]
            }
            (None, _) => {
                plain.push('\\');
                escaped
            }
        };
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: BLOB-12.
    #[test]
    fn blob_name_parses_only_in_written_form() {
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

    /// Spells text as JSON. Each character is randomly plain or escaped.
    fn spelled(text: &str, random: &mut impl FnMut() -> u32) -> String {
        let spell = |c: char| match random() % 4 {
            0 => format!("\\u{:04x}", u32::from(c)),
            1 => format!("\\u{:04X}", u32::from(c)),
            2 if c == '/' => "\\/".to_owned(),
            _ if c == '"' || c == '\\' => format!("\\{c}"),
            _ => c.to_string(),
        };
        text.chars().map(spell).collect()
    }

    /// Finds names in JSON within JSON, with escapes of any character at any level.
    ///
    /// Guarantees: BLOB-6.
    #[test]
    fn spelled_names_are_found_at_every_level() {
        let blob = Blob { id: Uuid::from_u128(0xAB), len: 7 };
        for seed in 1..=500_u32 {
            let mut chance = seed;
            let mut random = || {
                // Xorshift.
                chance ^= chance << 13;
                chance ^= chance >> 17;
                chance ^= chance << 5;
                chance >> 8
            };
            let around = [("", ""), ("C:\\", " x"), ("\\u006", "\""), ("{\"a/b\":\"", "\"}")];
            let (before, after) = around[seed as usize % around.len()];
            let mut text = format!("{before}{blob}{after}");
            for level in 0..seed % 5 {
                text = format!("{{\"k\":\"{}\"}}", spelled(&text, &mut random));
                let mut ids = HashSet::new();
                collect_blob_ids(text.as_bytes(), &mut ids);
                assert_eq!(ids, HashSet::from([blob.id]), "seed {seed}, level {level}: {text}");
            }
        }
    }

    /// Escapes beyond the maximum level cost no time that grows with the square of the text's length.
    #[test]
    fn nested_escapes_take_bounded_time() {
        let mut ids = HashSet::new();
        collect_blob_ids(format!("\"\\{}\"", "u005c".repeat(1 << 20)).as_bytes(), &mut ids);
        assert!(ids.is_empty());
        assert_eq!(unescape("\\u005cu0066 \\n\\\\ \\ud83d \\u00 \\"), "\\u0066 \\n\\ \u{fffd} \\u00 \\");
    }

    #[test]
    fn a_name_is_found_whatever_stands_around_it() {
        let blob = Blob { id: Uuid::from_u128(0xAB), len: 7 };
        let hidden =
            format!("{{\"a\":\"{{\\\"b\\\":\\\"{blob}\\\"}}\",\"é\":\"ferrata-blob:ferrata-blob:\"}}");
        let mut ids = HashSet::new();
        collect_blob_ids(hidden.as_bytes(), &mut ids);
        collect_blob_ids(&[b"\xFF\xFE".as_slice(), blob.to_string().as_bytes(), b"\xC3"].concat(), &mut ids);
        collect_blob_ids("ferrata-blob:0000000000000000000000000000000é".as_bytes(), &mut ids);
        collect_blob_ids(b"ferrata-blob:", &mut ids);
        assert_eq!(ids, HashSet::from([blob.id]));
    }
}
