//! The JSON form, details of merging, and the absence of panics while folding.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::state::{Channels, Patch};

const ALL: &str = r#"[{"set":["draft","text"]},{"append":["notes",["checked"]]},{"merge":["scores",{"a":1}]},{"remove":["scores",["k"]]},{"remove":["old",[]]}]"#;

fn read(text: &str) -> Patch {
    serde_json::from_str(text).unwrap()
}

fn written(patch: &Patch) -> String {
    serde_json::to_string(patch).unwrap()
}

fn merged(first: &str, later: &str) -> String {
    written(&read(first).merge(read(later)).unwrap())
}

#[test]
fn the_text_is_kept_as_it_was_read() {
    assert_eq!(written(&read(ALL)), ALL);
    let spaced = r#"[ {"set": ["a" , 1.50]} ]"#;
    assert_eq!(written(&read(spaced)), spaced);
    assert_eq!(read(ALL).as_raw_json().unwrap().get(), ALL);
    assert_eq!(written(&Patch::from_ops(&read(ALL).ops().unwrap()).unwrap()), ALL);
    assert_eq!(Patch::from_json(ALL).unwrap(), read(ALL));
    assert_eq!(written(&Patch::default()), "[]");
    assert!(read("[ ]").is_empty() && !read(ALL).is_empty());
}

#[test]
fn a_merge_is_as_short_as_it_can_be() {
    assert_eq!(
        merged(r#"[{"append":["n",[1, 2]]}]"#, r#"[{"append":["n",[3]]}]"#),
        r#"[{"append":["n",[1,2,3]]}]"#
    );
    assert_eq!(
        merged(r#"[{"merge":["m",{"a":1,"b":2}]}]"#, r#"[{"merge":["m",{"b":3}]}]"#),
        r#"[{"merge":["m",{"a":1,"b":3}]}]"#
    );
    assert_eq!(
        merged(r#"[{"append":["n",[1]]},{"set":["d",1]}]"#, r#"[{"set":["n",[]]}]"#),
        r#"[{"set":["d",1]},{"set":["n",[]]}]"#
    );
    assert_eq!(merged(r#"[{"append":["n",[1]]}]"#, r#"[{"remove":["n",[]]}]"#), r#"[{"remove":["n",[]]}]"#);
    assert_eq!(
        merged(r#"[{"remove":["m",["a"]]}]"#, r#"[{"remove":["m",["b"]]}]"#),
        r#"[{"remove":["m",["a","b"]]}]"#
    );
}

#[test]
fn what_is_no_patch_is_an_error() {
    for text in ["{}", "1", "null", "\"[]\""] {
        assert!(serde_json::from_str::<Patch>(text).is_err(), "{text}");
    }
    for text in [
        "[1]",
        "[{}]",
        r#"[{"set":["a"]}]"#,
        r#"[{"set":["a",1,2]}]"#,
        r#"[{"put":["a",1]}]"#,
        r#"[{"append":["a",1]}]"#,
        r#"[{"merge":["a",[]]}]"#,
        r#"[{"remove":["a",[1]]}]"#,
        r#"[{"set":["\ud800",1]}]"#,
        r#"[{"set":["a",1e999]}]"#,
    ] {
        assert_eq!(Patch::from_json(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        let patch = read(text);
        assert_eq!(patch.ops().unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
        assert_eq!(Channels::new().apply(&patch).unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
        assert_eq!(Patch::default().merge(patch).unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
    }
}

#[test]
fn what_does_not_fit_the_state_is_damage() {
    let state = Channels::from_json(r#"{"a":1}"#).unwrap();
    for text in [r#"[{"append":["a",[1]]}]"#, r#"[{"merge":["a",{}]}]"#, r#"[{"remove":["a",["x"]]}]"#] {
        let error = state.clone().apply(&read(text)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().starts_with("channel \"a\": "), "{error}");
    }
    for text in ["[]", "", "{\"a\"", "\u{1}"] {
        assert_eq!(Channels::from_json(text).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn an_absent_channel_is_made_or_ignored() {
    let mut state = Channels::new();
    state.apply(&read(ALL)).unwrap();
    assert_eq!(state.to_json().unwrap(), r#"{"draft":"text","notes":["checked"],"scores":{"a":1}}"#);
    state.apply(&read(r#"[{"remove":["draft",[]]},{"remove":["nothing",["a"]]}]"#)).unwrap();
    assert_eq!(serde_json::Value::from(state), json!({ "notes": ["checked"], "scores": { "a": 1 } }));
}

#[test]
fn a_payload_is_never_shown() {
    let shown = format!("{:?} {:?}", read(ALL), Channels::from_json(r#"{"a":"secret"}"#).unwrap());
    assert!(!shown.contains("secret") && !shown.contains("checked"), "{shown}");
}

/// Text that is nearly a patch.
fn nearly() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "\"set\"",
        "\"append\"",
        "\"merge\"",
        "\"remove\"",
        "\"a\"",
        "\"\\ud800\"",
        "1",
        "null",
        "1e999",
        "[1]",
        "{\"k\":1}",
        "[\"k\"]",
    ]);
    let op = (prop::sample::select(vec!["set", "append", "merge", "remove"]), "[ab]", piece.clone())
        .prop_map(|(verb, channel, value)| format!("{{\"{verb}\":[\"{channel}\",{value}]}}"));
    prop_oneof![
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat()),
        prop::collection::vec(op, 0..6).prop_map(|ops| format!("[{}]", ops.join(","))),
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// No text causes a panic in decoding, merging or folding, and every error has the kind for damage.
    #[test]
    fn damage_never_panics(first in nearly(), later in nearly(), state in nearly()) {
        let _ = Patch::from_json(&first);
        let mut state = Channels::from_json(&state).unwrap_or_default();
        let (Ok(first), Ok(later)) = (serde_json::from_str::<Patch>(&first), serde_json::from_str::<Patch>(&later))
        else {
            return Ok(());
        };
        let mut one_by_one = state.clone();
        let outcome = one_by_one.apply(&first).and_then(|()| one_by_one.apply(&later));
        match first.merge(later) {
            Ok(merged) => match &outcome {
                Ok(()) => {
                    state.apply(&merged).unwrap();
                    prop_assert_eq!(state, one_by_one);
                }
                // A later overwrite may hide the misfit.
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
                    let _ = (state.apply(&merged), merged.as_raw_json().is_ok(), merged.is_empty());
                }
            },
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
                prop_assert!(outcome.is_err());
            }
        }
    }
}
