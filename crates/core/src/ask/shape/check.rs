//! Holds an answer against a shape, and says where it differs.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Form, Int, Shape};

/// What a message may be long, in characters: enough for a path and an expectation, whatever an answer's keys are.
const MESSAGE: usize = 400;
/// What of a key a pointer shows, in characters.
const KEY: usize = 60;

impl Shape {
    /// Checks that `text` is JSON of this shape.
    ///
    /// # Errors
    ///
    /// What is wrong, at which JSON pointer, and what is expected there; at most 400 characters, without the answer's
    /// values, which may be secret. Only the first difference is named.
    ///
    /// ```
    /// use ferrata_core::ask::Shape;
    ///
    /// let shape = Shape::of::<Vec<(String, bool)>>();
    /// assert!(shape.check(r#"[["lint", true]]"#).is_ok());
    /// assert_eq!(
    ///     shape.check(r#"[["lint", true], ["facts", 1]]"#),
    ///     Err("at /1/1: expected true or false, found a number".to_owned())
    /// );
    /// ```
    pub fn check(&self, text: &str) -> Result<(), String> {
        let raw: &RawValue =
            serde_json::from_str(text).map_err(|error| bounded(format!("not JSON: {error}")))?;
        self.0.check(raw).map_err(|fault| bounded(fault.to_string()))
    }
}

/// The first difference; the path is built from its end.
struct Fault {
    path: Vec<String>,
    what: String,
}

impl Fault {
    fn at(mut self, key: &str) -> Self {
        self.path.push(cut(key, KEY).replace('~', "~0").replace('/', "~1"));
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            f.write_str("at ")?;
            self.path.iter().rev().try_for_each(|key| write!(f, "/{key}"))?;
            f.write_str(": ")?;
        }
        f.write_str(&self.what)
    }
}

impl Form {
    fn check(&self, raw: &RawValue) -> Result<(), Fault> {
        let text = raw.get().trim();
        let first = text.bytes().next().unwrap_or_default();
        let is_number = first == b'-' || first.is_ascii_digit();
        match self {
            Self::Any => Ok(()),
            Self::Bool => self.expect(matches!(first, b't' | b'f'), text),
            Self::Int(int) if is_number => match int.takes(text) {
                Ok(()) => Ok(()),
                Err(what) => Err(Fault { path: Vec::new(), what }),
            },
            Self::Int(_) => self.expect(false, text),
            Self::Number => self.expect(is_number, text),
            Self::Text => self.expect(first == b'"', text),
            Self::Char if first == b'"' && serde_json::from_str::<char>(text).is_err() => {
                Err(self.fault("a text of another length"))
            }
            Self::Char => self.expect(first == b'"', text),
            Self::Bytes => self.expect(matches!(first, b'"' | b'['), text),
            Self::Null => self.expect(first == b'n', text),
            Self::OneOf(texts) => match read::<String>(text) {
                Some(found) if texts.contains(&found) => Ok(()),
                Some(_) => Err(self.fault("another text")),
                None => self.expect(false, text),
            },
            Self::Units(names) => {
                self.variant(text, |name| names.iter().any(|one| one == name).then_some(&Self::Null))
            }
            Self::Variants(variants) => self.variant(text, |name| variants.get(name)),
            Self::Nullable(_) if first == b'n' => Ok(()),
            Self::Nullable(inner) => inner.check(raw),
            Self::List(form) => self.items(text, |_| form),
            Self::Tuple { forms, least } => {
                let count =
                    self.items(text, |index| forms.get(index).unwrap_or(&Self::Any)).map(|()| read(text))?;
                let count = count.map_or(0, |items: Vec<&RawValue>| items.len());
                if (*least..=forms.len()).contains(&count) {
                    return Ok(());
                }
                Err(self.fault(&format!("{count} elements")))
            }
            Self::Map(form) => {
                let Some(Entries(entries)) = read(text) else { return self.expect(false, text) };
                entries.iter().try_for_each(|(key, value)| form.check(value).map_err(|fault| fault.at(key)))
            }
            // serde_json reads a struct from a list as well, field by field.
            Self::Object(_) if first == b'[' => Ok(()),
            Self::Object(fields) => {
                let Some(Entries(entries)) = read(text) else { return self.expect(false, text) };
                for (key, value) in &entries {
                    if let Some(field) = fields.get(key) {
                        field.form.check(value).map_err(|fault| fault.at(key))?;
                    }
                }
                let missing = |name: &String| !entries.iter().any(|(key, _)| key == name);
                match fields.iter().find(|(name, field)| field.required && missing(name)) {
                    Some((name, field)) => Err(Fault {
                        path: Vec::new(),
                        what: format!("missing, expected {}", field.form.expected()),
                    }
                    .at(name)),
                    None => Ok(()),
                }
            }
        }
    }

