//! Output of `#[derive(State)]`: names, methods, errors, and updates that touch only their channels.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata::state::{Channels, PatchWriter, Write, WrittenPatch};
use ferrata::{Draft, ErrorKind, Result, State, Update};
use serde::{Deserialize, Serialize, Serializer};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
#[state(version = 2)]
#[serde(rename_all = "kebab-case", default)]
struct Review {
    draft_text: String,
    #[serde(rename = "remarks")]
    #[state(append)]
    notes: Vec<String>,
    #[state(merge)]
    scores: BTreeMap<String, u32>,
    #[state(merge)]
    counts: HashMap<u8, f32>,
    #[state(max)]
    attempts: u32,
    #[state(min)]
    fastest: Option<Duration>,
    #[state(sum)]
    cost: u8,
    #[state(union)]
    tags: BTreeSet<String>,
    #[state(first)]
    winner: Option<String>,
    #[state(with = Vec::extend)]
    r#type: Vec<u8>,
}

fn apply(state: &mut Review, update: impl Into<Update<Review>>) -> Result<WrittenPatch> {
    let mut patch = PatchWriter::recording();
    update.into().apply(state, &mut patch)?;
    Ok(patch.finish())
}

fn text(written: &WrittenPatch) -> String {
    serde_json::to_string(&written.patch).expect("a patch is JSON")
}

