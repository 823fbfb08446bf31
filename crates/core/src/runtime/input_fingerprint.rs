//! Computes the fingerprint of a run's input. The fingerprint does not depend on the order in which the keys of maps were serialized.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::id::Fingerprint;

/// Hashes an input.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] if the input cannot be parsed, for example because embedded raw text is not JSON.
pub(super) fn input_print(text: &RawValue) -> Result<Fingerprint> {
    in_order(text.get()).map(|sorted| Fingerprint::of(sorted.as_bytes()))
}

/// Rewrites JSON text in a canonical form, in which equal values have equal text, whatever the order of map entries is.
///
/// # Errors
///
/// Returns the errors of [`input_print`].
pub(super) fn in_order(text: &str) -> Result<String> {
    sorted(text)
        .map_err(|source| Error::new(ErrorKind::Invalid, "the input cannot be read back").with_source(source))
}

/// Writes the input in a fixed order, with a comma after each item.
fn sorted(text: &str) -> serde_json::Result<String> {
    let mut sorted = String::with_capacity(text.len() + text.len() / 16);
    let mut reader = serde_json::Deserializer::from_str(text);
    CanonicalJson(&mut sorted).deserialize(&mut reader)?;
    reader.end()?;
    Ok(sorted)
}

/// A deserializer that appends the canonical form of a value to a text while it parses, without building a tree.
struct CanonicalJson<'a>(&'a mut String);

impl CanonicalJson<'_> {
    fn plain(self, value: impl Into<Value>) {
        self.0.push_str(&value.into().to_string());
    }
}

impl<'de> DeserializeSeed<'de> for CanonicalJson<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CanonicalJson<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.plain(());
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.plain(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.plain(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.plain(value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.plain(value);
        Ok(())
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<(), E> {
        // The string is verbatim from the input, so it needs no escaping.
        self.0.push('"');
        self.0.push_str(text);
        self.0.push('"');
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.plain(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.push('[');
        while items.next_element_seed(CanonicalJson(&mut *self.0))?.is_some() {
            self.0.push(',');
        }
        self.0.push(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let out = self.0;
        out.push('{');
        let begin = out.len();
        // For duplicate keys, the last entry wins.
        let mut entries: BTreeMap<Cow<'de, str>, Range<usize>> = BTreeMap::new();
        let mut in_order = true;
        while let Some(key) = map.next_key_seed(EntryKey)? {
            in_order &= entries.last_key_value().is_none_or(|(last, _)| *last < key);
            let from = out.len();
            match &key {
                Cow::Borrowed(text) => CanonicalJson(&mut *out).visit_borrowed_str::<A::Error>(text)?,
                Cow::Owned(text) => CanonicalJson(&mut *out).visit_str::<A::Error>(text)?,
            }
            out.push(':');
            map.next_value_seed(CanonicalJson(&mut *out))?;
            out.push(',');
            entries.insert(key, from..out.len());
        }
        if !in_order {
            let parts = entries
                .into_values()
                .map(|at| out.get(at).ok_or_else(|| A::Error::custom("an entry was lost")));
            let again = parts.collect::<Result<String, _>>()?;
            out.truncate(begin);
            out.push_str(&again);
        }
        out.push('}');
        Ok(())
    }
}

/// The key of an entry. It is borrowed if the input contains it without escapes.
struct EntryKey;

impl<'de> DeserializeSeed<'de> for EntryKey {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for EntryKey {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key of an object")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes the text of the fingerprint by walking a parsed value. Stored fingerprints come from this algorithm.
    fn walked(value: &Value, out: &mut String) {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                out.push('{');
                for (key, value) in entries {
                    out.push_str(&Value::from(key.as_str()).to_string());
                    out.push(':');
                    walked(value, out);
                    out.push(',');
                }
                out.push('}');
            }
            Value::Array(items) => {
                out.push('[');
                for item in items {
                    walked(item, out);
                    out.push(',');
                }
                out.push(']');
            }
            plain => out.push_str(&plain.to_string()),
        }
    }

    fn key() -> impl Strategy<Value = String> {
        prop_oneof![2 => Just(r#""a""#.to_owned()), 2 => Just(r#""b""#.to_owned()), 1 => text()]
    }

    /// A string as JSON, with superfluous escapes or none.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>().prop_map(|text| Value::from(text).to_string()),
            any::<char>().prop_map(|c| {
                let mut units = [0; 2];
                let escaped: String =
                    c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04X}")).collect();
                format!("\"{escaped}\"")
            }),
            Just(r#""\/\b\f\n\r\t\"\\""#.to_owned()),
        ]
    }

    fn json() -> impl Strategy<Value = String> {
        let number = prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            any::<u64>().prop_map(|n| n.to_string()),
            any::<f64>().prop_map(|n| Value::from(n).to_string()),
            prop::sample::select(vec![
                "-0",
                "1e5",
                "1E-7",
                "0.10",
                "18446744073709551616",
                "-9223372036854775809"
            ])
            .prop_map(str::to_owned),
        ];
        let leaf = prop_oneof![
            number,
            text(),
            prop::sample::select(vec!["null", "true", "false"]).prop_map(str::to_owned)
        ];
        leaf.prop_recursive(4, 48, 6, |inner| {
            let entry = (key(), inner.clone()).prop_map(|(key, value)| format!("{key} : {value}"));
            prop_oneof![
                prop::collection::vec(inner, 0..5).prop_map(|items| format!("[ {} ]", items.join(" ,"))),
                prop::collection::vec(entry, 0..6).prop_map(|entries| format!("{{{}}}", entries.join(", "))),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_is_that_of_what_was_read(text in json()) {
            let mut expected = String::new();
            walked(&serde_json::from_str(&text).unwrap(), &mut expected);
            prop_assert_eq!(sorted(&text).unwrap(), expected);
        }
    }

    #[test]
    fn the_order_of_entries_does_not_matter() {
        let print = |text: &str| input_print(&RawValue::from_string(text.to_owned()).unwrap()).unwrap();
        assert_eq!(print(r#"{"b":{"d":1,"c":[]},"a":2}"#), print(r#"{"a":2,"b":{"c":[],"d":1}}"#));
        assert_ne!(print(r#"{"a":1,"b":2}"#), print(r#"{"a":2,"b":1}"#));
        assert_ne!(print("[1,2]"), print("[2,1]"));
    }
}
