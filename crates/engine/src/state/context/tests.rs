//! Reducers on JSON values, drafts of them, and the law of folding.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::state::{Channels, Draft, Patch, Reducer, Schema, Update, Write};

/// Keys by the name of their reducer; `free` is not declared.
fn schema() -> Schema {
    let names = ["append", "merge", "max", "min", "sum", "union", "first"];
    names
        .into_iter()
        .fold(Schema::default(), |schema, name| schema.with_channel(name, name.parse::<Reducer>().unwrap()))
}

fn context(value: Value) -> Context {
    let mut context = Context::try_from(value).unwrap();
    context.bind(&schema());
    context
}

fn applied(state: &Context, update: impl Into<Update<Context>>) -> Result<(Context, String)> {
    let mut live = state.clone();
    let mut patch = PatchWriter::recording();
    update.into().apply(&mut live, &mut patch)?;
    Ok((live, serde_json::to_string(&patch.finish().patch).unwrap()))
}

#[test]
fn each_reducer_joins_values() {
    let base = context(json!({
        "append": [1], "merge": { "a": 1 }, "max": 5, "min": 5, "sum": 5, "union": [1, 2], "first": "a", "free": 1
    }));
    let cases = [
        ("append", json!([2]), json!([1, 2])),
        ("append", json!(2), json!([1, 2])),
        ("merge", json!({ "b": 2 }), json!({ "a": 1, "b": 2 })),
        ("max", json!(7.5), json!(7.5)),
        ("max", json!(3), json!(5)),
        ("min", json!(-3), json!(-3)),
        ("min", json!(9), json!(5)),
        ("sum", json!(-7), json!(-2)),
        ("sum", json!(0.5), json!(5.5)),
        ("union", json!([2, 3, 3]), json!([1, 2, 3])),
        ("first", json!("b"), json!("a")),
        ("free", json!("b"), json!("b")),
    ];
    for (key, input, wanted) in cases {
        let (live, _) = applied(&base, Context::update().reduce(key, &input)).unwrap();
        assert_eq!(live.get_value(key), Some(&wanted), "{key} {input}");
        let (fresh, _) = applied(&context(json!({})), Context::update().reduce(key, &input)).unwrap();
        assert!(fresh.contains_key(key), "{key} {input}");
    }
}

