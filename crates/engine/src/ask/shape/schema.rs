//! Converts shapes to JSON Schema, for user interfaces that generate forms.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{IntegerType, Shape, ShapeField, ShapeForm};

/// The dialect that a schema names.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

impl Shape {
    /// Returns the shape as a [JSON Schema](https://json-schema.org/draft/2020-12) of the dialect 2020-12, from which a user interface can generate a
    /// form.
    ///
    /// # Guarantees
    ///
    /// [`check`](Self::check) accepts every JSON value that fits the schema, with three exceptions: an integer with a fraction or an exponent
    /// (`7.0`), an integer beyond 64 bits, and a duplicate field. For a variant without content, the schema accepts only the name of the variant,
    /// while `check` also accepts `{"name": null}`.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::ask::Shape;
    /// use serde_json::json;
    ///
    /// let shape = Shape::object([("eur", Shape::of::<u8>()), ("note?", Shape::of::<String>())]);
    /// assert_eq!(
    ///     shape.json_schema(),
    ///     json!({
    ///         "$schema": "https://json-schema.org/draft/2020-12/schema",
    ///         "type": "object",
    ///         "properties": {
    ///             "eur": { "type": "integer", "minimum": 0, "maximum": 255 },
    ///             "note": { "type": "string" },
    ///         },
    ///         "required": ["eur"],
    ///     })
    /// );
    /// ```
    #[must_use]
    pub fn json_schema(&self) -> Value {
        let mut schema = self.0.schema();
        if let Value::Object(schema) = &mut schema {
            schema.insert("$schema".into(), DIALECT.into());
        }
        schema
    }
}

/// The tags of an object that are already handled, with their texts.
type Tags<'a> = BTreeMap<&'a str, &'a str>;

impl ShapeForm {
    fn schema(&self) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Bool => json!({ "type": "boolean" }),
            Self::Int(int) => int.schema(),
            Self::Number => json!({ "type": "number" }),
            Self::Text => json!({ "type": "string" }),
            Self::Char => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
            Self::Bytes => json!({ "type": ["array", "string"] }),
            Self::Null => json!({ "type": "null" }),
            Self::OneOf(texts) | Self::Units(texts) => one_of(texts),
            Self::Variants(variants) => {
                let plain = variants.iter().filter(|(_, form)| **form == Self::Null).map(|(name, _)| name);
                let names = Some(one_of(plain)).filter(|names| *names != never());
                any_of(names.into_iter().chain(self.wrapped(&Tags::new())))
            }
            Self::Nullable(form) => any_of([form.schema(), Self::Null.schema()]),
            Self::List(form) => with_unless_any(json!({ "type": "array" }), "items", form.schema()),
            Self::Tuple { forms, .. } if forms.is_empty() => json!({ "type": "array", "maxItems": 0 }),
            Self::Tuple { forms, least } => json!({
                "type": "array",
                "prefixItems": forms.iter().map(Self::schema).collect::<Vec<_>>(),
                "minItems": least,
                "maxItems": forms.len(),
            }),
            Self::Map(_) | Self::Object { .. } | Self::Tagged { .. } => self.entries_schema(&Tags::new()),
            Self::AnyOf(forms) => any_of(forms.iter().map(Self::schema)),
        }
    }

    /// Returns the schema of an object whose tags are already handled. The cases have the same order as in `check`.
    fn entries_schema(&self, tags: &Tags<'_>) -> Value {
        match self {
            Self::Null | Self::Any => object(tags, Map::new(), &[]),
            Self::Nullable(form) => form.entries_schema(tags),
            Self::AnyOf(forms) => any_of(forms.iter().map(|form| form.entries_schema(tags))),
            Self::Units(_) | Self::Variants(_) => any_of(self.wrapped(tags)),
            Self::Map(form) => {
                with_unless_any(object(tags, Map::new(), &[]), "additionalProperties", form.schema())
            }
            Self::Object { fields, closed } => {
                let required: Vec<&str> = fields
                    .iter()
                    .filter(|(_, field)| field.required)
                    .map(|(name, _)| name.as_str())
                    .collect();
                if required.iter().any(|name| tags.contains_key(name)) {
                    // The tag consumes the field of the same name, so the field is missing.
                    return never();
                }
                let properties =
                    fields.iter().map(|(name, ShapeField { form, .. })| (name.clone(), form.schema()));
                let mut schema = object(tags, properties.collect(), &required);
                if *closed {
                    schema["additionalProperties"] = false.into();
                }
                schema
            }
            Self::Tagged { tag, .. } if tags.contains_key(tag.as_str()) => never(),
            Self::Tagged { tag, variants } => any_of(variants.iter().map(|(name, form)| {
                let mut tags = tags.clone();
                tags.insert(tag, name);
                form.entries_schema(&tags)
            })),
            _ => never(),
        }
    }

    /// Returns the schemas of an enum's variants as objects with one key. Variants without content are included only as fields next to a tag.
    fn wrapped(&self, tags: &Tags<'_>) -> Vec<Value> {
        let units;
        let variants: Vec<(&String, &Self)> = match self {
            Self::Variants(variants) => variants.iter().collect(),
            Self::Units(names) => {
                units = names.iter().collect::<BTreeSet<_>>();
                units.iter().map(|name| (*name, &Self::Null)).collect()
            }
            _ => Vec::new(),
        };
        let is_told = |(name, form): &(&String, &Self)| {
            !tags.contains_key(name.as_str()) && (**form != Self::Null || !tags.is_empty())
        };
        variants
            .into_iter()
            .filter(is_told)
            .map(|(name, form)| {
                let property = Map::from_iter([(name.clone(), form.schema())]);
                let mut schema = object(tags, property, &[name]);
                schema["additionalProperties"] = false.into();
                schema
            })
            .collect()
    }
}

