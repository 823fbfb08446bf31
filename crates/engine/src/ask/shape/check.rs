//! Checks whether an answer has a shape.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{IntegerType, Shape, ShapeForm};

/// The maximum length of a message in characters. It is enough for the path and the expected shape, whatever keys an answer has.
const MESSAGE: usize = 400;
/// The maximum length of a key in a pointer, in characters.
const KEY: usize = 60;

impl Shape {
    /// Checks that `text` is JSON that has this shape.
    ///
    /// # Errors
    ///
    /// Returns a message of at most 400 characters with the first problem, the JSON pointer to it, and the shape that is expected there. The message
    /// contains no values of the answer, because they may be secret.
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
        let not_json = |error| bounded(format!("not JSON: {error}"));
        // Ignored parts must be readable too: a number beyond the range of floats, for example, is never a valid answer.
        serde_json::from_str::<Value>(text).map_err(not_json)?;
        let raw: &RawValue = serde_json::from_str(text).map_err(not_json)?;
        self.0.check(raw).map_err(|fault| bounded(fault.to_string()))
    }
}

/// The first difference between an answer and a shape. Its path is built from the end.
struct ShapeMismatch {
    path: Vec<String>,
    what: String,
}

impl ShapeMismatch {
    fn at(mut self, key: &str) -> Self {
        self.path.push(cut(key, KEY).replace('~', "~0").replace('/', "~1"));
        self
    }
}

impl fmt::Display for ShapeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            f.write_str("at ")?;
            self.path.iter().rev().try_for_each(|key| write!(f, "/{key}"))?;
            f.write_str(": ")?;
        }
        f.write_str(&self.what)
    }
}

impl ShapeForm {
    fn check(&self, raw: &RawValue) -> Result<(), ShapeMismatch> {
        let text = raw.get().trim();
        let first = text.bytes().next().unwrap_or_default();
        let is_number = first == b'-' || first.is_ascii_digit();
        match self {
            Self::Any => Ok(()),
            Self::Bool => self.expect(matches!(first, b't' | b'f'), text),
            Self::Int(int) if is_number => match int.takes(text) {
                Ok(()) => Ok(()),
                Err(what) => Err(ShapeMismatch { path: Vec::new(), what }),
            },
            Self::Int(_) => self.expect(false, text),
            Self::Number => self.expect(is_number, text),
            Self::Text => self.expect(first == b'"', text),
            Self::Char if first == b'"' && read::<char>(text).is_none() => {
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
            Self::Nullable(_) if first == b'n' => Ok(()),
            Self::Nullable(inner) => inner.check(raw),
            Self::List(form) => self.items(text, |_| form).map(drop),
            Self::Tuple { forms, least } => {
                let count = self.items(text, |index| forms.get(index).unwrap_or(&Self::Any))?;
                if (*least..=forms.len()).contains(&count) {
                    return Ok(());
                }
                Err(self.fault(&format!("{count} elements")))
            }
            Self::AnyOf(forms) => self.any_of(forms, text, |form| form.check(raw)),
            Self::Units(_) | Self::Variants(_) if first == b'"' => match read::<String>(text) {
                Some(name) => match self.content(&name) {
                    Some(Self::Null) => Ok(()),
                    Some(form) => Err(self.fault(&format!("its name without {}", form.expected()))),
                    None => Err(self.fault("another text")),
                },
                None => Err(self.fault("another text")),
            },
            Self::Units(_) | Self::Variants(_) | Self::Map(_) | Self::Object { .. } | Self::Tagged { .. } => {
                match read(text) {
                    Some(ObjectEntries(entries)) => self.entries(&entries),
                    None => self.expect(false, text),
                }
            }
        }
    }

    /// Checks the entries of an object. If the object has a tag, the tag may already be removed.
    fn entries(&self, entries: &[Entry<'_>]) -> Result<(), ShapeMismatch> {
        match self {
            // Fields next to the tag of a variant without content do not matter.
            Self::Null | Self::Any => Ok(()),
            Self::Nullable(form) => form.entries(entries),
            Self::AnyOf(forms) => self.any_of(forms, "{", |form| form.entries(entries)),
            // An enum is a variant's name, or an object with that name as its only key.
            Self::Units(_) | Self::Variants(_) => {
                let [(name, value)] = entries else {
                    return Err(self.fault("an object without exactly one key"));
                };
                let Some(form) = self.content(name) else {
                    return Err(self.fault("an object with another key"));
                };
                form.check(value).map_err(|fault| fault.at(name))
            }
            Self::Map(form) => {
                entries.iter().try_for_each(|(key, value)| form.check(value).map_err(|fault| fault.at(key)))
            }
            Self::Object { fields, closed } => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    let told = |what: &str| ShapeMismatch { path: Vec::new(), what: what.to_owned() }.at(key);
                    match fields.get(key) {
                        Some(_) if is_twice(entries, index) => {
                            return Err(told("appears twice, expected once"));
                        }
                        Some(field) => field.form.check(value).map_err(|fault| fault.at(key))?,
                        None if *closed => return Err(told("unknown field")),
                        None => {}
                    }
                }
                let missing = |name: &String| !entries.iter().any(|(key, _)| key == name);
                match fields.iter().find(|(name, field)| field.required && missing(name)) {
                    Some((name, field)) => Err(field.form.missing().at(name)),
                    None => Ok(()),
                }
            }
            Self::Tagged { tag, variants } => {
                let names = || Self::OneOf(variants.keys().cloned().collect());
                let Some(at) = entries.iter().position(|(key, _)| key == tag) else {
                    return Err(names().missing().at(tag));
                };
                names().check(entries[at].1).map_err(|fault| fault.at(tag))?;
                if is_twice(entries, at) {
                    return Err(ShapeMismatch {
                        path: Vec::new(),
                        what: "appears twice, expected once".to_owned(),
                    }
                    .at(tag));
                }
                let form = read::<String>(entries[at].1.get()).and_then(|name| variants.get(&name));
                let others: Vec<_> = entries.iter().filter(|(key, _)| key != tag).cloned().collect();
                form.map_or(Ok(()), |form| form.entries(&others))
            }
            _ => self.expect(false, "{"),
        }
    }

