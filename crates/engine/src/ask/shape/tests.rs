//! Storage, messages and rejections of shapes, without panics. `ferrata` tests the derived shapes.

mod schemas;

use proptest::prelude::*;
use serde_json::json;

use super::{AnswerShape, IntegerType, Shape, ShapeField, ShapeForm, Shapes};

/// Any JSON, and texts that are not JSON.
fn texts() -> impl Strategy<Value = String> {
    let words =
        vec!["null", "true", "7", "-0", "2.5", "1e999", "[]", "{", r#""any""#, r#""a""#, r#""\ud800""#];
    let leaf = prop_oneof![prop::sample::select(words).prop_map(str::to_owned), any::<String>()];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = prop::sample::select(vec![
            "a", "b", "object", "list", "tagged", "any_of", "closed", "least", "tuple",
        ]);
        let entry = (key, inner.clone()).prop_map(|(key, value)| format!(r#""{key}":{value}"#));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(entry, 0..4).prop_map(|entries| format!("{{{}}}", entries.join(","))),
        ]
    })
}

/// Any shape that can be built or found.
fn shapes() -> impl Strategy<Value = Shape> {
    let name = || prop_oneof!["[a-c?!]{0,3}", any::<String>()];
    let leaf = prop_oneof![
        Just(ShapeForm::Any),
        Just(ShapeForm::Bool),
        (0..IntegerType::ALL.len()).prop_map(|index| ShapeForm::Int(IntegerType::ALL[index].0)),
        Just(ShapeForm::Number),
        Just(ShapeForm::Text),
        Just(ShapeForm::Char),
        Just(ShapeForm::Bytes),
        Just(ShapeForm::Null),
        prop::collection::vec(name(), 0..20).prop_map(ShapeForm::OneOf),
        prop::collection::vec(name(), 0..4).prop_map(ShapeForm::Units),
    ];
    let form = leaf.prop_recursive(4, 40, 15, move |inner| {
        let field = (inner.clone(), any::<bool>()).prop_map(|(form, required)| ShapeField { form, required });
        let tuple = (prop::collection::vec(inner.clone(), 0..4), 0_usize..4);
        prop_oneof![
            inner.clone().prop_map(|form| ShapeForm::Nullable(Box::new(form))),
            inner.clone().prop_map(|form| ShapeForm::List(Box::new(form))),
            inner.clone().prop_map(|form| ShapeForm::Map(Box::new(form))),
            tuple.prop_map(|(forms, least)| ShapeForm::Tuple { least: least.min(forms.len()), forms }),
            prop::collection::vec(inner.clone(), 0..4).prop_map(ShapeForm::AnyOf),
            prop::collection::btree_map(name(), inner.clone(), 0..15).prop_map(ShapeForm::Variants),
            (name(), prop::collection::btree_map(name(), inner, 0..4))
                .prop_map(|(tag, variants)| ShapeForm::Tagged { tag, variants }),
            (prop::collection::btree_map(name(), field, 0..15), any::<bool>())
                .prop_map(|(fields, closed)| ShapeForm::Object { fields, closed }),
        ]
    });
    form.prop_map(Shape)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    /// Guarantees: FORMAT-10.
    #[test]
    fn what_is_stored_reads_back_the_same(shape in shapes()) {
        let text = serde_json::to_string(&shape).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Shape>(&text).unwrap(), &shape, "{}", text);
        let value = serde_json::to_value(&shape).unwrap();
        prop_assert_eq!(serde_json::from_value::<Shape>(value).unwrap(), shape);
    }

    #[test]
    fn every_shape_continues_itself_and_any(shape in shapes()) {
        prop_assert!(shape.continues(&shape));
        prop_assert!(shape.continues(&Shape::any()) && Shape::any().continues(&shape));
    }

    #[test]
    fn every_shape_has_description_and_checks_answers(shape in shapes(), text in texts(), noise in any::<String>()) {
        prop_assert!(!shape.to_string().is_empty());
        for text in [&text, &noise] {
            if let Err(message) = shape.check(text) {
                prop_assert!(message.chars().count() <= 400, "{}", message);
            }
        }
    }

    #[test]
    fn every_json_reads_as_a_shape(text in texts()) {
        if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
            prop_assert!(serde_json::from_str::<Shape>(&text).is_ok());
        }
    }
}

