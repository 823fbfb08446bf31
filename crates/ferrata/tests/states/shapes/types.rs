//! Types of every kind that an answer can have.
#![expect(dead_code, reason = "only what they are read from matters")]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroI64, NonZeroU8, Wrapping};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ferrata::AnswerShape;
use ferrata::ask::{Shape, Shapes};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use uuid::Uuid;

/// A type: its name, its shape, and a function that decodes a text.
pub(super) struct Type {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) takes: fn(&str) -> bool,
    /// The type's output for the value that it read, if the type can read this output again.
    pub(super) writes: fn(&str) -> Option<String>,
    /// Whether the shape is exact: the type accepts everything that its shape accepts.
    pub(super) is_exact: bool,
}

fn takes<T: AnswerShape>(text: &str) -> bool {
    serde_json::from_str::<T>(text).is_ok()
}

fn writes<T: AnswerShape + Serialize>(text: &str) -> Option<String> {
    let value: T = serde_json::from_str(text).ok()?;
    serde_json::to_string(&value).ok().filter(|text| takes::<T>(text))
}

macro_rules! types {
    ($is_exact:literal: $($type:ty),* $(,)?) => {
        [$(Type {
            name: stringify!($type),
            shape: Shape::of::<$type>(),
            takes: takes::<$type>,
            writes: writes::<$type>,
            is_exact: $is_exact,
        }),*]
    };
}

pub(super) fn all() -> Vec<Type> {
    let exact = types![
        true: bool, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f64, char, String, (),
        Wrapping<i8>, Cow<'static, str>, Box<str>, Rc<String>, Arc<str>, Arc<[u8]>, PathBuf,
        Option<u8>, Option<Option<bool>>, Option<()>, Option<Value>, Option<f64>,
        Vec<u8>, Vec<Vec<i8>>, VecDeque<char>, LinkedList<bool>, BTreeSet<String>, HashSet<u8>, Box<[bool]>,
        [u8; 2], [bool; 0], [Option<u8>; 3], (u8,), (String, bool), (u8, String, bool),
        BTreeMap<String, u8>, HashMap<String, bool>, Value, Box<RawValue>, Number, serde_json::Map<String, Value>, Result<u8, String>,
        Plain, Nested, Defaults, AllDefaults, Denies, Empty, Unit, Name, Pair, LateDefault, Transparent, Generic<Vec<bool>>, Renamed,
        Skips, SkipsFirst, Marked, Optional, Boxed,
        Units, Mixed, Spelt, Internal, InternalCard, Adjacent, AdjacentFull, AdjacentClosed, Untagged, Lone, Bare,
    ];
    // Types with their own checks: numbers with limits or without zero, addresses, and numeric keys.
    let loose = types![
        false: f32, NonZeroU8, NonZeroI64, IpAddr, SocketAddr, Uuid, (u8, Uuid, bool), [u8; 20], BinaryHeap<u8>,
        HashMap<u8, bool>, BTreeMap<Units, Option<bool>>, BTreeMap<bool, u8>, BTreeMap<Uuid, u8>, BTreeMap<char, Vec<u8>>,
        BTreeMap<Name, u8>, Duration, SystemTime, Range<u8>, RangeInclusive<u8>, ManyIds, Tried, With, Remade, ByHand,
        Tree, Chain, Expression,
    ];
    exact.into_iter().chain(loose).collect()
}

