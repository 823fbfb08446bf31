//! A shape and its JSON Schema agree on answers.

use proptest::prelude::*;
use serde_json::{Map, Number, Value, json};

use super::super::{Shape, ShapeForm};
use super::{shapes, texts};
use crate::ask::{Question, Resolution};
use crate::state::Patch;

/// Returns whether a value fits a schema, for the subset of JSON Schema that shapes use.
fn fits(schema: &Value, value: &Value) -> bool {
    let entries = schema.as_object().unwrap();
    let of = |key: &str| entries.get(key);
    entries.iter().all(|(word, rule)| match (word.as_str(), value) {
        ("$schema" | "default" | "title", _) => true,
        ("not", _) => !fits(rule, value),
        ("anyOf", _) => rule.as_array().unwrap().iter().any(|schema| fits(schema, value)),
        ("enum", _) => rule.as_array().unwrap().contains(value),
        ("const", _) => rule == value,
        ("type", _) => match rule {
            Value::Array(types) => types.iter().any(|one| is_of(one, value)),
            one => is_of(one, value),
        },
        ("minimum", Value::Number(number)) => bound(number) >= bound(rule.as_number().unwrap()),
        ("maximum", Value::Number(number)) => bound(number) <= bound(rule.as_number().unwrap()),
        ("minLength", Value::String(text)) => text.chars().count() as u64 >= rule.as_u64().unwrap(),
        ("maxLength", Value::String(text)) => text.chars().count() as u64 <= rule.as_u64().unwrap(),
        ("minItems", Value::Array(items)) => items.len() as u64 >= rule.as_u64().unwrap(),
        ("maxItems", Value::Array(items)) => items.len() as u64 <= rule.as_u64().unwrap(),
        ("items", Value::Array(items)) => items.iter().all(|item| fits(rule, item)),
        ("prefixItems", Value::Array(items)) => {
            items.iter().zip(rule.as_array().unwrap()).all(|(item, schema)| fits(schema, item))
        }
        ("required", Value::Object(object)) => {
            rule.as_array().unwrap().iter().all(|name| object.contains_key(name.as_str().unwrap()))
        }
        ("properties", Value::Object(object)) => rule
            .as_object()
            .unwrap()
            .iter()
            .all(|(name, schema)| object.get(name).is_none_or(|value| fits(schema, value))),
        ("additionalProperties", Value::Object(object)) => object
            .iter()
            .filter(|(name, _)| of("properties").is_none_or(|properties| properties.get(name).is_none()))
            .all(|(_, value)| rule != false && fits(rule, value)),
        (
            "minimum"
            | "maximum"
            | "minLength"
            | "maxLength"
            | "minItems"
            | "maxItems"
            | "items"
            | "prefixItems"
            | "required"
            | "properties"
            | "additionalProperties",
            _,
        ) => true,
        (other, _) => panic!("`{other}` is no word that forms know"),
    })
}

/// Only integers are bounded, and no other number has their type.
fn bound(number: &Number) -> i128 {
    number.as_i128().unwrap_or_default()
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap() {
        "boolean" => value.is_boolean(),
        "integer" => value.as_number().is_some_and(|n| n.is_i64() || n.is_u64()),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("`{other}` is no type of JSON"),
    }
}

/// A source of choices.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most.max(1)
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }
}

/// Returns a value that usually fits a form, or none if the form leaves no choice.
fn sample(form: &ShapeForm, dice: &mut Dice) -> Option<Value> {
    Some(match form {
        ShapeForm::Any => [json!(null), json!([1]), json!({ "a": 1 }), json!("a")][dice.below(4)].clone(),
        ShapeForm::Bool => json!(dice.below(2) == 1),
        ShapeForm::Int(int) => {
            let (least, greatest) = int.range();
            let all =
                [i64::try_from(least).unwrap_or(-7), 0, i64::try_from(greatest).unwrap_or(i64::MAX), 300, -1];
            json!(dice.pick(&all))
        }
        ShapeForm::Number => json!(2.5),
        ShapeForm::Text => json!("text"),
        ShapeForm::Char => json!(["a", "é", "", "ab"][dice.below(4)]),
        ShapeForm::Bytes => [json!("a"), json!([1])][dice.below(2)].clone(),
        ShapeForm::Null => Value::Null,
        ShapeForm::OneOf(texts) | ShapeForm::Units(texts) => json!(dice.pick(texts)?),
        ShapeForm::Variants(variants) => {
            let all: Vec<_> = variants.iter().collect();
            let (name, form) = *dice.pick(&all)?;
            if *form == ShapeForm::Null { json!(name) } else { json!({ name: sample(form, dice)? }) }
        }
        ShapeForm::Nullable(form) => match dice.below(3) {
            0 => Value::Null,
            _ => sample(form, dice)?,
        },
        ShapeForm::List(form) => (0..dice.below(3)).filter_map(|_| sample(form, dice)).collect(),
        ShapeForm::Tuple { forms, least } => {
            let count = least + dice.below(forms.len() - least + 1);
            Value::Array(forms[..count].iter().map(|form| sample(form, dice)).collect::<Option<_>>()?)
        }
        ShapeForm::Map(form) => match sample(form, dice) {
            Some(value) => json!({ "key": value }),
            None => json!({}),
        },
        ShapeForm::Object { fields, .. } => {
            let mut object = Map::new();
            for (name, field) in fields {
                if field.required || dice.below(2) == 0 {
                    object.insert(name.clone(), sample(&field.form, dice)?);
                }
            }
            object.into()
        }
        ShapeForm::Tagged { tag, variants } => {
            let all: Vec<_> = variants.iter().collect();
            let (name, form) = *dice.pick(&all)?;
            let mut object = match sample(form, dice)? {
                Value::Object(object) => object,
                _ => Map::new(),
            };
            object.insert(tag.clone(), json!(name));
            object.into()
        }
        ShapeForm::AnyOf(forms) => sample(dice.pick(forms)?, dice)?,
    })
}

