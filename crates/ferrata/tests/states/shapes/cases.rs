//! Detected shapes, their rejections and the messages.

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::time::Duration;

use ferrata::AnswerShape;
use ferrata::ask::Shape;
use serde_json::{Value, json};
use uuid::Uuid;

use super::types::{
    Adjacent, AdjacentClosed, AllDefaults, Chain, Defaults, Denies, Expression, Internal, InternalCard,
    LateDefault, ManyIds, Marked, Mixed, Name, Nested, Optional, Plain, Spelt, Tree, Units, Untagged,
};

fn stored<T: AnswerShape>() -> Value {
    serde_json::to_value(Shape::of::<T>()).unwrap()
}

/// Guarantees: FORMAT-10.
#[test]
fn stored_form_of_types_is_stable() {
    let plain = json!({ "object": { "a": "u8", "b?": { "nullable": "text" }, "c": "bool" } });
    let units = json!({ "variants": ["A", "b"] });
    let cases = [
        (stored::<bool>(), json!("bool")),
        (stored::<i64>(), json!("i64")),
        (stored::<u128>(), json!("u128")),
        (stored::<NonZeroU8>(), json!("u8")),
        (stored::<f32>(), json!("number")),
        (stored::<char>(), json!("char")),
        (stored::<Uuid>(), json!("text")),
        (stored::<()>(), json!("null")),
        (stored::<Value>(), json!("any")),
        (stored::<Option<u8>>(), json!({ "nullable": "u8" })),
        (stored::<Vec<Name>>(), json!({ "list": "text" })),
        (stored::<(u8, Uuid, bool)>(), json!({ "tuple": ["u8", "text", "bool"] })),
        (stored::<BTreeMap<Units, Option<bool>>>(), json!({ "map": { "nullable": "bool" } })),
        (stored::<Duration>(), json!({ "object": { "secs": "u64", "nanos": "u32" } })),
        (stored::<Result<u8, String>>(), json!({ "variants": { "Ok": "u8", "Err": "text" } })),
        (stored::<Plain>(), plain.clone()),
        (stored::<Nested>(), json!({ "object": { "a": { "list": plain }, "b": units } })),
        (stored::<Defaults>(), json!({ "object": { "a?": "u8", "b": "u8", "c?": { "list": "u8" } } })),
        (stored::<AllDefaults>(), json!({ "object": { "a?": "u8", "b?": "text" } })),
        (stored::<Denies>(), json!({ "object": { "a": "number" }, "closed": true })),
        (stored::<LateDefault>(), json!({ "tuple": ["u8", "bool", "u8"], "least": 1 })),
        (stored::<ManyIds>(), json!({ "object": { "a": "text", "b": "text", "c": "text" } })),
        (
            stored::<Marked>(),
            json!({ "object": { "a?!": "u8", "b!?": "u8", "type?": { "nullable": "u8" } } }),
        ),
        (
            stored::<Optional>(),
            json!({ "object": {
                "a?": { "nullable": "u8" }, "b?": { "nullable": "bool" }, "c": { "nullable": "u8" },
            } }),
        ),
        (stored::<Units>(), units),
        (
            stored::<Mixed>(),
            json!({ "variants": {
                "A": null, "B": "u8", "C": { "tuple": ["u8", "bool"] }, "a": { "object": { "a": "u8", "b?": "bool" } },
                "b": { "object": { "b?": { "nullable": "bool" } } },
            } }),
        ),
        (
            stored::<Spelt>(),
            json!({ "variants": {
                "a": null, "late_train": null, "c": { "object": { "AB": "u8" } }, "b": { "object": { "A": "u8" } },
            } }),
        ),
        (stored::<Internal>(), json!({ "tagged": { "a": { "A": null, "B": { "object": { "b": "u8" } } } } })),
        (
            stored::<Adjacent>(),
            json!({ "tagged": { "a": {
                "A": { "object": { "b?": "null" } },
                "B": { "object": { "b": "u8" } },
                "C": { "object": { "b": { "object": { "a": "bool" } } } },
            } } }),
        ),
        (
            stored::<Untagged>(),
            json!({ "any_of": ["u8", { "object": { "a": "text" } }, { "list": "bool" }] }),
        ),
        (serde_json::to_value(Shape::choices(["a", "b"])).unwrap(), json!({ "one_of": ["a", "b"] })),
        (serde_json::to_value(Shape::any()).unwrap(), json!("any")),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

/// Guarantees: QUESTION-2.
#[test]
fn shape_refusal_names_path() {
    let refusal = |shape: Shape, text: &str| shape.check(text).unwrap_err();
    let cases = [
        (refusal(Shape::of::<bool>(), "1"), "expected true or false, found a number"),
        (
            refusal(Shape::of::<u8>(), "1.0"),
            "expected an integer from 0 to 255, found a number with a fraction or an exponent",
        ),
        (refusal(Shape::of::<u8>(), "256"), "expected an integer from 0 to 255, found another"),
        (refusal(Shape::of::<u8>(), "-1"), "expected an integer from 0 to 255, found another"),
        (refusal(Shape::of::<i64>(), "true"), "expected an integer, found true or false"),
        (
            refusal(Shape::of::<i64>(), "9223372036854775808"),
            "expected an integer from -9223372036854775808 to 9223372036854775807, found another",
        ),
        (refusal(Shape::of::<f64>(), "null"), "expected a number, found null"),
        (refusal(Shape::of::<String>(), "[]"), "expected text, found a list"),
        (refusal(Shape::of::<char>(), r#""ab""#), "expected one character, found a text of another length"),
        (refusal(Shape::of::<()>(), "{}"), "expected null, found an object"),
        (refusal(Shape::of::<Option<bool>>(), r#""a""#), "expected true or false, found text"),
        (refusal(Shape::of::<Vec<u64>>(), r#"[1, "a"]"#), "at /1: expected an integer from 0, found text"),
        (
            refusal(Shape::of::<(bool, u8)>(), "[true]"),
            "expected a list of 2: true or false, an integer from 0 to 255, found 1 elements",
        ),
        (
            refusal(Shape::of::<BTreeMap<String, bool>>(), r#"{"a/~":null}"#),
            "at /a~1~0: expected true or false, found null",
        ),
        (refusal(Shape::of::<Plain>(), r#"{"a":1}"#), "at /c: missing, expected true or false"),
        (
            refusal(Shape::of::<Nested>(), r#"{"a":[{"c":1}]}"#),
            "at /a/0/c: expected true or false, found a number",
        ),
        (refusal(Shape::of::<Units>(), r#""C""#), "expected one of: A, b, found another text"),
        (
            refusal(Shape::of::<Option<Mixed>>(), r#"{"a":{"a":"A"}}"#),
            "at /a/a: expected an integer from 0 to 255, found text",
        ),
        (refusal(Shape::of::<Plain>(), r#"{"a":1,"c":true,"a":1}"#), "at /a: appears twice, expected once"),
        (
            refusal(Shape::of::<Plain>(), "[1,null,true]"),
            "expected an object with a (integer from 0 to 255), b (text, optional), c (true or false), found a list",
        ),
        (refusal(Shape::of::<Denies>(), r#"{"a":1,"b":2}"#), "at /b: unknown field"),
        (refusal(Shape::of::<Internal>(), r#"{"b":1}"#), "at /a: missing, expected one of: A, B"),
        (
            refusal(Shape::of::<Internal>(), r#"{"a":"C"}"#),
            "at /a: expected one of: A, B, found another text",
        ),
        (refusal(Shape::of::<Internal>(), r#"{"a":"A","a":"A"}"#), "at /a: appears twice, expected once"),
        (
            refusal(Shape::of::<Internal>(), r#"{"a":"B"}"#),
            "at /b: missing, expected an integer from 0 to 255",
        ),
        (
            refusal(Shape::of::<Internal>(), "true"),
            "expected an object with a one of: A, B with b (integer from 0 to 255), found true or false",
        ),
        (
            refusal(Shape::of::<InternalCard>(), r#"{"a":"C","b":"B","c":1}"#),
            "at /c: expected true or false, found a number",
        ),
        (
            refusal(Shape::of::<AdjacentClosed>(), r#"{"a":"C","b":{"a":true,"b":1}}"#),
            "at /b/b: unknown field",
        ),
        (
            refusal(Shape::of::<Untagged>(), "null"),
            "expected an integer from 0 to 255 or an object with a (text) or a list, each true or false, found null",
        ),
        (refusal(Shape::of::<Untagged>(), r#"[true,1]"#), "at /1: expected true or false, found a number"),
        (refusal(Shape::of::<f64>(), "1e400"), "not JSON: number out of range at line 1 column 5"),
        (refusal(Shape::any(), r#"["\ud800"]"#), "not JSON: unexpected end of hex escape at line 1 column 9"),
        (refusal(Shape::of::<u8>(), "-0"), "expected an integer from 0 to 255, found another"),
        (refusal(Shape::choices(["a", "b"]), r#"{"a":null}"#), "expected one of: a, b, found an object"),
        (
            refusal(Shape::choices([""; 0]), r#""a""#),
            "expected no value: there is no choice, found another text",
        ),
        (refusal(Shape::any(), "yes"), "not JSON: expected value at line 1 column 1"),
        (refusal(Shape::any(), ""), "not JSON: EOF while parsing a value at line 1 column 0"),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn shape_error_message_is_bounded_and_hides_values() {
    let key = "k".repeat(10_000);
    let message = Shape::of::<BTreeMap<String, BTreeMap<String, bool>>>()
        .check(&format!(r#"{{"{key}":{{"{key}":"secret"}}}}"#))
        .unwrap_err();
    assert!(message.chars().count() <= 400 && !message.contains("secret"), "{message}");
    let many = Shape::choices((0..1000).map(|index| format!("{index}{key}")));
    assert_eq!(many.check("1").unwrap_err().chars().count(), 400);
}

#[test]
fn a_shape_is_told_in_a_few_words() {
    let cases = [
        (Shape::any(), "anything"),
        (Shape::of::<bool>(), "true or false"),
        (Shape::of::<Option<Option<u64>>>(), "an integer from 0 or null"),
        (Shape::of::<Vec<String>>(), "a list, each text"),
        (Shape::of::<[u8; 0]>(), "a list without elements"),
        (Shape::of::<BTreeMap<String, f64>>(), "an object, each value a number"),
        (
            Shape::of::<Plain>(),
            "an object with a (integer from 0 to 255), b (text, optional), c (true or false)",
        ),
        (
            Shape::of::<Vec<Vec<Mixed>>>(),
            "a list, each a list, each one of: A, B with content, C with content, a with content, b with content",
        ),
        (Shape::of::<Vec<Vec<Plain>>>(), "a list, each a list, each an object"),
        (Shape::of::<Result<i64, String>>(), "one of: Err with text, Ok with an integer"),
        (
            Shape::of::<Vec<Internal>>(),
            "a list, each an object with a one of: A, B with b (integer from 0 to 255)",
        ),
        (
            Shape::of::<Option<Untagged>>(),
            "an integer from 0 to 255 or an object with a (text) or a list, each true or false or null",
        ),
        (Shape::any_of([]), "no value: there is no choice"),
        (
            Shape::choices((0..14).map(|index| index.to_string())),
            "one of: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more",
        ),
    ];
    for (shape, expected) in cases {
        assert_eq!(shape.to_string(), expected);
    }
}

#[test]
fn recursive_type_has_shape_of_bounded_size() {
    let nested = |depth: usize, end: &str| format!("{}{end}{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let chain = Shape::of::<Chain>();
    assert!(chain.check(&nested(5, "1")).is_err());
    assert!(chain.check(&nested(20, "1")).is_ok());
    let tree = Shape::of::<Tree>();
    assert!(tree.check(r#"{"a":1,"b":[{"a":2,"b":[{"a":null}]}]}"#).is_err());
    let expression = Shape::of::<Expression>();
    assert!(expression.check(r#"{"A":[{"a":1},{"a":true}]}"#).is_err());
    assert!(serde_json::to_string(&expression).unwrap().len() < 10_000);
}

/// Guarantees: FORMAT-10.
#[test]
fn shape_of_later_version_reads_as_any() {
    for later in [
        r#""date""#,
        r#"{"list":"text","most":3}"#,
        r#"{"one_of":[1]}"#,
        r#"{"tuple":["text"],"least":2}"#,
        r#"{"list":"text","least":1}"#,
        r#"{"least":1}"#,
        "{}",
        "7",
        "null",
    ] {
        assert_eq!(serde_json::from_str::<Shape>(later).unwrap(), Shape::any(), "{later}");
    }
    let inside: Shape = serde_json::from_str(r#"{"object":{"a":"date","b?":"bool"}}"#).unwrap();
    assert!(inside.check(r#"{"a":[]}"#).is_ok());
    assert!(inside.check(r#"{"b":1,"a":0}"#).is_err());
    assert!(inside.check("{}").is_err());
}
