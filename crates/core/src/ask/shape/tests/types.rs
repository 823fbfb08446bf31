//! Types of every kind that serde knows, and some that surprise.
#![expect(dead_code, reason = "only what they are read from matters")]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::CString;
use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroI64, NonZeroU8, Saturating, Wrapping};
use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::de::{self, DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use uuid::Uuid;

use crate::ask::Shape;

/// A type: its name, its shape, and whether it takes a text.
pub(super) struct Type {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// The shape that is found by looking at so many places at most.
    pub(super) within: fn(usize) -> Shape,
    pub(super) takes: fn(&str) -> bool,
}

fn takes<T: DeserializeOwned>(text: &str) -> bool {
    serde_json::from_str::<T>(text).is_ok()
}

macro_rules! types {
    ($($type:ty),* $(,)?) => {
        vec![$(Type { name: stringify!($type), shape: Shape::of::<$type>(), within: Shape::within::<$type>, takes: takes::<$type> }),*]
    };
}

pub(super) fn all() -> Vec<Type> {
    types![
        bool, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f32, f64, char, String, (),
        NonZeroU8, NonZeroI64, Saturating<u8>, Saturating<i64>, Wrapping<i8>,
        Cow<'static, str>, Box<str>, Rc<String>, Arc<[u8]>, PathBuf, CString, IpAddr, SocketAddr, Uuid,
        Option<u8>, Option<Option<bool>>, Option<()>, Option<Value>, Option<f64>,
        Vec<u8>, Vec<Vec<i8>>, VecDeque<char>, BTreeSet<String>, [u8; 2], [bool; 0], [u8; 20], [Option<u8>; 3],
        (u8,), (String, bool), (u8, Uuid, bool), (Never, u8),
        BTreeMap<String, u8>, HashMap<u8, bool>, BTreeMap<Units, Option<bool>>, BTreeMap<bool, u8>, BTreeMap<Uuid, u8>,
        BTreeMap<char, Vec<u8>>, BTreeMap<Name, u8>, BTreeMap<CString, u8>,
        Value, Number, serde_json::Map<String, Value>, IgnoredAny, Box<RawValue>, PhantomData<u8>,
        Duration, SystemTime, Range<u8>, Bound<u8>, Result<u8, String>,
        Plain, Nested, Aliased, AliasedLate, AliasedIds, Defaults, AllDefaults, Denies, Empty, Unit, Name, Pair, LateDefault, Flat,
        FlatMap, Transparent, Generic<Vec<bool>>, Raw, Renamed, ManyIds, Skips, Tried, With,
        Units, Mixed, Other, OtherMixed, Internal, Adjacent, AdjacentFull, Untagged, UntaggedVariant, Identifier, Lone, FlatVariant, SkipsFirst,
        Tree, Chain, Expression, Never,
        LenientInt, LenientChar, ByHand, HeadAndTail, DependentTuple, DependentMap, AnyCase, BytesOrText, Reader,
    ]
}

// Names are few, so that texts made at random meet them.
#[derive(Debug, Deserialize)]
pub(super) struct Plain {
    pub(super) a: u8,
    pub(super) b: Option<String>,
    pub(super) c: bool,
}
#[derive(Debug, Deserialize)]
pub(super) struct Nested {
    pub(super) a: Vec<Plain>,
    pub(super) b: Box<Units>,
}
#[derive(Debug, Deserialize)]
pub(super) struct Aliased {
    #[serde(alias = "b", alias = "A")]
    pub(super) a: u8,
    #[serde(alias = "B")]
    pub(super) c: u8,
}
#[derive(Debug, Deserialize)]
pub(super) struct AliasedLate {
    #[serde(alias = "c")]
    pub(super) a: u8,
    pub(super) b: u8,
}
#[derive(Debug, Deserialize)]
pub(super) struct AliasedIds {
    #[serde(alias = "b")]
    pub(super) a: Odd,
    pub(super) c: u8,
}
#[derive(Debug, Deserialize)]
pub(super) struct Defaults {
    #[serde(default)]
    pub(super) a: u8,
    pub(super) b: u8,
    #[serde(default)]
    pub(super) c: Vec<u8>,
}
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AllDefaults {
    pub(super) a: u8,
    pub(super) b: String,
}
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Denies {
    pub(super) a: f32,
}
#[derive(Debug, Deserialize)]
pub(super) struct Empty {}
#[derive(Debug, Deserialize)]
pub(super) struct Unit;
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(pub(super) String);
#[derive(Debug, Deserialize)]
pub(super) struct Pair(pub(super) u8, pub(super) Option<bool>);
#[derive(Debug, Deserialize)]
pub(super) struct LateDefault(
    pub(super) u8,
    #[serde(default)] pub(super) bool,
    #[serde(default)] pub(super) u8,
);
#[derive(Debug, Deserialize)]
pub(super) struct Flat {
    pub(super) a: u8,
    #[serde(flatten)]
    pub(super) rest: Unlisted,
}
#[derive(Debug, Deserialize)]
pub(super) struct Unlisted {
    pub(super) b: bool,
}
#[derive(Debug, Deserialize)]
pub(super) struct FlatMap {
    pub(super) a: u8,
    #[serde(flatten)]
    pub(super) rest: BTreeMap<String, bool>,
}
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Transparent {
    pub(super) inner: Vec<u8>,
}
#[derive(Debug, Deserialize)]
pub(super) struct Generic<T> {
    pub(super) a: T,
}
#[derive(Debug, Deserialize)]
pub(super) struct Raw {
    pub(super) a: Box<RawValue>,
    pub(super) b: Option<Value>,
}
#[derive(Debug, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) struct Renamed {
    pub(super) a: u8,
    #[serde(rename = "c")]
    pub(super) b: Units,
}
#[derive(Debug, Deserialize)]
pub(super) struct ManyIds {
    pub(super) a: Uuid,
    pub(super) b: Odd,
    pub(super) c: Odd,
}
#[derive(Debug, Deserialize)]
pub(super) struct Skips {
    #[serde(skip)]
    pub(super) a: u8,
    pub(super) b: u8,
    #[serde(default = "seven")]
    pub(super) c: u8,
}
#[derive(Debug, Deserialize)]
#[serde(try_from = "Plain")]
pub(super) struct Tried(pub(super) u8);
#[derive(Debug, Deserialize)]
pub(super) struct With {
    #[serde(deserialize_with = "lenient")]
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

/// Takes only a text that no dummy is.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Odd(pub(super) String);

impl TryFrom<String> for Odd {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "A" { Ok(Self(text)) } else { Err("not A".to_owned()) }
    }
}

