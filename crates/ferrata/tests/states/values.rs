//! Encoding of typed states: a value that would decode to another value is rejected at the API.

#![expect(clippy::cast_possible_truncation, reason = "a float of 32 bits is wanted, whichever")]

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};

use ferrata::prelude::*;
use ferrata::state::{Channels, PatchWriter, Reducer};
use ferrata::store::{At, MemoryStore};
use ferrata::testing::check_reads_back;
use ferrata::{ErrorKind, RunKey, Seq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

thread_local! {
    /// The variant of [`Various`] that a test of this thread reads.
    static READ: Cell<&'static str> = const { Cell::new("") };
}

/// A state of one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, State)]
struct Held {
    held: Various,
}

/// Defines tests with values that serde decodes to another value, and the expected error of each.
///
/// A single state type contains all values, because the runtime is compiled again for each state type.
macro_rules! refused {
    ($($name:ident: $ty:ty = $value:expr, $says:expr;)*) => {
        /// A value of one of the types, encoded and decoded like that type.
        #[derive(Clone, Debug, PartialEq)]
        #[expect(non_camel_case_types, reason = "each is named as its test")]
        enum Various {
            $($name($ty),)*
        }

        impl Serialize for Various {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$name(value) => value.serialize(serializer),)*
                }
            }
        }

        impl<'de> Deserialize<'de> for Various {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match READ.get() {
                    $(stringify!($name) => <$ty>::deserialize(deserializer).map(Self::$name),)*
                    other => panic!("unknown test {other:?}"),
                }
            }
        }

        $(
            #[tokio::test]
            async fn $name() {
                READ.set(stringify!($name));
                refuse(Various::$name($value), $says).await;
            }
        )*
    };
}