    /// Returns the form of a variant's content.
    fn content(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Units(names) => names.iter().any(|one| one == name).then_some(&Self::Null),
            Self::Variants(variants) => variants.get(name),
            _ => None,
        }
    }

    fn any_of(
        &self,
        forms: &[Self],
        text: &str,
        check: impl Fn(&Self) -> Result<(), ShapeMismatch>,
    ) -> Result<(), ShapeMismatch> {
        let mut nearest: Option<ShapeMismatch> = None;
        for form in forms {
            let Err(fault) = check(form) else { return Ok(()) };
            // The variant that matched longest is the intended one.
            if nearest.as_ref().is_none_or(|nearest| fault.path.len() > nearest.path.len()) {
                nearest = Some(fault);
            }
        }
        match nearest {
            Some(fault) if !fault.path.is_empty() => Err(fault),
            _ => self.expect(false, text),
        }
    }

    /// Checks each item of a list, and returns the number of items.
    fn items<'a>(&self, text: &str, form: impl Fn(usize) -> &'a Self) -> Result<usize, ShapeMismatch> {
        let Some(items) = read::<Vec<&RawValue>>(text) else {
            return self.expect(false, text).map(|()| 0);
        };
        let check = |(index, item)| form(index).check(item).map_err(|fault| fault.at(&index.to_string()));
        items.iter().copied().enumerate().try_for_each(check)?;
        Ok(items.len())
    }

    fn expect(&self, holds: bool, text: &str) -> Result<(), ShapeMismatch> {
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

    fn fault(&self, found: &str) -> ShapeMismatch {
        ShapeMismatch { path: Vec::new(), what: format!("expected {}, found {found}", self.expected()) }
    }

    fn missing(&self) -> ShapeMismatch {
        ShapeMismatch { path: Vec::new(), what: format!("missing, expected {}", self.expected()) }
    }
}

fn is_twice(entries: &[Entry<'_>], at: usize) -> bool {
    entries[..at].iter().chain(&entries[at + 1..]).any(|(key, _)| *key == entries[at].0)
}

impl IntegerType {
    fn takes(self, text: &str) -> Result<(), String> {
        let (least, greatest) = self.range();
        let found = if text.contains(['.', 'e', 'E']) {
            "a number with a fraction or an exponent"
        } else {
            let holds = match text.parse::<i128>() {
                // JSON's `-0` is a float to all but the widest.
                Ok(0) if text.starts_with('-') => self == Self::I128,
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

type Entry<'a> = (String, &'a RawValue);

/// The entries of an object, with values that are not decoded. If a key occurs twice, both entries are retained.
struct ObjectEntries<'a>(Vec<Entry<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for ObjectEntries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Vec<Entry<'de>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(EntriesVisitor).map(Self)
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
