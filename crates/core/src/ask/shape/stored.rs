//! A shape as JSON, the form in which it stands in records for ever. `Shape` documents it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{Field, Form, Int, Shape};

/// Forms that are one word.
const WORDS: [(&str, Form); 7] = [
    ("any", Form::Any),
    ("bool", Form::Bool),
    ("number", Form::Number),
    ("text", Form::Text),
    ("char", Form::Char),
    ("bytes", Form::Bytes),
    ("null", Form::Null),
];

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.to_value().serialize(serializer)
    }
}

/// Reads every JSON: what this version does not know is anything, so that the records of a later one can be read.
impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(Self(Form::from_value(&value)))
    }
}

impl Form {
    fn to_value(&self) -> Value {
        match self {
            Self::OneOf(texts) => json!({ "one_of": texts }),
            Self::Units(names) => json!({ "variants": names }),
            Self::Variants(variants) => {
                let content = |form: &Self| if *form == Self::Null { Value::Null } else { form.to_value() };
                let variants: Map<_, _> =
                    variants.iter().map(|(name, form)| (name.clone(), content(form))).collect();
                json!({ "variants": variants })
            }
            Self::Nullable(form) => json!({ "nullable": form.to_value() }),
            Self::List(form) => json!({ "list": form.to_value() }),
            Self::Tuple { forms, least } => {
                let tuple: Vec<_> = forms.iter().map(Self::to_value).collect();
                if *least == forms.len() {
                    json!({ "tuple": tuple })
                } else {
                    json!({ "tuple": tuple, "least": least })
                }
            }
            Self::Map(form) => json!({ "map": form.to_value() }),
            Self::Object(fields) => {
                let fields: Map<_, _> =
                    fields.iter().map(|(name, field)| (field.key(name), field.form.to_value())).collect();
                json!({ "object": fields })
            }
            Self::Int(int) => {
                json!(Int::ALL.iter().find(|(one, _)| one == int).map_or("any", |(_, word)| *word))
            }
            word => json!(WORDS.iter().find(|(_, one)| one == word).map_or("any", |(name, _)| *name)),
        }
    }

    fn from_value(value: &Value) -> Self {
        let known = match value {
            Value::String(word) => Self::from_word(word),
            Value::Object(object) => Self::from_object(object),
            _ => None,
        };
        known.unwrap_or(Self::Any)
    }

    fn from_word(word: &str) -> Option<Self> {
        let int = Int::ALL.iter().find(|(_, name)| *name == word).map(|(int, _)| Self::Int(*int));
        int.or_else(|| WORDS.iter().find(|(name, _)| *name == word).map(|(_, form)| form.clone()))
    }

    fn from_object(object: &Map<String, Value>) -> Option<Self> {
        // A key beside it may change its meaning, so only what is known is read.
        let mut entries = object.iter().filter(|(key, _)| *key != "least");
        let (Some((kind, value)), None) = (entries.next(), entries.next()) else { return None };
        let least = object.get("least");
        if least.is_some() && kind != "tuple" {
            return None;
        }
        let inner = || Box::new(Self::from_value(value));
        match (kind.as_str(), value) {
            ("one_of", Value::Array(texts)) => texts_of(texts).map(Self::OneOf),
            ("variants", Value::Array(names)) => texts_of(names).map(Self::Units),
            ("variants", Value::Object(variants)) => {
                let content =
                    |value: &Value| if value.is_null() { Self::Null } else { Self::from_value(value) };
                Some(Self::Variants(
                    variants.iter().map(|(name, value)| (name.clone(), content(value))).collect(),
                ))
            }
            ("nullable", _) => Some(Self::Nullable(inner())),
            ("list", _) => Some(Self::List(inner())),
            ("tuple", Value::Array(forms)) => {
                let least = match least {
                    Some(least) => {
                        usize::try_from(least.as_u64()?).ok().filter(|least| *least <= forms.len())?
                    }
                    None => forms.len(),
                };
                Some(Self::Tuple { forms: forms.iter().map(Self::from_value).collect(), least })
            }
            ("map", _) => Some(Self::Map(inner())),
            ("object", Value::Object(fields)) => {
                Some(Self::Object(fields.iter().map(|(key, value)| Field::from_entry(key, value)).collect()))
            }
            _ => None,
        }
    }
}

impl Field {
    fn key(&self, name: &str) -> String {
        let mark = match self.required {
            false => "?",
            true if name.ends_with(['?', '!']) => "!",
            true => "",
        };
        format!("{name}{mark}")
    }

    fn from_entry(key: &str, value: &Value) -> (String, Self) {
        let (name, required) = match (key.strip_suffix('?'), key.strip_suffix('!')) {
            (Some(name), _) => (name, false),
            (_, Some(name)) => (name, true),
            _ => (key, true),
        };
        (name.to_owned(), Self { form: Form::from_value(value), required })
    }
}

fn texts_of(values: &[Value]) -> Option<Vec<String>> {
    values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
}
