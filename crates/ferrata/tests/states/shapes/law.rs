//! The shape of a type accepts exactly the JSON that the type accepts or writes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::types::{self, Type};

/// JSON texts in different spellings: forms of numbers, repeated keys, and white space.
pub(super) fn texts() -> impl Strategy<Value = String> {
    let few = prop::sample::select(&LEAVES[..]);
    let leaf = prop_oneof![6 => few.prop_map(str::to_owned), 2 => prop::sample::select(&TAKEN[..]).prop_map(str::to_owned), 1 => any::<i128>().prop_map(|n| n.to_string()),
        1 => any::<f64>().prop_map(|n| serde_json::to_string(&n).unwrap_or_default()),
        1 => any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap_or_default())];
    let key = || {
        prop_oneof![
            12 => prop::sample::select(vec!["a", "b", "c", "A", "B", "C"]),
            1 => prop::sample::select(vec!["Ok", "Err", "Included", "1", "true", "", r"\ud800", r"\u0061", "start", "end",
                "67e55044-10b1-426f-9247-bb680e5fe0c8"]),
        ]
    };
    leaf.prop_recursive(4, 24, 5, move |inner| {
        let entry = (key(), inner.clone()).prop_map(|(key, value)| format!(r#""{key}": {value}"#));
        let three = (inner.clone(), inner.clone(), inner.clone());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            (inner.clone(), 1_usize..22)
                .prop_map(|(item, count)| format!("[{}]", vec![item; count].join(" ,"))),
            prop::collection::vec(entry, 0..4).prop_map(|entries| format!("{{{} }}", entries.join(","))),
            three.prop_map(|(a, b, c)| format!(r#"{{"b":{b},"a":{a},"c":{c}}}"#)),
            (key(), inner).prop_map(|(key, value)| format!("\t{{\"{key}\":{value}}}")),
        ]
    })
}

/// JSON texts without nested ones.
const LEAVES: [&str; 54] = [
    "null",
    "true",
    "false",
    "0",
    "1",
    "7",
    "200",
    "2.5",
    "1.0",
    "-1",
    "-0",
    "1e2",
    "1E400",
    "-128",
    "255",
    "256",
    "300",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "170141183460469231731687303715884105727",
    "170141183460469231731687303715884105728",
    "340282366920938463463374607431768211455",
    "340282366920938463463374607431768211456",
    "-170141183460469231731687303715884105728",
    "-170141183460469231731687303715884105729",
    r#""""#,
    r#""a""#,
    r#""b""#,
    r#""A""#,
    r#""B""#,
    r#""C""#,
    r#""\u0041""#,
    r#""é""#,
    r#""ab""#,
    r#""\ud800""#,
    r#""1""#,
    r#""127.0.0.1:1""#,
    r#""::1""#,
    r#""127.0.0.1""#,
    r#""67e55044-10b1-426f-9247-bb680e5fe0c8""#,
    r#""Unbounded""#,
    " 5 ",
    "[]",
    "{}",
    r#"{"a":1}"#,
    r#"{"b":true}"#,
    r#"{"A":null}"#,
    r#"{"secs":1,"nanos":2}"#,
    r#"{"start":1,"end":2}"#,
    r#"{"secs_since_epoch":1,"nanos_since_epoch":2}"#,
];

/// Texts that types accept and that random texts rarely contain.
const TAKEN: [&str; 46] = [
    "[1]",
    "[1,2]",
    "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]",
    r#""late_train""#,
    r#"{"c":{"AB":1}}"#,
    r#"{"a":"A","b":1,"c":true}"#,
    r#"{"a":"b","b":1}"#,
    r#"{"a":"C","b":"B","c":true}"#,
    r#"{"b":"A","a":"C"}"#,
    r#"{"a":"c","b":"text","c":true}"#,
    r#"{"a":"b","b":[1,true]}"#,
    r#""127.0.0.1:1""#,
    r#""67e55044-10b1-426f-9247-bb680e5fe0c8""#,
    r#"{"secs":1,"nanos":2}"#,
    r#"{"secs_since_epoch":1,"nanos_since_epoch":2}"#,
    r#"{"a":[{"a":1,"c":true}],"b":"A"}"#,
    r#"{"a":"A","c":1}"#,
    r#"{"b":"A","c":1}"#,
    r#"{"a":"67e55044-10b1-426f-9247-bb680e5fe0c8","b":"A","c":"A"}"#,
    r#"[1,"67e55044-10b1-426f-9247-bb680e5fe0c8",true]"#,
    r#"{"a":1,"b":[{"a":2,"b":[{"a":3}]}]}"#,
    r#"{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":null}}}}}}}}}}}"#,
    r#"{"A":[{"a":1},{"C":[{"a":2},{"B":[{"a":1},{"a":1},{"a":1}]}]}]}"#,
    r#"{"A":{"a":1,"c":false}}"#,
    r#"{"A":[1,null,true]}"#,
    r#"{"A":1,"c":"b"}"#,
    r#"{"A":1,"c":{"B":null}}"#,
    r#"{"b":{"a":true},"a":"C"}"#,
    r#"{"a":1,"b":true,"c":false}"#,
    r#"[3,"a","b"]"#,
    r#"[true,5]"#,
    r#"[false,"5"]"#,
    r#"{"a":5,"b":"text"}"#,
    r#"{"b":5,"A":1}"#,
    r#"{"a":2.5,"b":1}"#,
    r#"{"b":1}"#,
    r#"{"a":[1,"C"]}"#,
    r#"{"C":[1,true]}"#,
    r#"{"Ok":1}"#,
    r#"["a",true]"#,
    "[1,null]",
    r#"{"A":{"b":true,"a":1}}"#,
    "[1,true]",
    r#"{"c":1,"b":2}"#,
    r#"{"a":"B","b":true}"#,
    r#"{"\ud800":1}"#,
];

/// Checks the property for one type and one text. Returns whether the type accepted the text.
fn hold(one: &Type, text: &str) -> Result<bool, String> {
    let (takes, check) = ((one.takes)(text), one.shape.check(text));
    if one.is_exact && check.is_ok() && !takes {
        return Err(format!("{} does not take {text}, its shape {:?} does", one.name, one.shape));
    }
    // A type may accept unreadable JSON in parts that it skips or keeps as they are.
    let refusal =
        |check: Result<(), String>| check.err().filter(|message| !message.starts_with("not JSON: "));
    // serde reads more than it writes: a struct from a list, and a tag as its number or as an object.
    let is_odd = |message: &str| {
        let is_tag = message.contains("expected one of");
        message.ends_with("found a list")
            || is_tag && (message.ends_with("found a number") || message.ends_with("found an object"))
    };
    if let Some(message) = refusal(check).filter(|message| takes && !is_odd(message)) {
        return Err(format!("{} takes {text}, its shape does not: {message}", one.name));
    }
    if let Some(written) = (one.writes)(text)
        && let Some(message) = refusal(one.shape.check(&written))
    {
        return Err(format!("{} writes {written}, its shape does not take it: {message}", one.name));
    }
    Ok(takes)
}

/// Guarantees: QUESTION-6.
#[test]
fn what_a_type_takes_its_shape_takes() {
    let types = types::all();
    let taken = RefCell::new(BTreeMap::<&str, usize>::new());
    let hold = |text: &str| {
        for one in &types {
            if hold(one, text)? {
                *taken.borrow_mut().entry(one.name).or_default() += 1;
            }
        }
        Ok(())
    };
    for text in LEAVES.iter().chain(&TAKEN) {
        hold(text).unwrap_or_else(|message: String| panic!("{message}"));
    }
    // The seed is fixed, so that a failure is repeatable.
    let config = ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(Default::default()),
    );
    runner.run(&texts(), |text| hold(&text).map_err(TestCaseError::fail)).unwrap();
    // A type that accepted no text proves nothing.
    let idle: Vec<_> =
        types.iter().map(|one| one.name).filter(|name| !taken.borrow().contains_key(name)).collect();
    assert!(idle.is_empty(), "{idle:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(50) })]
    #[test]
    fn shape_accepts_every_value_of_its_type(text in texts()) {
        static TYPES: LazyLock<Vec<Type>> = LazyLock::new(types::all);
        for one in TYPES.iter() {
            hold(one, &text).map_err(TestCaseError::fail)?;
        }
    }
}