#[test]
fn channels_are_named_as_serde_names_fields() {
    let schema = Review::schema();
    let names: Vec<String> = schema.channels().iter().map(|channel| channel.name.to_string()).collect();
    assert_eq!(
        names,
        [
            "draft-text",
            "remarks",
            "scores",
            "counts",
            "attempts",
            "fastest",
            "cost",
            "tags",
            "winner",
            "type"
        ]
    );
    assert_eq!(schema.version(), 2);
    let state = Channels::from_json(Review::default().to_channels_json().unwrap().get()).unwrap();
    assert_eq!(state.len(), names.len());
    assert!(state.iter().all(|(name, _)| schema.channel_index(name).is_some()));
    assert!(
        schema
            .fingerprint_input()
            .starts_with(r#"{"version":2,"channels":[["attempts","max"],["cost","sum"]"#)
    );
    assert!(schema.fingerprint_input().contains(r#"["type","custom:Vec::extend"]"#));
}

#[test]
fn calls_of_one_method_join() {
    let mut state = Review { cost: 10, attempts: 3, ..Review::default() };
    let update = Review::update()
        .draft_text("lost")
        .draft_text("kept")
        .notes(["a"])
        .notes(vec![String::from("b")])
        .scores([("x", 1)])
        .scores([("y", 2), ("x", 3)])
        .attempts(5)
        .attempts(4)
        .fastest(Duration::from_secs(2))
        .fastest(Duration::from_secs(1))
        .cost(1)
        .cost(2)
        .tags(["t"])
        .tags(["t", "u"])
        .winner("first")
        .winner("second")
        .r#type(vec![1])
        .r#type(vec![2]);
    assert_eq!(
        format!("{update:?}"),
        r#"ReviewUpdate {"draft-text", "remarks", "scores", "attempts", "fastest", "cost", "tags", "winner", "type"}"#
    );
    let written = apply(&mut state, update).unwrap();
    let wanted = Review {
        draft_text: "kept".into(),
        notes: vec!["a".into(), "b".into()],
        scores: BTreeMap::from([("x".into(), 3), ("y".into(), 2)]),
        counts: HashMap::new(),
        attempts: 5,
        fastest: Some(Duration::from_secs(1)),
        cost: 13,
        tags: BTreeSet::from(["t".into(), "u".into()]),
        winner: Some("first".into()),
        r#type: vec![1, 2],
    };
    assert_eq!(state, wanted);
    let overwritten: Vec<&str> = written
        .touched
        .iter()
        .filter(|touch| touch.write == Write::Overwritten)
        .map(|touch| touch.channel.name())
        .collect();
    assert_eq!(overwritten, ["draft-text"]);
    assert_eq!(written.touched.len(), 9);
}

#[test]
fn a_reduction_without_effect_is_no_change() {
    let mut state = Review {
        attempts: 3,
        winner: Some("a".into()),
        tags: BTreeSet::from(["t".into()]),
        ..Review::default()
    };
    let update = Review::update().attempts(3).winner("b").tags(["t"]).cost(0).notes([""; 0]).r#type(vec![]);
    let written = apply(&mut state, update).unwrap();
    assert!(written.touched.is_empty() && written.patch.unwrap().is_empty());
    // A plain write counts, even with the same value, because the caller requested it.
    assert_eq!(
        text(&apply(&mut state, Review::update().draft_text("")).unwrap()),
        r#"[{"set":["draft-text",""]}]"#
    );
}

#[test]
fn a_draft_is_stored_as_its_reducers_say() {
    let mut state = Review { notes: vec!["a".into()], cost: 5, ..Review::default() };
    let mut draft = Draft::new(Arc::new(state.clone()));
    draft.notes.push("b".into());
    draft.cost += 2;
    draft.winner = Some("me".into());
    let written = apply(&mut state, draft).unwrap();
    assert_eq!(
        text(&written),
        r#"[{"append":["remarks",["b"]]},{"set":["cost",7]},{"set":["winner","me"]}]"#
    );
    assert!(written.touched.iter().all(|touch| touch.write == Write::Reduced));

    let mut draft = Draft::new(Arc::new(state.clone()));
    draft.notes[0] = "changed".into();
    draft.winner = None;
    let written = apply(&mut state, draft).unwrap();
    assert!(written.touched.iter().all(|touch| touch.write == Write::Overwritten));
    assert_eq!(text(&written), r#"[{"set":["remarks",["changed","b"]]},{"set":["winner",null]}]"#);
}

#[test]
fn what_fails_changes_nothing_and_names_the_channel() {
    let start = Review { cost: 250, ..Review::default() };
    let cases: [(Update<Review>, &str); 3] = [
        (
            Review::update().draft_text("x").notes(["y"]).cost(9).into(),
            "channel \"cost\": the sum does not fit u8; widen the type, or add less",
        ),
        (
            Review::update().draft_text("x").counts([(7, f32::NAN)]).into(),
            "channel \"counts\", at [\"7\"]: NaN cannot be stored in JSON; use an Option and store None",
        ),
        (
            {
                let mut draft = Draft::new(Arc::new(start.clone()));
                draft.cost = 1;
                draft.into()
            },
            "channel \"cost\": the draft lowered the sum, which unsigned numbers cannot express; use a signed type, or the reducer `last`",
        ),
    ];
    for (update, message) in cases {
        let mut state = start.clone();
        let mut patch = PatchWriter::recording();
        // Apply it again, as after a write conflict.
        for _ in 0..2 {
            let error = update.apply(&mut state, &mut patch).unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::Invalid, message));
            assert_eq!(state, start);
            assert!(patch.is_empty());
        }
    }
    let update = Update::<Review>::none().with_output(f64::NAN);
    let error = update.apply(&mut Review::default(), &mut PatchWriter::recording()).unwrap_err();
    assert!(error.message().starts_with("output: value: NaN"), "{error}");
}

#[test]
fn update_applies_to_given_state() {
    let update: Update<Review> = Review::update().cost(1).tags(["t"]).into();
    for cost in [0, 41] {
        let mut state = Review { cost, ..Review::default() };
        apply_again(&update, &mut state);
        assert_eq!(state.cost, cost + 1);
    }
}

fn apply_again(update: &Update<Review>, state: &mut Review) {
    update.apply(state, &mut PatchWriter::recording()).expect("it fits");
}

#[test]
fn stored_channels_that_do_not_fit_are_named() {
    let schema = Review::schema();
    let read = |text: &str| Review::from_channels(Channels::from_json(text).unwrap(), &schema);
    assert_eq!(read("{}").unwrap(), Review::default());
    assert_eq!(read(r#"{"unheard":1,"cost":2}"#).unwrap().cost, 2);
    let error = read(r#"{"cost":300}"#).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GraphChanged);
    assert!(error.message().starts_with("channel \"cost\" does not fit the type it is read as: "), "{error}");
}

#[test]
fn the_largest_channel_is_known() {
    let update = Review::update().draft_text("x".repeat(100)).notes(["short"]).cost(1);
    let written = apply(&mut Review::default(), update).unwrap();
    let largest = written.largest().unwrap();
    assert_eq!(
        (largest.channel.name(), largest.channel.index(), largest.bytes),
        ("draft-text", Some(0), 102)
    );
}

static COPIES: AtomicUsize = AtomicUsize::new(0);
static ENCODINGS: AtomicUsize = AtomicUsize::new(0);
static COMPARISONS: AtomicUsize = AtomicUsize::new(0);

/// A channel type that counts its encodings and comparisons.
#[derive(Debug, Default, Deserialize)]
struct Big(Vec<u8>);

impl Clone for Big {
    fn clone(&self) -> Self {
        COPIES.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl PartialEq for Big {
    fn eq(&self, other: &Self) -> bool {
        COMPARISONS.fetch_add(1, Ordering::Relaxed);
        self.0 == other.0
    }
}

impl Serialize for Big {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        ENCODINGS.fetch_add(1, Ordering::Relaxed);
        self.0.serialize(serializer)
    }
}

#[derive(Clone, Default, Serialize, Deserialize, State)]
struct Holder {
    big: Big,
    #[state(sum)]
    count: u32,
}

/// No other test of this process uses `Big`.
#[test]
fn an_update_costs_what_it_changes() {
    let looks = || [&COPIES, &ENCODINGS, &COMPARISONS].map(|counter| counter.load(Ordering::Relaxed));
    let mut state = Holder { big: Big(vec![0; 1 << 20]), count: 0 };
    let mut patch = PatchWriter::recording();
    Update::from(Holder::update().count(1)).apply(&mut state, &mut patch).unwrap();
    Update::<Holder>::from(()).apply(&mut state, &mut patch).unwrap();
    Update::from(Draft::new(Arc::new(Holder::default()))).apply(&mut state, &mut patch).unwrap();
    assert_eq!(looks(), [0, 0, 0]);
    assert_eq!(state.count, 1);

    // Without a store, nothing is encoded, and the new value is copied into the state once.
    let mut patch = PatchWriter::touching();
    Update::from(Holder::update().big(Big(vec![1]))).apply(&mut state, &mut patch).unwrap();
    assert_eq!(looks(), [1, 0, 0]);
    assert_eq!(state.big.0, [1]);
}