impl IntegerType {
    fn schema(self) -> Value {
        let (least, greatest) = self.range();
        let mut schema = json!({ "type": "integer" });
        // Most JSON readers convert a bound beyond 64 bits, and the value it limits, to a float.
        if let Ok(least) = i64::try_from(least) {
            schema["minimum"] = least.into();
        }
        if let Ok(greatest) = u64::try_from(greatest) {
            schema["maximum"] = greatest.into();
        }
        schema
    }
}

/// Returns the schema that accepts no value.
fn never() -> Value {
    json!({ "not": {} })
}

/// Returns the schema of one of these texts, without duplicates: JSON Schema requires a nonempty list of unique choices.
fn one_of<'a>(texts: impl IntoIterator<Item = &'a String>) -> Value {
    let mut seen = BTreeSet::new();
    let choices: Vec<&String> = texts.into_iter().filter(|text| seen.insert(*text)).collect();
    if choices.is_empty() { never() } else { json!({ "enum": choices }) }
}

fn any_of(schemas: impl IntoIterator<Item = Value>) -> Value {
    let mut schemas: Vec<Value> = schemas.into_iter().filter(|schema| *schema != never()).collect();
    match schemas.len() {
        0 => never(),
        1 => schemas.remove(0),
        _ => json!({ "anyOf": schemas }),
    }
}

/// Returns the schema of an object with these properties and the consumed tags.
fn object(tags: &Tags<'_>, mut properties: Map<String, Value>, required: &[&str]) -> Value {
    for (tag, name) in tags {
        properties.insert((*tag).to_owned(), json!({ "const": name }));
    }
    let required: Vec<&str> = tags.keys().chain(required).copied().collect();
    let mut schema = json!({ "type": "object" });
    if !properties.is_empty() {
        schema["properties"] = properties.into();
    }
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

/// Adds a schema of the content, unless it accepts anything.
fn with_unless_any(mut schema: Value, key: &str, inner: Value) -> Value {
    if inner != json!({}) {
        schema[key] = inner;
    }
    schema
}
