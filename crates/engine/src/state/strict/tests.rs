//! Rejected values and their error messages. All other values decode to equal values.

mod shapes;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeSeed as _;
use serde_json::json;

use super::*;
use crate::error::ErrorKind;

fn refused<T: Serialize>(value: T) -> String {
    let error = to_json_string(&value).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(to_value(&value).is_err() && to_raw_value(&value).is_err());
    error.message().to_owned()
}

#[derive(Clone, Debug, Serialize)]
enum Tree {
    Unit,
    Float(f64),
    Small(f32),
    Wide(i128),
    Text(String),
    Maybe(Option<Box<Tree>>),
    Pair(Box<Tree>, u8),
    Named { inner: Box<Tree>, more: Vec<Tree> },
    Many(Vec<Tree>),
    Map(BTreeMap<String, Tree>),
    Numbered(BTreeMap<i16, bool>),
    Raw(Box<RawValue>),
}

#[test]
fn value_without_json_form_is_refused_with_path() {
    let state =
        BTreeMap::from([("scores", vec![Tree::Unit, Tree::Pair(Box::new(Tree::Float(f64::NAN)), 1)])]);
    assert_eq!(
        refused(&state),
        "value[\"scores\"][1].Pair[0].Float: NaN cannot be stored in JSON; use an Option and store None"
    );
    assert!(refused(f32::INFINITY).contains("infinity cannot be stored"));
    let deep = Tree::Named { inner: Box::new(Tree::Wide(i128::MAX)), more: Vec::new() };
    assert!(refused(deep).starts_with("value.Named.inner.Wide: an integer beyond 64 bits"));
    assert!(refused(u128::MAX).contains("store it as text"));
    assert!(refused(BTreeMap::from([((1, 2), 3)])).contains("map keys must be text"));
    assert!(refused(BTreeMap::from([(None::<u8>, 3)])).contains("map keys must be text"));
}

#[test]
fn an_error_names_its_channel() {
    let error = channel_to_text("ratio", &[0.5, f64::NAN]).unwrap_err();
    assert!(error.message().starts_with("channel \"ratio\", at [1]: NaN"), "{error}");
    let error = state_to_raw_value(&BTreeMap::from([("ratio", f64::NAN)])).unwrap_err();
    assert!(error.message().starts_with("channel \"ratio\": NaN"), "{error}");
}

#[test]
fn what_fits_64_bits_is_kept() {
    assert_eq!(to_json_string(&u128::from(u64::MAX)).unwrap(), u64::MAX.to_string());
    assert_eq!(to_json_string(&i128::from(i64::MIN)).unwrap(), i64::MIN.to_string());
}

fn nested(levels: usize) -> Value {
    (0..levels)
        .fold(Value::from(1), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({ "a": inner }) })
}

#[test]
fn nesting_ends_at_the_limit() {
    let limit = usize::from(MAX_DEPTH);
    let text = to_json_string(&nested(limit)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), nested(limit));
    assert!(refused(nested(limit + 1)).contains("nested deeper than 100 levels"));
    // Inside a record, the value is still within the readable depth.
    let patch = crate::state::Patch::from_ops(&[crate::state::Op::Set("a".into(), nested(limit))]).unwrap();
    let record = json!({ "body": { "patch": patch } }).to_string();
    assert!(serde_json::from_str::<Value>(&record).is_ok());
    // A channel that fits a patch fits a base.
    assert!(state_to_raw_value(&BTreeMap::from([("a", nested(limit))])).is_ok());
    assert!(state_to_raw_value(&BTreeMap::from([("a", nested(limit + 1))])).is_err());
}

#[test]
fn a_failing_serialize_is_reported_with_its_place() {
    struct Fails;
    impl Serialize for Fails {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no luck"))
        }
    }
    let message = refused(BTreeMap::from([("a", [Fails])]));
    assert!(message.starts_with("value[\"a\"][0]: cannot be written as JSON (no luck)"), "{message}");
}