// The field names are few and short, so that random texts contain them.
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Plain {
    pub(super) a: u8,
    pub(super) b: Option<String>,
    pub(super) c: bool,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Nested {
    pub(super) a: Vec<Plain>,
    pub(super) b: Box<Units>,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Defaults {
    #[serde(default)]
    pub(super) a: u8,
    pub(super) b: u8,
    #[serde(default)]
    pub(super) c: Vec<u8>,
}
#[derive(Debug, Default, Serialize, Deserialize, AnswerShape)]
#[serde(default)]
pub(super) struct AllDefaults {
    pub(super) a: u8,
    pub(super) b: String,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(deny_unknown_fields)]
pub(super) struct Denies {
    pub(super) a: f64,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Empty {}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Unit;
#[derive(Debug, Serialize, Deserialize, AnswerShape, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(pub(super) String);
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Pair(pub(super) u8, pub(super) Option<bool>);
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct LateDefault(
    pub(super) u8,
    #[serde(default)] pub(super) bool,
    #[serde(default)] pub(super) u8,
);
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(transparent)]
pub(super) struct Transparent {
    pub(super) inner: Vec<u8>,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Generic<T> {
    pub(super) a: T,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(rename_all = "UPPERCASE")]
pub(super) struct Renamed {
    pub(super) a: u8,
    #[serde(rename = "c")]
    pub(super) b: Units,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct ManyIds {
    pub(super) a: Uuid,
    pub(super) b: Odd,
    pub(super) c: Odd,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Skips {
    #[serde(skip)]
    pub(super) a: u8,
    pub(super) b: u8,
    #[serde(default = "seven")]
    pub(super) c: u8,
}
#[derive(Clone, Debug, Serialize, Deserialize, AnswerShape)]
#[serde(try_from = "Plain", into = "Plain")]
pub(super) struct Tried(pub(super) u8);
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct With {
    #[serde(deserialize_with = "lenient")]
    #[answer(as = f64)]
    pub(super) a: u8,
    pub(super) b: u8,
}

fn seven() -> u8 {
    7
}

impl TryFrom<Plain> for Tried {
    type Error = String;

    fn try_from(plain: Plain) -> Result<Self, String> {
        if plain.c { Ok(Self(plain.a)) } else { Err("not c".to_owned()) }
    }
}

/// Accepts only texts that are never dummy values.
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(try_from = "String")]
pub(super) struct Odd(pub(super) String);

impl TryFrom<String> for Odd {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "A" { Ok(Self(text)) } else { Err("not A".to_owned()) }
    }
}

#[derive(Debug, Serialize, Deserialize, AnswerShape, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Units {
    A,
    #[serde(rename = "b")]
    B,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) enum Mixed {
    A,
    B(u8),
    C(u8, bool),
    #[serde(rename = "a")]
    D {
        a: u8,
        #[serde(default)]
        b: bool,
    },
    #[serde(rename = "b")]
    E {
        b: Option<bool>,
    },
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(tag = "a")]
pub(super) enum Internal {
    A,
    B { b: u8 },
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(tag = "a", content = "b")]
pub(super) enum Adjacent {
    A,
    B(u8),
    C { a: bool },
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(tag = "a", content = "b")]
pub(super) enum AdjacentFull {
    A(u8),
    B(bool),
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(untagged)]
pub(super) enum Untagged {
    A(u8),
    B { a: String },
    C(Vec<bool>),
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) enum Lone {
    A(Box<Plain>),
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct SkipsFirst(#[serde(skip)] pub(super) u8, pub(super) bool, pub(super) u8);
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Tree {
    pub(super) a: u8,
    #[serde(default)]
    pub(super) b: Vec<Tree>,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Chain {
    pub(super) a: Option<Box<Chain>>,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) enum Expression {
    A(Box<Expression>, Box<Expression>),
    B(Box<Expression>, Box<Expression>, Box<Expression>),
    C(Vec<Expression>),
    #[serde(rename = "a")]
    D(i8),
}

fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    f64::deserialize(deserializer).map(|_| 0)
}

impl From<Tried> for Plain {
    fn from(Tried(a): Tried) -> Self {
        Self { a, b: None, c: true }
    }
}

/// Field names that end like the marks of a shape.
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Marked {
    #[serde(rename = "a?")]
    pub(super) a: u8,
    #[serde(rename = "b!", default)]
    pub(super) b: u8,
    pub(super) r#type: Option<u8>,
}
/// Options in all forms.
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Optional {
    pub(super) a: Box<Option<u8>>,
    pub(super) b: Hidden,
    #[serde(deserialize_with = "some")]
    #[answer(as = Option<u8>)]
    pub(super) c: Option<u8>,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(transparent)]
pub(super) struct Hidden {
    pub(super) inner: Option<bool>,
    #[serde(skip)]
    pub(super) mark: PhantomData<u8>,
}
fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    Option::deserialize(deserializer)
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
pub(super) struct Boxed {
    pub(super) a: Arc<Vec<Box<Plain>>>,
    #[serde(default)]
    pub(super) b: Rc<[Units]>,
}
/// Decodes another type.
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(from = "Option<u8>", into = "Option<u8>")]
#[derive(Clone)]
pub(super) struct Remade(pub(super) u8);

impl From<Option<u8>> for Remade {
    fn from(inner: Option<u8>) -> Self {
        Self(inner.unwrap_or_default())
    }
}

impl From<Remade> for Option<u8> {
    fn from(Remade(inner): Remade) -> Self {
        Some(inner)
    }
}
/// Describes its shape by hand.
#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "u8")]
pub(super) struct ByHand(pub(super) u8);

impl TryFrom<u8> for ByHand {
    type Error = &'static str;

    fn try_from(inner: u8) -> Result<Self, Self::Error> {
        if inner.is_multiple_of(2) { Ok(Self(inner)) } else { Err("odd") }
    }
}

impl AnswerShape for ByHand {
    fn shape(shapes: &mut Shapes) -> Shape {
        shapes.of::<u8>()
    }
}

#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(rename_all = "snake_case", rename_all_fields = "UPPERCASE")]
pub(super) enum Spelt {
    A,
    LateTrain,
    #[serde(rename_all = "PascalCase")]
    C {
        a_b: u8,
    },
    B {
        a: u8,
    },
    #[serde(skip)]
    Never,
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(tag = "a", deny_unknown_fields)]
pub(super) enum InternalCard {
    A {
        b: u8,
        c: Option<bool>,
    },
    #[serde(rename = "b")]
    B(BTreeMap<String, u8>),
    C(Internal2),
    #[serde(rename = "c")]
    D(Option<Plain>),
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(tag = "b")]
pub(super) enum Internal2 {
    A,
    B { c: bool },
}
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(tag = "a", content = "b", deny_unknown_fields)]
pub(super) enum AdjacentClosed {
    A,
    B(Option<u8>),
    C {
        a: bool,
    },
    #[serde(rename = "b")]
    D(u8, bool),
}
/// Only variants with their own representation.
#[derive(Debug, Serialize, Deserialize, AnswerShape)]
#[serde(untagged)]
pub(super) enum Bare {
    A,
    B(u8, bool),
    C(Units),
    D(BTreeMap<String, bool>),
    E { b: u8 },
}