    fn items<'a>(&self, text: &str, form: impl Fn(usize) -> &'a Self) -> Result<(), Fault> {
        let Some(items) = read::<Vec<&RawValue>>(text) else { return self.expect(false, text) };
        let check = |(index, item)| form(index).check(item).map_err(|fault| fault.at(&index.to_string()));
        items.into_iter().enumerate().try_for_each(check)
    }

    /// An enum is its variant's name, or an object with that name alone as its key.
    fn variant<'a>(&self, text: &str, of: impl Fn(&str) -> Option<&'a Self>) -> Result<(), Fault> {
        if let Some(name) = read::<String>(text) {
            return match of(&name) {
                Some(Self::Null | Self::Any) => Ok(()),
                Some(form) => Err(self.fault(&format!("its name without {}", form.expected()))),
                None => Err(self.fault("another text")),
            };
        }
        let Some(Entries(entries)) = read(text) else { return self.expect(false, text) };
        let [(name, value)] = entries.as_slice() else {
            return Err(self.fault("an object with not one key"));
        };
        let Some(form) = of(name) else { return Err(self.fault("an object with another key")) };
        form.check(value).map_err(|fault| fault.at(name))
    }

    fn expect(&self, holds: bool, text: &str) -> Result<(), Fault> {
        if holds {
            return Ok(());
        }
        Err(self.fault(match text.bytes().next() {
            Some(b'"') => "text",
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'n') => "null",
            Some(b't' | b'f') => "true or false",
            _ => "a number",
        }))
    }

    fn fault(&self, found: &str) -> Fault {
        Fault { path: Vec::new(), what: format!("expected {}, found {found}", self.expected()) }
    }
}

impl Int {
    fn takes(self, text: &str) -> Result<(), String> {
        let (least, greatest) = self.range();
        let found = if text.contains(['.', 'e', 'E']) {
            "a number with a fraction or an exponent"
        } else {
            let holds = match text.parse::<i128>() {
                Ok(value) => value >= least && u128::try_from(value).map_or(true, |value| value <= greatest),
                Err(_) => text.parse::<u128>().is_ok_and(|value| value <= greatest),
            };
            if holds {
                return Ok(());
            }
            "another"
        };
        Err(format!("expected an {}, found {found}", self.exactly()))
    }
}

/// The entries of an object, the values not yet read; a key twice is twice in it.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    entries.push((key, map.next_value()?));
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Reader).map(Self)
    }
}

/// A key, read as bytes: a type may take one that is no valid text.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = String;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_bytes<E>(self, key: &[u8]) -> Result<String, E> {
                Ok(String::from_utf8_lossy(key).into_owned())
            }
        }
        deserializer.deserialize_bytes(Reader).map(Self)
    }
}

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok()
}

fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

fn bounded(message: String) -> String {
    match cut(&message, MESSAGE - 1) {
        Cow::Owned(cut) => cut,
        Cow::Borrowed(_) => message,
    }
}