/// Returns whether a value has a variant without content as an object, which only the shape accepts.
fn is_odd(shape: &Shape, value: &Value) -> bool {
    let text = serde_json::to_string(value).unwrap();
    text.contains(":null}") && serde_json::to_string(shape).unwrap().contains("variants")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Guarantees: QUESTION-7.
    #[test]
    fn every_answer_that_fits_the_schema_is_taken(shape in shapes(), other in texts(), seed in any::<u64>()) {
        let schema = shape.json_schema();
        let mut dice = Dice(seed);
        let mut answers: Vec<Value> = (0..6).filter_map(|_| sample(&shape.0, &mut dice)).collect();
        // Next to values that usually fit, values that usually do not: with a missing, an extra or a changed field.
        for answer in answers.clone() {
            if let Value::Object(object) = answer {
                let key = object.keys().nth(dice.below(object.len())).cloned().unwrap_or_default();
                let (mut less, mut more, mut changed) = (object.clone(), object.clone(), object);
                less.remove(&key);
                more.insert("more".into(), json!(1));
                changed.insert(key, json!([true]));
                answers.extend([less, more, changed].map(Value::Object));
            }
        }
        answers.extend(serde_json::from_str::<Value>(&other).ok());
        for answer in answers {
            let checked = shape.check(&answer.to_string());
            let fits = fits(&schema, &answer);
            prop_assert!(!fits || checked.is_ok(), "{answer} fits {schema}, but {checked:?}");
            prop_assert!(fits || checked.is_err() || is_odd(&shape, &answer), "{answer} does not fit {schema}");
        }
    }
}

#[test]
fn a_schema_says_what_a_form_needs() {
    let shape = |json: Value| serde_json::from_value::<Shape>(json).unwrap();
    let cases = [
        (json!("any"), json!({})),
        (json!({ "one_of": ["a", "b", "a"] }), json!({ "enum": ["a", "b"] })),
        (json!({ "variants": ["Yes", "No"] }), json!({ "enum": ["Yes", "No"] })),
        (
            json!({ "variants": { "No": null, "Yes": "u8" } }),
            json!({ "anyOf": [
                { "enum": ["No"] },
                {
                    "type": "object",
                    "properties": { "Yes": { "type": "integer", "minimum": 0, "maximum": 255 } },
                    "required": ["Yes"],
                    "additionalProperties": false,
                },
            ] }),
        ),
        (
            json!({ "tagged": { "kind": { "card": { "object": { "number": "text" }, "closed": true }, "cash": null } } }),
            json!({ "anyOf": [
                {
                    "type": "object",
                    "properties": { "kind": { "const": "card" }, "number": { "type": "string" } },
                    "required": ["kind", "number"],
                    "additionalProperties": false,
                },
                { "type": "object", "properties": { "kind": { "const": "cash" } }, "required": ["kind"] },
            ] }),
        ),
        (json!({ "list": "text" }), json!({ "type": "array", "items": { "type": "string" } })),
        (json!({ "nullable": "bool" }), json!({ "anyOf": [{ "type": "boolean" }, { "type": "null" }] })),
        (json!("i128"), json!({ "type": "integer" })),
        (json!({ "any_of": [] }), json!({ "not": {} })),
    ];
    for (stored, mut schema) in cases {
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        assert_eq!(shape(stored.clone()).json_schema(), schema, "{stored}");
    }
}

#[test]
fn each_question_kind_has_answer_schema() {
    let question = |json: Value| serde_json::from_value::<Question>(json).unwrap();
    let of = |kind: &str| json!({ "id": "n@1:q", "node": "n", "visit": 1, "kind": kind });
    let mut asked = of("asked");
    asked["expects"] = json!("bool");
    asked["text"] = json!("\"Pay?\"");
    asked["default"] = json!("false");
    let schema = question(asked).answer_schema();
    assert_eq!((&schema["title"], &schema["default"]), (&json!("Pay?"), &json!(false)));
    assert!(fits(&schema, &json!(true)) && !fits(&schema, &json!(1)));
    // A question other than a text does not become a title.
    let mut asked = of("asked");
    asked["text"] = json!("{\"eur\":7}");
    assert_eq!(question(asked).answer_schema()["title"], Value::Null);
    for kind in ["before", "after"] {
        let schema = question(of(kind)).answer_schema();
        assert!(fits(&schema, &json!(true)) && !fits(&schema, &json!(false)), "{kind}");
    }
    let schema = question(of("doubt")).answer_schema();
    for resolution in [Resolution::Retry, Resolution::Skip, Resolution::Fail("lost".into())] {
        assert!(fits(&schema, &serde_json::to_value(&resolution).unwrap()), "{resolution:?}");
    }
    let supply = Resolution::Supply(Patch::from_json(r#"[{"set":["a",1]}]"#).unwrap());
    assert!(fits(&schema, &serde_json::to_value(&supply).unwrap()));
    assert!(!fits(&schema, &json!("perhaps")));
}