#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Units {
    A,
    #[serde(rename = "b", alias = "B")]
    B,
}
#[derive(Debug, Deserialize)]
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
    E(()),
}
#[derive(Debug, Deserialize)]
pub(super) enum Other {
    A,
    #[serde(other)]
    Rest,
}
#[derive(Debug, Deserialize)]
pub(super) enum OtherMixed {
    A(u8),
    #[serde(other)]
    Rest,
}
#[derive(Debug, Deserialize)]
#[serde(tag = "a")]
pub(super) enum Internal {
    A,
    B { b: u8 },
}
#[derive(Debug, Deserialize)]
#[serde(tag = "a", content = "b")]
pub(super) enum Adjacent {
    A,
    B(u8),
    C { a: bool },
}
#[derive(Debug, Deserialize)]
#[serde(tag = "a", content = "b")]
pub(super) enum AdjacentFull {
    A(u8),
    B(bool),
}
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Untagged {
    A(u8),
    B { a: String },
    C(Vec<bool>),
}
#[derive(Debug, Deserialize)]
pub(super) enum UntaggedVariant {
    A(u8),
    #[serde(untagged)]
    B(String),
}
#[derive(Debug, Deserialize)]
#[serde(variant_identifier)]
pub(super) enum Identifier {
    A,
    B,
}
#[derive(Debug, Deserialize)]
pub(super) enum Lone {
    A(Box<Plain>),
}
#[derive(Debug, Deserialize)]
pub(super) enum FlatVariant {
    A {
        a: u8,
        #[serde(flatten)]
        rest: BTreeMap<String, bool>,
    },
}
#[derive(Debug, Deserialize)]
pub(super) struct SkipsFirst(#[serde(skip)] pub(super) u8, pub(super) bool, pub(super) u8);
#[derive(Debug, Deserialize)]
pub(super) struct Tree {
    pub(super) a: u8,
    #[serde(default)]
    pub(super) b: Vec<Tree>,
}
#[derive(Debug, Deserialize)]
pub(super) struct Chain {
    pub(super) a: Option<Box<Chain>>,
}
#[derive(Debug, Deserialize)]
pub(super) enum Expression {
    A(Box<Expression>, Box<Expression>),
    B(Box<Expression>, Box<Expression>, Box<Expression>),
    C(Vec<Expression>),
    #[serde(rename = "a")]
    D(i8),
}
#[derive(Debug, Deserialize)]
pub(super) struct Endless(pub(super) Box<Endless>);
#[derive(Debug, Deserialize)]
pub(super) enum Never {}

fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    LenientInt::deserialize(deserializer).map(|_| 0)
}

