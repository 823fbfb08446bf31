//! The JSON form of shapes, which `Shape` documents. Stored records contain this form, so it must stay readable.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{IntegerType, Shape, ShapeField, ShapeForm};

/// The forms that are stored as one word.
const WORDS: [(&str, ShapeForm); 7] = [
    ("any", ShapeForm::Any),
    ("bool", ShapeForm::Bool),
    ("number", ShapeForm::Number),
    ("text", ShapeForm::Text),
    ("char", ShapeForm::Char),
    ("bytes", ShapeForm::Bytes),
    ("null", ShapeForm::Null),
];

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.to_value().serialize(serializer)
    }
}

/// Decodes any JSON as a shape. An unknown form becomes `any`, so this version can read the records of later versions.
impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(Self(ShapeForm::from_value(&value)))
    }
}

impl ShapeForm {
    fn to_value(&self) -> Value {
        match self {
            Self::OneOf(texts) => json!({ "one_of": texts }),
            Self::Units(names) => json!({ "variants": names }),
            Self::Variants(variants) => {
                json!({ "variants": contents(variants) })
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
            Self::Object { fields, closed } => {
                let fields: Map<_, _> = fields
                    .iter()
                    .map(|(name, field)| (ShapeField::key(name, field.required), field.form.to_value()))
                    .collect();
                if *closed {
                    json!({ "object": fields, "closed": true })
                } else {
                    json!({ "object": fields })
                }
            }
            Self::Tagged { tag, variants } => json!({ "tagged": { (tag): contents(variants) } }),
            Self::AnyOf(forms) => json!({ "any_of": forms.iter().map(Self::to_value).collect::<Vec<_>>() }),
            Self::Int(int) => {
                json!(IntegerType::ALL.iter().find(|(one, _)| one == int).map_or("any", |(_, word)| *word))
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
        let int = IntegerType::ALL.iter().find(|(_, name)| *name == word).map(|(int, _)| Self::Int(*int));
        int.or_else(|| WORDS.iter().find(|(name, _)| *name == word).map(|(_, form)| form.clone()))
    }

    fn from_object(object: &Map<String, Value>) -> Option<Self> {
        // An unknown key next to the form may change its meaning, so accept only known keys.
        let mut entries = object.iter().filter(|(key, _)| *key != "least" && *key != "closed");
        let (Some((kind, value)), None) = (entries.next(), entries.next()) else { return None };
        let (least, closed) = (object.get("least"), object.get("closed"));
        if least.is_some() && kind != "tuple" || closed.is_some() && kind != "object" {
            return None;
        }
        let inner = || Box::new(Self::from_value(value));
        match (kind.as_str(), value) {
            ("one_of", Value::Array(texts)) => texts_of(texts).map(Self::OneOf),
            ("variants", Value::Array(names)) => texts_of(names).map(Self::Units),
            ("variants", Value::Object(variants)) => Some(Self::Variants(variants_of(variants))),
            ("tagged", Value::Object(tagged)) => {
                let mut tagged = tagged.iter();
                let (Some((tag, Value::Object(variants))), None) = (tagged.next(), tagged.next()) else {
                    return None;
                };
                Some(Self::Tagged { tag: tag.clone(), variants: variants_of(variants) })
            }
            ("any_of", Value::Array(forms)) => {
                Some(Self::AnyOf(forms.iter().map(Self::from_value).collect()))
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
                let closed = closed.map_or(Some(false), Value::as_bool)?;
                let fields =
                    fields.iter().map(|(key, value)| ShapeField::from_key(key, Self::from_value(value)));
                Some(Self::Object { fields: fields.collect(), closed })
            }
            _ => None,
        }
    }
}

/// Returns the stored forms of variants. A variant without content is stored as null.
fn contents(variants: &BTreeMap<String, ShapeForm>) -> Map<String, Value> {
    let content = |form: &ShapeForm| if *form == ShapeForm::Null { Value::Null } else { form.to_value() };
    variants.iter().map(|(name, form)| (name.clone(), content(form))).collect()
}

fn variants_of(variants: &Map<String, Value>) -> BTreeMap<String, ShapeForm> {
    let content =
        |value: &Value| if value.is_null() { ShapeForm::Null } else { ShapeForm::from_value(value) };
    variants.iter().map(|(name, value)| (name.clone(), content(value))).collect()
}

fn texts_of(values: &[Value]) -> Option<Vec<String>> {
    values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
}
