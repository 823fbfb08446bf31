//! A state with every reducer, and random values and updates of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use ferrata::State;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

/// A state with every reducer on every kind of type that it accepts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
#[serde(rename_all = "camelCase")]
#[state(version = 3)]
pub(crate) struct Every {
    pub(crate) last_text: String,
    #[state(last)]
    pub(crate) ratio: f64,
    pub(crate) maybe: Option<u32>,
    #[serde(with = "as_text")]
    pub(crate) code: u64,
    #[state(append)]
    pub(crate) notes: Vec<String>,
    #[state(append)]
    pub(crate) queue: VecDeque<u8>,
    #[state(merge)]
    pub(crate) scores: BTreeMap<String, i32>,
    #[state(merge)]
    #[serde(rename = "by number")]
    pub(crate) by_number: HashMap<u8, Vec<bool>>,
    #[state(merge)]
    pub(crate) open: serde_json::Map<String, serde_json::Value>,
    #[state(max)]
    pub(crate) high: u32,
    #[state(max)]
    pub(crate) best: Option<f64>,
    #[state(min)]
    pub(crate) low: i64,
    #[state(min)]
    pub(crate) fastest: Option<i64>,
    #[state(sum)]
    pub(crate) total: i8,
    #[state(sum)]
    pub(crate) unsigned: u8,
    #[state(sum)]
    pub(crate) weight: f64,
    #[state(union)]
    pub(crate) seen: Vec<u8>,
    #[state(union)]
    pub(crate) set: BTreeSet<u8>,
    #[state(first)]
    pub(crate) winner: Option<String>,
    #[state(with = join_words)]
    pub(crate) words: String,
    #[state(with = as_text::keep_even)]
    #[serde(serialize_with = "as_text::serialize", deserialize_with = "as_text::deserialize")]
    pub(crate) even: u64,
}

fn join_words(current: &mut String, update: String) {
    if !update.is_empty() {
        *current = [std::mem::take(current), update].join(" ");
    }
}

pub(crate) mod as_text {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }

    pub(crate) fn keep_even(current: &mut u64, update: u64) {
        if update.is_multiple_of(2) {
            *current = update;
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,2}", "\\PC{0,3}", Just("\u{0}\"\\\u{1f600}".to_owned())]
}

/// Halves of small integers, whose sums are exact.
fn float() -> impl Strategy<Value = f64> {
    (-40i16..40).prop_map(|n| f64::from(n) / 2.0)
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![Just(serde_json::Value::Null), any::<i64>().prop_map(Into::into), text().prop_map(Into::into)]
}

fn few<T: std::fmt::Debug>(item: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(item, 0..4)
}

pub(crate) fn every() -> impl Strategy<Value = Every> {
    let plain =
        (text(), any::<f64>().prop_filter("finite", |f| f.is_finite()), any::<Option<u32>>(), any::<u64>());
    let many = (
        few(text()),
        few(any::<u8>()),
        prop::collection::btree_map(text(), any::<i32>(), 0..4),
        prop::collection::hash_map(0u8..6, few(any::<bool>()), 0..4),
        prop::collection::btree_map(text(), value(), 0..4),
    );
    let ordered = (any::<u32>(), prop::option::of(float()), any::<i64>(), any::<Option<i64>>());
    let summed = (any::<i8>(), any::<u8>(), float());
    let rest = (
        prop::collection::btree_set(0u8..9, 0..5),
        prop::collection::btree_set(0u8..9, 0..5),
        prop::option::of(text()),
        text(),
        any::<u64>(),
    );
    (plain, many, ordered, summed, rest).prop_map(|(plain, many, ordered, summed, rest)| Every {
        last_text: plain.0,
        ratio: plain.1,
        maybe: plain.2,
        code: plain.3,
        notes: many.0,
        queue: many.1.into(),
        scores: many.2,
        by_number: many.3,
        open: many.4.into_iter().collect(),
        high: ordered.0,
        best: ordered.1,
        low: ordered.2,
        fastest: ordered.3,
        total: summed.0,
        unsigned: summed.1,
        weight: summed.2,
        seen: rest.0.into_iter().rev().collect(),
        set: rest.1,
        winner: rest.2,
        words: rest.3,
        even: rest.4,
    })
}

/// One call of a method of `EveryUpdate`.
#[derive(Clone, Debug)]
pub(crate) enum Argument {
    LastText(String),
    Ratio(f64),
    Maybe(Option<u32>),
    Code(u64),
    Notes(Vec<String>),
    Queue(Vec<u8>),
    Scores(Vec<(String, i32)>),
    ByNumber(Vec<(u8, Vec<bool>)>),
    Open(Vec<(String, serde_json::Value)>),
    High(u32),
    Best(f64),
    Low(i64),
    Fastest(i64),
    Total(i8),
    Unsigned(u8),
    Weight(f64),
    Seen(Vec<u8>),
    Set(Vec<u8>),
    Winner(String),
    Words(String),
    Even(u64),
}

pub(crate) fn arguments() -> impl Strategy<Value = Argument> {
    use Argument as A;
    // A float that cannot be stored must fail the whole update.
    let any_float = prop_oneof![9 => float(), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)];
    let plain = prop_oneof![
        text().prop_map(A::LastText),
        float().prop_map(A::Ratio),
        any::<Option<u32>>().prop_map(A::Maybe),
        any::<u64>().prop_map(A::Code),
        text().prop_map(A::Words),
        any::<u64>().prop_map(A::Even),
    ];
    let many = prop_oneof![
        few(text()).prop_map(A::Notes),
        few(any::<u8>()).prop_map(A::Queue),
        few((text(), any::<i32>())).prop_map(A::Scores),
        few((0u8..6, few(any::<bool>()))).prop_map(A::ByNumber),
        few((text(), value())).prop_map(A::Open),
    ];
    let ordered = prop_oneof![
        any::<u32>().prop_map(A::High),
        any_float.prop_map(A::Best),
        any::<i64>().prop_map(A::Low),
        any::<i64>().prop_map(A::Fastest),
    ];
    let rest = prop_oneof![
        any::<i8>().prop_map(A::Total),
        any::<u8>().prop_map(A::Unsigned),
        float().prop_map(A::Weight),
        few(0u8..9).prop_map(A::Seen),
        few(0u8..9).prop_map(A::Set),
        text().prop_map(A::Winner),
    ];
    prop_oneof![plain, many, ordered, rest]
}

impl Argument {
    pub(crate) fn call(self, update: EveryUpdate) -> EveryUpdate {
        match self {
            Self::LastText(value) => update.last_text(value),
            Self::Ratio(value) => update.ratio(value),
            Self::Maybe(value) => update.maybe(value),
            Self::Code(value) => update.code(value),
            Self::Notes(items) => update.notes(items),
            Self::Queue(items) => update.queue(items),
            Self::Scores(entries) => update.scores(entries),
            Self::ByNumber(entries) => update.by_number(entries),
            Self::Open(entries) => update.open(entries),
            Self::High(value) => update.high(value),
            Self::Best(value) => update.best(value),
            Self::Low(value) => update.low(value),
            Self::Fastest(value) => update.fastest(value),
            Self::Total(value) => update.total(value),
            Self::Unsigned(value) => update.unsigned(value),
            Self::Weight(value) => update.weight(value),
            Self::Seen(items) => update.seen(items),
            Self::Set(items) => update.set(items),
            Self::Winner(value) => update.winner(value),
            Self::Words(value) => update.words(value),
            Self::Even(value) => update.even(value),
        }
    }
}