#[test]
fn misfit_update_is_refused_and_changes_nothing() {
    let base = context(
        json!({ "append": 1, "merge": [], "sum": u64::MAX, "max": "a", "list": [1], "map": {}, "gone": 1 }),
    );
    let cases = [
        (Context::update().append("append", [1]), "channel \"append\": append needs an array"),
        (Context::update().merge("merge", [("a", 1)]), "channel \"merge\": merge needs an object"),
        (Context::update().reduce("merge", 1), "channel \"merge\": merge needs an object as update"),
        (Context::update().reduce("sum", 1), "channel \"sum\": the sum does not fit"),
        (Context::update().reduce("sum", "a"), "channel \"sum\": sum needs numbers"),
        (Context::update().reduce("max", 1), "channel \"max\": max needs two numbers"),
        (Context::update().remove_keys("append", ["a"]), "channel \"append\": removing keys needs an object"),
        (Context::update().set("ratio", f64::NAN), "channel \"ratio\": NaN cannot be stored"),
    ];
    for (bad, message) in cases {
        let mut update =
            Context::update().set("free", 1).append("list", [2]).merge("map", [("a", 1)]).remove("gone");
        update.changes.extend(bad.changes.iter().map(|(key, change)| (key.clone(), change.clone())));
        update.error = bad.error;
        let mut live = base.clone();
        let mut patch = PatchWriter::recording();
        let error = Update::from(update).apply(&mut live, &mut patch).unwrap_err();
        assert!(error.message().starts_with(message), "{error}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(live, base);
        assert!(patch.is_empty());
    }
}

#[test]
fn a_custom_reducer_needs_a_type() {
    let mut state = Context::new();
    state.bind(&Schema::default().with_channel("a", Reducer::Custom { with: "crate::join".into() }));
    let error = applied(&state, Context::update().reduce("a", 1)).unwrap_err();
    assert!(error.message().contains("crate::join"), "{error}");
}

#[test]
fn a_draft_stores_what_its_reducers_can_say() {
    let base = context(
        json!({ "append": [1], "merge": { "a": 1, "b": 2 }, "sum": 5, "gone": 1, "kept": [1, 2, 3] }),
    );
    let mut draft = Draft::new(Arc::new(base.clone()));
    draft.push("append", 2).unwrap();
    draft.set("merge", json!({ "a": 3 })).unwrap();
    draft.set("sum", 7).unwrap();
    draft.remove("gone");
    draft.append("union", ["x"]).unwrap();
    draft.append("nothing", [0; 0]).unwrap();
    let (live, patch) = applied(&base, draft).unwrap();
    assert_eq!(
        patch,
        "[{\"remove\":[\"gone\",[]]},{\"append\":[\"append\",[2]]},{\"merge\":[\"merge\",{\"a\":3}]},\
         {\"remove\":[\"merge\",[\"b\"]]},{\"set\":[\"nothing\",[]]},{\"set\":[\"sum\",7]},{\"append\":[\"union\",[\"x\"]]}]"
    );
    assert_eq!(
        live,
        context(
            json!({ "append": [1, 2], "merge": { "a": 3 }, "sum": 7, "union": ["x"], "kept": [1, 2, 3], "nothing": [] })
        )
    );
}

#[test]
fn a_draft_shares_what_it_does_not_edit() {
    let base = Arc::new(context(json!({ "big": [1, 2, 3], "free": 1 })));
    let mut draft = Draft::new(Arc::clone(&base));
    draft.set("free", 2).unwrap();
    assert!(Arc::ptr_eq(&base.values["big"], &draft.values["big"]));
}

#[test]
fn writes_are_told_apart() {
    let mut live = context(json!({ "sum": 1 }));
    let mut patch = PatchWriter::touching();
    let update =
        Context::update().reduce("sum", 1).reduce("free", 1).append("append", [1]).set("append", [1]);
    live.apply(&update, &mut patch).unwrap();
    let written = patch.finish();
    let touched: Vec<_> =
        written.touched.iter().map(|t| (t.channel.name(), t.channel.index(), t.write)).collect();
    let index = |name| schema().channel_index(name);
    assert_eq!(
        touched,
        [
            ("append", index("append"), Write::Overwritten),
            ("free", None, Write::Overwritten),
            ("sum", index("sum"), Write::Reduced),
        ]
    );
}

#[test]
fn values_are_read_as_types() {
    let state = context(json!({ "a": 1 }));
    assert_eq!(state.get::<u8>("a").unwrap(), Some(1));
    assert_eq!(state.get::<u8>("b").unwrap(), None);
    let error = state.get::<String>("a").unwrap_err();
    assert!(error.message().starts_with("channel \"a\" is not of type alloc::string::String"), "{error}");
    assert!(Context::try_from(json!([])).is_err());
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        (-3i64..9).prop_map(Value::from),
        (-6i32..6).prop_map(|n| Value::from(f64::from(n) / 2.0)),
        "[ab]{0,2}".prop_map(Value::from),
        Just(Value::from(u64::MAX)),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    let names = ["append", "merge", "max", "min", "sum", "union", "first", "free"];
    prop::sample::select(names.map(str::to_owned).to_vec())
}

fn any_context() -> impl Strategy<Value = Context> {
    prop::collection::btree_map(key(), value(), 0..6).prop_map(|map| context(map.into_iter().collect()))
}

#[derive(Clone, Debug)]
enum Step {
    Change(String, u8, Value),
    Draft(usize, Vec<(String, Option<Value>)>),
    Replace(usize, Context),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (key(), 0u8..6, value()).prop_map(|(key, how, value)| Step::Change(key, how, value)),
        3 => (0usize..3, prop::collection::vec((key(), prop::option::weighted(0.8, value())), 0..4))
            .prop_map(|(ago, edits)| Step::Draft(ago, edits)),
        1 => (0usize..3, any_context()).prop_map(|(ago, by)| Step::Replace(ago, by)),
    ]
}

