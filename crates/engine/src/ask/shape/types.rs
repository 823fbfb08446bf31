//! Implementations of the trait for types that need no derive.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16,
    NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize, Saturating, Wrapping,
};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};
use uuid::Uuid;

use super::{AnswerShape, IntegerType, Shape, ShapeForm, Shapes};

/// The maximum length of an array whose shape describes each element. A longer array has the shape of a list.
const ELEMENTS: usize = 16;

macro_rules! leaves {
    ($($form:expr => $($type:ty),+;)*) => {$($(
        impl AnswerShape for $type {
            fn shape(_: &mut Shapes) -> Shape {
                Shape($form)
            }
        }
    )+)*};
}

leaves! {
    ShapeForm::Any => Value, Box<RawValue>, IgnoredAny;
    ShapeForm::Bool => bool;
    ShapeForm::Int(IntegerType::I8) => i8, NonZeroI8;
    ShapeForm::Int(IntegerType::I16) => i16, NonZeroI16;
    ShapeForm::Int(IntegerType::I32) => i32, NonZeroI32;
    ShapeForm::Int(IntegerType::I64) => i64, NonZeroI64, isize, NonZeroIsize;
    ShapeForm::Int(IntegerType::I128) => i128, NonZeroI128;
    ShapeForm::Int(IntegerType::U8) => u8, NonZeroU8;
    ShapeForm::Int(IntegerType::U16) => u16, NonZeroU16;
    ShapeForm::Int(IntegerType::U32) => u32, NonZeroU32;
    ShapeForm::Int(IntegerType::U64) => u64, NonZeroU64, usize, NonZeroUsize;
    ShapeForm::Int(IntegerType::U128) => u128, NonZeroU128;
    ShapeForm::Number => f32, f64, Number;
    ShapeForm::Char => char;
    ShapeForm::Text => String, Box<str>, Rc<str>, Arc<str>, Cow<'static, str>, PathBuf, Box<Path>, Uuid, IpAddr, Ipv4Addr, Ipv6Addr,
        SocketAddr, SocketAddrV4, SocketAddrV6;
    ShapeForm::Null => ();
}

/// Implements the trait for types that serde writes as their inner value.
macro_rules! wrappers {
    ($($type:ty),*) => {$(
        impl<T: AnswerShape> AnswerShape for $type
        where
            $type: DeserializeOwned,
        {
            const OPTIONAL: bool = T::OPTIONAL;

            fn shape(shapes: &mut Shapes) -> Shape {
                shapes.of::<T>()
            }
        }
    )*};
}

wrappers!(Box<T>, Rc<T>, Arc<T>, Saturating<T>, Wrapping<T>);

macro_rules! lists {
    ($([$($bounds:tt)*] $type:ty;)*) => {$(
        impl<T: AnswerShape, $($bounds)*> AnswerShape for $type
        where
            $type: DeserializeOwned,
        {
            fn shape(shapes: &mut Shapes) -> Shape {
                Shape::list(shapes.of::<T>())
            }
        }
    )*};
}

lists! {
    [] Vec<T>;
    [] VecDeque<T>;
    [] LinkedList<T>;
    [] BTreeSet<T>;
    [] BinaryHeap<T>;
    [H: BuildHasher + Default + 'static] HashSet<T, H>;
    [] Box<[T]>;
    [] Rc<[T]>;
    [] Arc<[T]>;
}

impl<T: AnswerShape, const N: usize> AnswerShape for [T; N]
where
    [T; N]: DeserializeOwned,
{
    fn shape(shapes: &mut Shapes) -> Shape {
        let item = shapes.of::<T>();
        if N > ELEMENTS { Shape::list(item) } else { Shape::tuple(std::iter::repeat_n(item, N), N) }
    }
}

impl<T: AnswerShape> AnswerShape for Option<T> {
    const OPTIONAL: bool = true;

    fn shape(shapes: &mut Shapes) -> Shape {
        shapes.of::<T>().nullable()
    }
}

impl<K: DeserializeOwned + Ord + 'static, V: AnswerShape> AnswerShape for BTreeMap<K, V> {
    fn shape(shapes: &mut Shapes) -> Shape {
        Shape::map(shapes.of::<V>())
    }
}

impl<K, V, H> AnswerShape for HashMap<K, V, H>
where
    K: DeserializeOwned + Eq + Hash + 'static,
    V: AnswerShape,
    H: BuildHasher + Default + 'static,
{
    fn shape(shapes: &mut Shapes) -> Shape {
        Shape::map(shapes.of::<V>())
    }
}

impl AnswerShape for Map<String, Value> {
    fn shape(_: &mut Shapes) -> Shape {
        Shape::map(Shape::any())
    }
}

impl<T: AnswerShape, E: AnswerShape> AnswerShape for Result<T, E> {
    fn shape(shapes: &mut Shapes) -> Shape {
        Shape::variants([("Ok", Some(shapes.of::<T>())), ("Err", Some(shapes.of::<E>()))])
    }
}

macro_rules! structs {
    ($([$($generic:tt)*] $type:ty { $($field:literal: $inner:ty),* };)*) => {$(
        impl<$($generic)*> AnswerShape for $type {
            fn shape(shapes: &mut Shapes) -> Shape {
                Shape::object([$(shapes.field::<$inner>($field)),*])
            }
        }
    )*};
}

structs! {
    [] Duration { "secs": u64, "nanos": u32 };
    [] SystemTime { "secs_since_epoch": u64, "nanos_since_epoch": u32 };
    [T: AnswerShape] Range<T> { "start": T, "end": T };
    [T: AnswerShape] RangeInclusive<T> { "start": T, "end": T };
}

macro_rules! tuples {
    ($first:ident $($rest:ident)*) => {
        impl<$first: AnswerShape, $($rest: AnswerShape),*> AnswerShape for ($first, $($rest,)*) {
            fn shape(shapes: &mut Shapes) -> Shape {
                let elements = [shapes.of::<$first>(), $(shapes.of::<$rest>()),*];
                let least = elements.len();
                Shape::tuple(elements, least)
            }
        }
        tuples!($($rest)*);
    };
    () => {};
}

tuples!(A B C D E F G H I J K L M N O P);