async fn refuse(held: Various, says: &str) {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let graph = Graph::<Held>::builder("g").node("a", async |_cx, _s| Ok(())).entry("a").build().unwrap();
    let state = Held { held };
    let error = runtime.start(&graph, state.clone()).id("r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains(says), "{error}");
    assert!(
        error.to_string().contains("\"held\"") || error.to_string().contains("after a restart"),
        "{error}"
    );
    check_reads_back(&state).unwrap_err();
    assert!(runtime.head(&RunKey::try_from("r").unwrap()).await.unwrap().is_none());
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wrapped<T>(T);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Marker;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Loose {
    Numbered(BTreeMap<u32, u8>),
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Map(BTreeMap<String, u8>),
    Doubled(Inner),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    kind: u8,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Flat<T> {
    id: u32,
    #[serde(flatten)]
    rest: T,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Optional {
    inner: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LeftOut {
    #[serde(default = "five", skip_serializing_if = "Option::is_none")]
    number: Option<u8>,
}

fn five() -> Option<u8> {
    Some(5)
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Odd {
    Empty(),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
enum Key {
    Number(u32),
    Text(String),
}

refused! {
    a_none_in_a_some: Option<Option<u8>> = Some(None), "would be read back as None";
    a_null_in_a_some: Option<Value> = Some(Value::Null), "would be read back as None";
    a_unit_in_a_some: Option<()> = Some(()), "a bool for Some(())";
    a_unit_struct_in_a_some: Option<Marker> = Some(Marker), "would be read back as None";
    a_wrapped_none_in_a_some: Option<Wrapped<Option<u8>>> = Some(Wrapped(None)), "would be read back as None";
    an_untagged_nothing_in_a_some: Option<Loose> = Some(Loose::Nothing), "would be read back as None";
    a_none_in_a_some_of_a_list: Vec<Option<Option<u8>>> = vec![None, Some(None)], "at [1]";
    a_none_in_a_some_of_a_map: HashMap<u8, Option<Option<u8>>> = [(7, Some(None))].into(), "at [\"7\"]";
    numbers_as_keys_without_a_tag: Loose = Loose::Numbered([(1, 2)].into()), "could not be read back";
    a_tag_that_is_a_key: Tagged = Tagged::Map([("kind".into(), 1)].into()), "two entries have this key";
    a_tag_that_is_a_field: Tagged = Tagged::Doubled(Inner { kind: 1 }), "two entries have this key";
    a_flattened_key_that_is_a_field: Flat<BTreeMap<String, Value>> =
        Flat { id: 1, rest: [("id".into(), 2.into())].into() }, "two entries have this key";
    flattened_numbers_as_keys: Flat<BTreeMap<u32, u8>> =
        Flat { id: 1, rest: [(1, 2)].into() }, "could not be read back";
    a_flattened_none: Flat<Option<Optional>> = Flat { id: 1, rest: None }, "another value after a restart";
    left_out_with_another_default: LeftOut = LeftOut { number: None }, "another value after a restart";
    a_variant_with_empty_parentheses: Vec<Odd> = vec![Odd::Empty()], "empty parentheses";
    two_keys_of_one_text: BTreeMap<Key, u8> =
        [(Key::Number(1), 1), (Key::Text("1".into()), 2)].into(), "two entries have this key";
}

/// Only a comparison by the type itself can find this difference.
#[test]
fn reads_back_check_finds_unserialized_field() {
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Forgetful {
        #[serde(skip)]
        lost: u8,
    }
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
    struct Held {
        held: Forgetful,
    }
    check_reads_back(&Held::default()).unwrap();
    let error = check_reads_back(&Held { held: Forgetful { lost: 1 } }).unwrap_err();
    assert!(error.to_string().contains("another value with the same JSON"), "{error}");
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Kept {
    maybe: Option<Option<u8>>,
    list: Vec<Option<()>>,
    payload: Vec<Result<Option<u8>, ()>>,
    floats: BTreeMap<u8, (f32, f64)>,
    names: HashSet<String>,
    by_char: HashMap<char, Wrapped<Option<u8>>>,
    by_flag: BTreeMap<bool, u128>,
    flat: Vec<Flat<BTreeMap<String, Value>>>,
    tagged: Vec<Tagged>,
    #[state(merge)]
    merged: BTreeMap<String, u8>,
}

/// Each accepted value can be decoded, also a set without an order.
#[test]
fn what_is_accepted_reads_back_equal() {
    let state = Kept {
        maybe: Some(Some(1)),
        list: vec![None],
        payload: vec![Ok(None), Ok(Some(1)), Err(())],
        floats: [(1, (0.1, -0.0)), (2, (f32::MIN_POSITIVE, f64::MAX))].into(),
        names: (0..50).map(|n| n.to_string()).collect(),
        by_char: [('"', Wrapped(None)), ('\u{1F600}', Wrapped(Some(1))), ('\0', Wrapped(None))].into(),
        by_flag: [(true, u64::MAX.into()), (false, 0)].into(),
        flat: vec![Flat { id: 1, rest: [("more".into(), Value::Null)].into() }],
        tagged: vec![Tagged::Map([("k".into(), 1)].into())],
        merged: BTreeMap::new(),
    };
    check_reads_back(&state).unwrap();
}

/// Entries of one update may repeat a key, and the later one counts. This is no mistake of the type.
#[tokio::test]
async fn the_later_of_two_merged_entries_counts() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let graph = Graph::<Kept>::builder("g")
        .node("a", async |_cx, _s| {
            Ok(Kept::update().merged([("k".to_owned(), 1), ("j".to_owned(), 0), ("k".to_owned(), 2)]))
        })
        .entry("a")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Kept::default()).id("r").await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(state.merged, [("j".to_owned(), 0), ("k".to_owned(), 2)].into());
    assert_eq!(runtime.state_at(&graph, run.run(), At::Latest).await.unwrap(), state);
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Counted {
    /// Large enough that two decodings iterate in different orders.
    counts: HashMap<String, u32>,
}

/// A fork is repeated under one id, as by a client that got no reply. The second fork equals the first one, although a `HashMap` is written in
/// another order each time.
#[tokio::test]
async fn fork_id_ignores_map_order() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let graph = Graph::<Counted>::builder("g").node("a", async |_cx, _s| Ok(())).entry("a").build().unwrap();
    let state = Counted { counts: (0..50).map(|n| (n.to_string(), n)).collect() };
    let run = runtime.start(&graph, state).id("r").await.unwrap();
    run.wait().await.unwrap();
    let fork = || runtime.fork(run.run(), At::Seq(Seq::new(0))).id("f").drive(&graph);
    let first = fork().await.unwrap();
    first.wait().await.unwrap();
    assert_eq!(fork().await.unwrap().run(), first.run());
    let edited = fork().state(Counted::default()).await.unwrap_err();
    assert_eq!(edited.kind(), ErrorKind::AlreadyExists);
}

/// Equal for all values of one sign, and only `PartialEq`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Rounded(f64);

impl PartialEq for Rounded {
    fn eq(&self, other: &Self) -> bool {
        self.0.signum() == other.0.signum()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Signs {
    one: f64,
    maybe: Option<f32>,
    rounded: Rounded,
    #[state(append)]
    list: Vec<f64>,
    #[state(merge)]
    map: HashMap<String, f64>,
    #[state(max)]
    most: f64,
    name: String,
}

/// A change that `==` does not see must not be lost when the node returns its draft.
#[tokio::test]
async fn a_draft_keeps_what_equality_does_not_see() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let graph = Graph::<Signs>::builder("g")
        .node("flip", async |_cx, mut s| {
            (s.one, s.maybe, s.rounded, s.most) = (-0.0, Some(-0.0), Rounded(9.0), -0.0);
            s.list[0] = -0.0;
            s.list.push(1.0);
            s.map.insert("k".to_owned(), -0.0);
            Ok(s)
        })
        .entry("flip")
        .build()
        .unwrap();
    let input = Signs {
        maybe: Some(0.0),
        rounded: Rounded(1.0),
        list: vec![0.0],
        map: [("k".to_owned(), 0.0)].into(),
        ..Signs::default()
    };
    let run = runtime.start(&graph, input).id("r").await.unwrap();
    let ended = run.wait().await.unwrap().completed().unwrap();
    let stored = runtime.state_at(&graph, run.run(), At::Latest).await.unwrap();
    for state in [ended, stored] {
        assert!(state.one.is_sign_negative() && state.maybe.unwrap().is_sign_negative());
        assert_eq!(state.rounded.0.to_bits(), 9.0_f64.to_bits());
        assert!(state.list[0].is_sign_negative() && state.map["k"].is_sign_negative());
        assert!(state.most.is_sign_negative());
        assert_eq!(state.list.len(), 2);
    }
}

#[tokio::test]
async fn context_draft_preserves_negative_zero() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let graph = Graph::<Context>::builder("g")
        .channel("list", Reducer::Append)
        .channel("map", Reducer::Merge)
        .node("flip", async |_cx, mut s| {
            s.set("one", -0.0)?;
            s.set("list", [-0.0, 1.0])?;
            s.set("map", json!({ "k": -0.0 }))?;
            Ok(s)
        })
        .entry("flip")
        .build()
        .unwrap();
    let input = json!({ "one": 0.0, "list": [0.0], "map": { "k": 0.0 } });
    let run = runtime.start(&graph, Context::try_from(input).unwrap()).id("r").await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(serde_json::to_string(&state).unwrap(), r#"{"list":[-0.0,1.0],"map":{"k":-0.0},"one":-0.0}"#);
}

/// The update of a draft, applied to the stored state, gives exactly the edited state, for any edit.
#[test]
fn draft_update_reproduces_stored_state() {
    let signs = |dice: u64| {
        let float = |at: u64| [0.0, -0.0, 1.0, f64::MIN_POSITIVE][((dice >> (at * 2)) & 3) as usize];
        Signs {
            one: float(0),
            maybe: (dice & 1 == 0).then_some(float(1) as f32),
            rounded: Rounded(float(2)),
            list: (0..(dice >> 6) & 3).map(|at| float(3 + at)).collect(),
            map: (0..(dice >> 8) & 3).map(|at| (at.to_string(), float(7 + at))).collect(),
            most: float(11),
            name: String::new(),
        }
    };
    // SplitMix64 (Steele, Lea, Flood 2014) from 1.
    let mut seed = 1_u64;
    let mut next = || {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z ^ (z >> 27)
    };
    let stored = |state: &Signs| serde_json::to_value(state).unwrap().to_string();
    for _ in 0..500 {
        let (before, after) = (signs(next()), signs(next()));
        let update = Signs::diff(&before, after.clone()).unwrap();
        let mut patch = PatchWriter::recording();
        let mut state = before.clone();
        state.apply(&update, &mut patch).unwrap();
        assert_eq!(stored(&state), stored(&after), "from {before:?}");
        let mut channels = Channels::from_json(before.to_channels_json().unwrap().get()).unwrap();
        channels.apply(&patch.finish().patch.unwrap()).unwrap();
        assert_eq!(Value::from(channels).to_string(), stored(&after), "from {before:?}");
    }
}
