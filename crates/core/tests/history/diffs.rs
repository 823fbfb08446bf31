//! The diff of two values, applied to the first, gives the second, and the reverse diff gives the first.

use ferrata_core::runtime::{Change, Diff};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Keys and texts that JSON pointers escape, or that look like array indexes.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        prop::sample::select(vec![
            "~", "/", "~0", "~1", "a/b", "-", "0", "1", "01", "ü", "日本", "\u{0}", "a", "b"
        ])
        .prop_map(str::to_owned),
        ".{0,3}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        key().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Applies the changes in reverse, starting with the last, with the old values that they contain.
fn undone(diff: &Diff, value: &Value) -> Value {
    let mut value = value.clone();
    for change in diff.changes.iter().rev() {
        let back = match change {
            Change::Add { path, .. } => json!({"op": "remove", "path": path}),
            Change::Replace { path, before, .. } => json!({"op": "replace", "path": path, "value": before}),
            Change::Remove { path, before } => json!({"op": "add", "path": path, "value": before}),
            change => panic!("{change:?}"),
        };
        let patch: json_patch::Patch = serde_json::from_value(json!([back])).unwrap();
        json_patch::patch(&mut value, &patch).unwrap();
    }
    value
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Guarantees: HISTORY-4.
    #[test]
    fn applying_diff_yields_other_state(a in value(), b in value()) {
        let diff = Diff::between(&a, &b);
        let mut value = a.clone();
        diff.apply(&mut value).unwrap();
        prop_assert_eq!(&value, &b, "{:?}", diff);
        prop_assert_eq!(diff.is_empty(), a == b);
        prop_assert_eq!(undone(&diff, &b), a);
    }

    /// Two states of a run are mostly equal, and the diff must not contain the equal parts.
    #[test]
    fn a_small_change_is_a_small_difference(a in value(), b in value(), name in key()) {
        let (from, to) = (json!({"same": a, name.as_str(): a}), json!({"same": a, name.as_str(): b}));
        let diff = Diff::between(&from, &to);
        let mut value = from;
        diff.apply(&mut value).unwrap();
        prop_assert_eq!(&value, &to);
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        let inside = |path: &String| path == &pointer || path.starts_with(&format!("{pointer}/"));
        for change in &diff.changes {
            let (Change::Add { path, .. } | Change::Replace { path, .. } | Change::Remove { path, .. }) = change
            else { panic!("{change:?}") };
            prop_assert!(inside(path), "{} exceeds {}", path, pointer);
        }
    }

    /// A stored JSON diff can be read back.
    ///
    /// Guarantees: HISTORY-4.
    #[test]
    fn a_difference_is_kept_as_json(a in value(), b in value()) {
        let diff = Diff::between(&a, &b);
        let text = serde_json::to_string(&diff).unwrap();
        prop_assert_eq!(serde_json::from_str::<Diff>(&text).unwrap(), diff);
    }
}