/// Earlier versions found shapes by probing `Deserialize` with dummy values. A question that was open when a later version replaced its process
/// continues, although the later version knows more about its answer. A question for another type is a different question.
///
/// Guarantees: QUESTION-12.
#[test]
fn a_question_of_an_earlier_version_goes_on() {
    let shape = |json: serde_json::Value| serde_json::from_value::<Shape>(json).unwrap();
    let plain = json!({ "object": { "a": "u8", "b?": { "nullable": "text" }, "c": "bool" } });
    let goes_on = [
        // The shape found earlier, and the present shape.
        (json!({ "list": plain }), json!({ "list": plain })),
        // Three ids. Two of them might have been names of one.
        (
            json!({ "object": { "a": "text", "b?": "text", "c?": "text" } }),
            json!({ "object": { "a": "text", "b": "text", "c": "text" } }),
        ),
        (json!({ "object": { "a": "number" } }), json!({ "object": { "a": "number" }, "closed": true })),
        // Enums with a tag, with tag and content, and without either.
        (json!("any"), json!({ "tagged": { "a": { "A": null, "B": { "object": { "b": "u8" } } } } })),
        (
            json!({ "object": { "a?": "any", "b?": "any" } }),
            json!({ "tagged": { "a": { "A": { "object": { "b?": "null" } } } } }),
        ),
        (json!("any"), json!({ "any_of": ["u8", "text"] })),
        // A function that reads the field, a number that saturates, an unreachable element, a recursive type.
        (json!({ "object": { "a": "number" } }), json!({ "object": { "a": "u8" } })),
        (json!({ "least": 0, "tuple": ["any", "any"] }), json!({ "tuple": [{ "variants": [] }, "u8"] })),
        (json!({ "nullable": { "list": "any" } }), json!({ "nullable": { "list": { "nullable": "u8" } } })),
        (
            json!({ "variants": { "A": null, "B": { "tuple": ["u8", "any"] } } }),
            json!({ "variants": { "A": null, "B": { "tuple": ["u8", "char"] } } }),
        ),
    ];
    for (stored, now) in goes_on {
        assert!(shape(now.clone()).continues(&shape(stored.clone())), "{stored} as {now}");
    }
    let other = [
        (json!("u8"), json!("u16")),
        (json!("text"), json!("bool")),
        (json!({ "list": "u8" }), json!({ "list": "text" })),
        (json!({ "map": "u8" }), json!({ "list": "u8" })),
        (json!({ "tuple": ["u8"] }), json!({ "tuple": ["u8", "u8"] })),
        (json!({ "tuple": ["u8", "u8"] }), json!({ "tuple": ["u8", "u8"], "least": 1 })),
        (json!({ "object": { "a": "u8" } }), json!({ "object": { "a?": "u8" } })),
        (json!({ "object": { "a": "u8" } }), json!({ "object": { "a": "u8", "b?": "u8" } })),
        (json!({ "object": { "a": "u8" } }), json!({ "tagged": { "b": { "A": null } } })),
        (json!({ "variants": ["A"] }), json!({ "variants": ["A", "B"] })),
        (json!({ "variants": { "A": "u8" } }), json!({ "variants": { "B": "u8" } })),
        (json!({ "tagged": { "a": { "A": null } } }), json!({ "tagged": { "b": { "A": null } } })),
        (json!({ "tagged": { "a": { "A": null } } }), json!({ "tagged": { "a": { "B": null } } })),
        (json!({ "any_of": ["u8", "text"] }), json!({ "any_of": ["u8"] })),
    ];
    for (stored, now) in other {
        assert!(!shape(now.clone()).continues(&shape(stored.clone())), "{stored} as {now}");
    }
}

/// Contains only itself: no level adds information.
#[derive(serde::Deserialize)]
struct Endless(#[expect(dead_code, reason = "only its shape matters")] Box<Self>);

impl AnswerShape for Endless {
    fn shape(shapes: &mut Shapes) -> Shape {
        shapes.of::<Box<Self>>()
    }
}

#[test]
fn shape_of_endless_type_ends_within_limit() {
    assert_eq!(Shape::within::<Endless>(1_000_000), Shape::any());
    assert_eq!(Shape::within::<Vec<u8>>(2), Shape::list(Shape::of::<u8>()));
    assert_eq!(Shape::within::<Vec<u8>>(1), Shape::list(Shape::any()));
    assert_eq!(Shape::within::<Vec<u8>>(0), Shape::any());
}