/// Types written by hand: each is what its call asks for, and more than its call tells.
macro_rules! by_hand {
    ($name:ident, $method:ident($($argument:expr),*), { $($visit:tt)* }) => {
        #[derive(Debug)]
        pub(super) struct $name;

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Hand;
                impl<'de> Visitor<'de> for Hand {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("u8")
                    }
                    $($visit)*
                }
                deserializer.$method($($argument,)* Hand)
            }
        }
    };
}

by_hand!(LenientInt, deserialize_u8(), {
    fn visit_u64<E>(self, _: u64) -> Result<LenientInt, E> {
        Ok(LenientInt)
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<LenientInt, E> {
        if value == 2.5 { Ok(LenientInt) } else { Err(E::custom("another")) }
    }
});
by_hand!(LenientChar, deserialize_char(), {
    fn visit_str<E>(self, _: &str) -> Result<LenientChar, E> {
        Ok(LenientChar)
    }
});
by_hand!(BytesOrText, deserialize_bytes(), {
    fn visit_bytes<E>(self, _: &[u8]) -> Result<BytesOrText, E> {
        Ok(BytesOrText)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<BytesOrText, A::Error> {
        while seq.next_element::<u8>()?.is_some() {}
        Ok(BytesOrText)
    }
});
// The first element is a number, the others are texts.
by_hand!(HeadAndTail, deserialize_seq(), {
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<HeadAndTail, A::Error> {
        seq.next_element::<u8>()?;
        while seq.next_element::<String>()?.is_some() {}
        Ok(HeadAndTail)
    }
});
// The first element says what the second is.
by_hand!(DependentTuple, deserialize_tuple(2), {
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<DependentTuple, A::Error> {
        match seq.next_element::<bool>()? {
            Some(true) => drop(seq.next_element::<u8>()?),
            _ => drop(seq.next_element::<String>()?),
        }
        Ok(DependentTuple)
    }
});
// The key says what the value is.
by_hand!(DependentMap, deserialize_map(), {
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DependentMap, A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "a" {
                map.next_value::<u8>()?;
            } else {
                drop(map.next_value::<String>()?)
            }
        }
        Ok(DependentMap)
    }
});
// What came before says what `b` is, and upper case names are taken too.
by_hand!(ByHand, deserialize_struct("ByHand", &["a", "b"]), {
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ByHand, A::Error> {
        let mut seen = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.to_lowercase().as_str() {
                "a" => seen = map.next_value::<u8>()? > 0,
                "b" if seen => drop(map.next_value::<String>()?),
                _ => drop(map.next_value::<u8>()?),
            }
        }
        if seen { Ok(ByHand) } else { Err(de::Error::missing_field("a")) }
    }
});
by_hand!(AnyCase, deserialize_enum("AnyCase", &["a", "b"]), {
    fn visit_enum<A: de::EnumAccess<'de>>(self, data: A) -> Result<AnyCase, A::Error> {
        let (name, variant) = data.variant::<String>()?;
        de::VariantAccess::unit_variant(variant)?;
        if ["a", "b"].contains(&name.to_lowercase().as_str()) {
            Ok(AnyCase)
        } else {
            Err(de::Error::custom("none"))
        }
    }
});

/// Wraps the deserializer and its visitors, as crates that report paths do; the inner visitor is std's.
#[derive(Debug)]
pub(super) struct Reader;

impl<'de> Deserialize<'de> for Reader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Wrap<D>(D);
        impl<'de, D: Deserializer<'de>> Deserializer<'de> for Wrap<D> {
            type Error = D::Error;

            fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
                Err(de::Error::custom("only u8"))
            }

            fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
                struct Keep<V>(V);
                impl<'de, V: Visitor<'de>> Visitor<'de> for Keep<V> {
                    type Value = V::Value;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        self.0.expecting(f)
                    }
                    fn visit_u64<E: de::Error>(self, value: u64) -> Result<V::Value, E> {
                        self.0.visit_u64(value / 2)
                    }
                }
                self.0.deserialize_u8(Keep(visitor))
            }

            serde::forward_to_deserialize_any! {
                bool i8 i16 i32 i64 i128 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
                newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
            }
        }
        PhantomData::<u8>.deserialize(Wrap(deserializer)).map(|_| Self)
    }
}