#[test]
fn raw_text_is_looked_into() {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    assert_eq!(to_json_string(&raw("[1, \"\\u0061\"]")).unwrap(), r#"[1,"a"]"#);
    assert!(refused(raw("1e999")).contains("raw JSON text"));
    assert!(refused(raw(r#""\ud800""#)).contains("raw JSON text"));
    assert!(refused(raw(&nested(101).to_string())).contains("raw JSON text"));
    assert!(to_json_string(&raw(&nested(100).to_string())).is_ok());
}

#[test]
fn keys_are_encoded_as_in_a_map() {
    assert_eq!(key_text("a", &7).unwrap(), "7");
    assert_eq!(key_text("a", &"x\"y").unwrap(), "x\"y");
    assert_eq!(key_text("a", &(1, 2)).unwrap_err().kind(), ErrorKind::Invalid);
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Unit),
        any::<f64>().prop_map(Tree::Float),
        any::<f32>().prop_map(Tree::Small),
        prop_oneof![any::<i128>(), any::<i64>().prop_map(i128::from), any::<u64>().prop_map(i128::from)]
            .prop_map(Tree::Wide),
        any::<String>().prop_map(Tree::Text),
        prop::collection::btree_map(any::<i16>(), any::<bool>(), 0..3).prop_map(Tree::Numbered),
        Just(Tree::Raw(RawValue::from_string(r#"{"a":[1,2.50]}"#.to_owned()).unwrap())),
    ];
    leaf.prop_recursive(6, 40, 4, |inner| {
        prop_oneof![
            prop::option::of(inner.clone()).prop_map(|tree| Tree::Maybe(tree.map(Box::new))),
            (inner.clone(), any::<u8>()).prop_map(|(tree, n)| Tree::Pair(Box::new(tree), n)),
            (inner.clone(), prop::collection::vec(inner.clone(), 0..3))
                .prop_map(|(inner, more)| Tree::Named { inner: Box::new(inner), more }),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::Many),
            prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(Tree::Map),
        ]
    })
}

/// Computes in another way whether every number can be stored.
fn storable(tree: &Tree) -> bool {
    match tree {
        Tree::Float(value) => value.is_finite(),
        Tree::Small(value) => value.is_finite(),
        Tree::Wide(value) => i64::try_from(*value).is_ok() || u64::try_from(*value).is_ok(),
        Tree::Maybe(inner) => inner.as_deref().is_none_or(storable),
        Tree::Pair(inner, _) => storable(inner),
        Tree::Named { inner, more } => storable(inner) && more.iter().all(storable),
        Tree::Many(items) => items.iter().all(storable),
        Tree::Map(map) => map.values().all(storable),
        Tree::Unit | Tree::Text(_) | Tree::Numbered(_) | Tree::Raw(_) => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The encoder accepts exactly the storable values, writes them as `serde_json` does, and they decode to equal values.
    #[test]
    fn what_is_accepted_comes_back(tree in tree()) {
        match to_json_string(&tree) {
            Ok(text) => {
                prop_assert!(storable(&tree));
                prop_assert_eq!(&text, &serde_json::to_string(&tree).unwrap());
                let value: Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(&serde_json::from_str::<Value>(&value.to_string()).unwrap(), &value);
            }
            Err(error) => {
                prop_assert!(!storable(&tree));
                prop_assert_eq!(error.kind(), ErrorKind::Invalid);
            }
        }
    }
}

/// Decodes a stored value in each way: from text, as a channel of a base, and as one of a record.
fn read_back(shape: &shapes::Shape, text: &str) -> [Option<shapes::Val>; 2] {
    let mut reader = serde_json::Deserializer::from_str(text);
    let from_text = shape.deserialize(&mut reader).ok().filter(|_| reader.end().is_ok());
    let value = serde_json::from_str::<Value>(text).ok();
    [from_text, value.and_then(|value| shape.deserialize(value).ok())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any type of serde's data model, the encoder accepts exactly the values that decode to equal values in every way.
    #[test]
    fn what_is_accepted_reads_back_equal(
        (shape, value) in shapes::shape().prop_flat_map(|shape| (Just(shape.clone()), shapes::value(&shape))),
    ) {
        let typed = shapes::Typed(&shape, &value);
        let plain = serde_json::to_string(&typed);
        let kept = plain.as_ref().is_ok_and(|text| read_back(&shape, text).iter().all(|read| read.as_ref() == Some(&value)));
        match to_json_string(&typed) {
            Ok(text) => {
                prop_assert!(kept, "accepted, and read back as {:?}", read_back(&shape, &text));
                prop_assert_eq!(&text, &plain.unwrap());
                prop_assert!(to_raw_value(&typed).is_ok());
                // Rejects a few more keys than text does, and changes no value either.
                if let Ok(json) = to_value(&typed) {
                    prop_assert_eq!((&shape).deserialize(json).ok(), Some(value));
                }
            }
            Err(error) => {
                prop_assert!(!kept, "refused with no reason: {}", error);
                prop_assert_eq!(error.kind(), ErrorKind::Invalid);
                prop_assert!(to_value(&typed).is_err() && to_raw_value(&typed).is_err());
            }
        }
    }
}