fn update_of(step: Step, past: &[Context]) -> Update<Context> {
    let draft = |ago: usize| Draft::new(Arc::new(past[past.len().saturating_sub(1 + ago)].clone()));
    match step {
        Step::Change(key, how, value) => match (how, &value) {
            (0, _) => Context::update().set(key, value),
            (1, Value::Array(items)) => Context::update().append(key, items),
            (1, _) => Context::update().append(key, [value]),
            (2, Value::Object(map)) => Context::update().merge(key, map.clone()),
            (2, _) => Context::update().remove_keys(key, ["a", "b"]),
            (3, _) => Context::update().remove(key),
            // Two operations on one key; the second may fail.
            (4, _) => Context::update().reduce(key.clone(), &value).reduce(key, 1),
            _ => Context::update().reduce(key, value),
        }
        .into(),
        Step::Draft(ago, edits) => {
            let mut draft = draft(ago);
            for (key, edit) in edits {
                match edit {
                    Some(Value::Array(items)) if draft.append(key.clone(), &items).is_ok() => {}
                    Some(value) => draft.set(key, value).unwrap(),
                    None => drop(draft.remove(&key)),
                }
            }
            draft.into()
        }
        Step::Replace(ago, by) => {
            let mut draft = draft(ago);
            *draft = by;
            draft.into()
        }
    }
}

fn channels_of(state: &Context) -> Channels {
    Channels::from_json(state.to_channels_json().unwrap().get()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Folding the stored patches, one by one or merged, equals serializing the live context. A failure changes nothing.
    ///
    /// Guarantees: FORMAT-6.
    #[test]
    fn folding_equals_serialising(base in any_context(), steps in prop::collection::vec(step(), 1..10)) {
        let mut folded = channels_of(&base);
        let mut merged = Patch::default();
        let mut past = vec![base.clone()];
        for step in steps {
            let before = past[past.len() - 1].clone();
            let mut live = before.clone();
            let mut patch = PatchWriter::recording();
            let outcome = update_of(step, &past).apply(&mut live, &mut patch);
            let patch = patch.finish().patch.unwrap();
            if outcome.is_err() {
                prop_assert_eq!(&live, &before);
                prop_assert!(patch.is_empty());
            }
            let patch: Patch = serde_json::from_str(&serde_json::to_string(&patch).unwrap()).unwrap();
            folded.apply(&patch).unwrap();
            prop_assert_eq!(folded.to_json().unwrap(), channels_of(&live).to_json().unwrap());
            merged = merged.merge(patch).unwrap();
            past.push(live);
        }
        let mut at_once = channels_of(&base);
        at_once.apply(&merged).unwrap();
        prop_assert_eq!(at_once, folded);
    }

    /// A draft applied to the context it was made from gives the draft, unless a sum refuses it.
    #[test]
    fn a_draft_is_reproduced(mut base in any_context(), wanted in any_context()) {
        let mut draft = Draft::new(Arc::new(base.clone()));
        *draft = wanted.clone();
        let mut live = base.clone();
        match Update::from(draft).apply(&mut live, &mut PatchWriter::recording()) {
            Ok(()) => {
                // A union drops duplicates.
                let mut wanted = wanted;
                let (live_union, wanted_union) = (live.remove("union"), wanted.remove("union"));
                prop_assert_eq!(live_union.is_some(), wanted_union.is_some());
                // A sum with a float is equal within the rounding of the greater operand.
                let sum = |context: &mut Context| context.remove("sum").map(|sum| sum.as_f64().unwrap_or(f64::NAN));
                let scale = sum(&mut base).map_or(1.0, |sum| sum.abs().max(1.0));
                match (sum(&mut live), sum(&mut wanted)) {
                    (Some(live), Some(wanted)) if !live.is_nan() => {
                        prop_assert!((live - wanted).abs() <= scale * 1e-9, "{} {}", live, wanted);
                    }
                    (live, wanted) => prop_assert_eq!(live.is_some(), wanted.is_some()),
                }
                // Of two equal numbers, 1 and 1.0, the current one stays.
                for order in ["min", "max"] {
                    let (live, wanted) = (live.remove(order), wanted.remove(order));
                    let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_f64);
                    let is_equal = live == wanted || number(&live).is_some() && number(&live) == number(&wanted);
                    prop_assert!(is_equal, "{:?} {:?}", live, wanted);
                }
                prop_assert_eq!(live, wanted);
            }
            Err(error) => prop_assert!(error.message().starts_with("channel \"sum\""), "{}", error),
        }
    }
}
