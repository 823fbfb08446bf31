//! Any type of serde's data model as data: a shape for decoding, and a value for encoding.
//!
//! A property can thus cover *all* types instead of a list of derived ones: accepted values decode to equal values.
#![expect(clippy::cast_possible_truncation, reason = "each number was made for the width that it is cast to")]

use std::fmt;

use proptest::prelude::*;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::ser::{
    Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

const NAMES: &[&str] = &["a", "b", "c"];

#[derive(Clone, Debug)]
pub(super) enum Shape {
    Bool,
    I8,
    I64,
    I128,
    U16,
    U64,
    U128,
    F32,
    F64,
    Char,
    Text,
    Bytes,
    Unit,
    UnitStruct,
    /// Any JSON, decoded without a type.
    Json,
    Option(Box<Shape>),
    Newtype(Box<Shape>),
    Seq(Box<Shape>),
    Tuple(Vec<Shape>),
    TupleStruct(Vec<Shape>),
    Map(Box<Shape>, Box<Shape>),
    Struct(Vec<Shape>),
    /// A variant of each form.
    Enum(Vec<Variant>),
}

#[derive(Clone, Debug)]
pub(super) enum Variant {
    Unit,
    Newtype(Shape),
    Tuple(Vec<Shape>),
    Struct(Vec<Shape>),
}

/// A value of a shape. Floats are stored as bits, for equality by the stored form.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Val {
    Bool(bool),
    Int(i128),
    Wide(u128),
    F32(u32),
    F64(u64),
    Char(char),
    Text(String),
    Bytes(Vec<u8>),
    Unit,
    UnitStruct,
    Json(Value),
    None,
    Some(Box<Val>),
    Newtype(Box<Val>),
    Seq(Vec<Val>),
    Tuple(Vec<Val>),
    TupleStruct(Vec<Val>),
    Map(Vec<(Val, Val)>),
    Struct(Vec<Val>),
    Variant(u32, Payload),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Payload {
    Unit,
    Newtype(Box<Val>),
    Tuple(Vec<Val>),
    Struct(Vec<Val>),
}

impl Val {
    /// A map. Its entries are unordered.
    fn map(mut entries: Vec<(Val, Val)>) -> Self {
        entries.sort_by_cached_key(|entry| format!("{entry:?}"));
        Self::Map(entries)
    }
}

fn name(index: usize) -> &'static str {
    NAMES[index]
}

/// A value with its shape. It acts like a derived `Serialize` of such a type.
pub(super) struct Typed<'a>(pub(super) &'a Shape, pub(super) &'a Val);

impl Serialize for Typed<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        fn fields<'a>(
            shapes: &'a [Shape],
            values: &'a [Val],
        ) -> impl Iterator<Item = (&'static str, Typed<'a>)> {
            shapes.iter().zip(values).enumerate().map(|(n, (shape, value))| (name(n), Typed(shape, value)))
        }
        match (self.0, self.1) {
            (_, Val::Bool(value)) => s.serialize_bool(*value),
            (Shape::I8, Val::Int(value)) => s.serialize_i8(*value as i8),
            (Shape::I64, Val::Int(value)) => s.serialize_i64(*value as i64),
            (_, Val::Int(value)) => s.serialize_i128(*value),
            (Shape::U16, Val::Wide(value)) => s.serialize_u16(*value as u16),
            (Shape::U64, Val::Wide(value)) => s.serialize_u64(*value as u64),
            (_, Val::Wide(value)) => s.serialize_u128(*value),
            (_, Val::F32(bits)) => s.serialize_f32(f32::from_bits(*bits)),
            (_, Val::F64(bits)) => s.serialize_f64(f64::from_bits(*bits)),
            (_, Val::Char(value)) => s.serialize_char(*value),
            (_, Val::Text(value)) => s.serialize_str(value),
            (_, Val::Bytes(value)) => s.serialize_bytes(value),
            (_, Val::Unit) => s.serialize_unit(),
            (_, Val::UnitStruct) => s.serialize_unit_struct("Shape"),
            (_, Val::Json(value)) => value.serialize(s),
            (_, Val::None) => s.serialize_none(),
            (Shape::Option(shape), Val::Some(value)) => s.serialize_some(&Typed(shape, value)),
            (Shape::Newtype(shape), Val::Newtype(value)) => {
                s.serialize_newtype_struct("Shape", &Typed(shape, value))
            }
            (Shape::Seq(shape), Val::Seq(values)) => {
                let mut seq = s.serialize_seq(Some(values.len()))?;
                values.iter().try_for_each(|value| seq.serialize_element(&Typed(shape, value)))?;
                seq.end()
            }
            (Shape::Tuple(shapes), Val::Tuple(values)) => {
                let mut tuple = s.serialize_tuple(values.len())?;
                fields(shapes, values).try_for_each(|(_, value)| tuple.serialize_element(&value))?;
                tuple.end()
            }
            (Shape::TupleStruct(shapes), Val::TupleStruct(values)) => {
                let mut tuple = s.serialize_tuple_struct("Shape", values.len())?;
                fields(shapes, values).try_for_each(|(_, value)| tuple.serialize_field(&value))?;
                tuple.end()
            }
            (Shape::Map(keys, shape), Val::Map(entries)) => {
                let mut map = s.serialize_map(Some(entries.len()))?;
                entries.iter().try_for_each(|(key, value)| {
                    map.serialize_entry(&Typed(keys, key), &Typed(shape, value))
                })?;
                map.end()
            }
            (Shape::Struct(shapes), Val::Struct(values)) => {
                let mut fielded = s.serialize_struct("Shape", values.len())?;
                fields(shapes, values).try_for_each(|(name, value)| fielded.serialize_field(name, &value))?;
                fielded.end()
            }
            (Shape::Enum(variants), Val::Variant(index, payload)) => {
                let at = *index as usize;
                match (&variants[at], payload) {
                    (Variant::Unit, _) => s.serialize_unit_variant("Shape", *index, name(at)),
                    (Variant::Newtype(shape), Payload::Newtype(value)) => {
                        s.serialize_newtype_variant("Shape", *index, name(at), &Typed(shape, value))
                    }
                    (Variant::Tuple(shapes), Payload::Tuple(values)) => {
                        let mut tuple = s.serialize_tuple_variant("Shape", *index, name(at), values.len())?;
                        fields(shapes, values).try_for_each(|(_, value)| tuple.serialize_field(&value))?;
                        tuple.end()
                    }
                    (Variant::Struct(shapes), Payload::Struct(values)) => {
                        let mut fielded =
                            s.serialize_struct_variant("Shape", *index, name(at), values.len())?;
                        fields(shapes, values)
                            .try_for_each(|(name, value)| fielded.serialize_field(name, &value))?;
                        fielded.end()
                    }
                    _ => Err(S::Error::custom("no value of its shape")),
                }
            }
            _ => Err(S::Error::custom("no value of its shape")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for &Shape {
    type Value = Val;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Val, D::Error> {
        match self {
            Shape::Bool => bool::deserialize(d).map(Val::Bool),
            Shape::I8 => i8::deserialize(d).map(|value| Val::Int(value.into())),
            Shape::I64 => i64::deserialize(d).map(|value| Val::Int(value.into())),
            Shape::I128 => i128::deserialize(d).map(Val::Int),
            Shape::U16 => u16::deserialize(d).map(|value| Val::Wide(value.into())),
            Shape::U64 => u64::deserialize(d).map(|value| Val::Wide(value.into())),
            Shape::U128 => u128::deserialize(d).map(Val::Wide),
            Shape::F32 => f32::deserialize(d).map(|value| Val::F32(value.to_bits())),
            Shape::F64 => f64::deserialize(d).map(|value| Val::F64(value.to_bits())),
            Shape::Char => char::deserialize(d).map(Val::Char),
            Shape::Text => String::deserialize(d).map(Val::Text),
            Shape::Bytes => d.deserialize_byte_buf(Reader(self)),
            Shape::Unit => <()>::deserialize(d).map(|()| Val::Unit),
            Shape::UnitStruct => d.deserialize_unit_struct("Shape", Reader(self)),
            Shape::Json => Value::deserialize(d).map(Val::Json),
            Shape::Option(_) => d.deserialize_option(Reader(self)),
            Shape::Newtype(_) => d.deserialize_newtype_struct("Shape", Reader(self)),
            Shape::Seq(_) => d.deserialize_seq(Reader(self)),
            Shape::Tuple(shapes) => d.deserialize_tuple(shapes.len(), Reader(self)),
            Shape::TupleStruct(shapes) => d.deserialize_tuple_struct("Shape", shapes.len(), Reader(self)),
            Shape::Map(..) => d.deserialize_map(Reader(self)),
            Shape::Struct(_) => d.deserialize_struct("Shape", NAMES, Reader(self)),
            Shape::Enum(_) => d.deserialize_enum("Shape", NAMES, Reader(self)),
        }
    }
}

/// Acts like a derived `Deserialize` of such a type.
struct Reader<'a>(&'a Shape);

impl Reader<'_> {
    fn items<'de, A: SeqAccess<'de>>(shapes: &[Shape], mut seq: A) -> Result<Vec<Val>, A::Error> {
        let items = shapes.iter().enumerate();
        items
            .map(|(n, shape)| {
                seq.next_element_seed(shape)?.ok_or_else(|| de::Error::invalid_length(n, &"all"))
            })
            .collect()
    }

    fn fields<'de, A: MapAccess<'de>>(shapes: &[Shape], mut map: A) -> Result<Vec<Val>, A::Error> {
        let mut values = vec![None; shapes.len()];
        while let Some(key) = map.next_key::<String>()? {
            match NAMES.iter().take(shapes.len()).position(|name| **name == key) {
                Some(at) if values[at].is_some() => return Err(de::Error::duplicate_field(NAMES[at])),
                Some(at) => values[at] = Some(map.next_value_seed(&shapes[at])?),
                None => drop(map.next_value::<de::IgnoredAny>()?),
            }
        }
        let given = values.into_iter().zip(NAMES);
        given.map(|(value, name)| value.ok_or_else(|| de::Error::missing_field(name))).collect()
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Val;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }

    fn visit_unit<E>(self) -> Result<Val, E> {
        Ok(if matches!(self.0, Shape::UnitStruct) { Val::UnitStruct } else { Val::None })
    }

    fn visit_none<E>(self) -> Result<Val, E> {
        Ok(Val::None)
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Val, D::Error> {
        let Shape::Option(shape) = self.0 else { return Err(de::Error::custom("no option")) };
        shape.deserialize(d).map(|value| Val::Some(Box::new(value)))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<Val, D::Error> {
        let Shape::Newtype(shape) = self.0 else { return Err(de::Error::custom("no newtype")) };
        shape.deserialize(d).map(|value| Val::Newtype(Box::new(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Val, A::Error> {
        match self.0 {
            Shape::Bytes => {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(Val::Bytes(bytes))
            }
            Shape::Seq(shape) => {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element_seed(&**shape)? {
                    values.push(value);
                }
                Ok(Val::Seq(values))
            }
            Shape::Tuple(shapes) => Self::items(shapes, seq).map(Val::Tuple),
            Shape::TupleStruct(shapes) => Self::items(shapes, seq).map(Val::TupleStruct),
            Shape::Struct(shapes) => Self::items(shapes, seq).map(Val::Struct),
            _ => Err(de::Error::custom("no sequence")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Val, A::Error> {
        match self.0 {
            Shape::Map(keys, shape) => {
                let mut entries = Vec::new();
                while let Some(key) = map.next_key_seed(&**keys)? {
                    entries.push((key, map.next_value_seed(&**shape)?));
                }
                Ok(Val::map(entries))
            }
            Shape::Struct(shapes) => Self::fields(shapes, map).map(Val::Struct),
            _ => Err(de::Error::custom("no map")),
        }
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Val, A::Error> {
        struct Parts<'a>(&'a Variant);
        impl<'de> Visitor<'de> for Parts<'_> {
            type Value = Payload;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Payload, A::Error> {
                match self.0 {
                    Variant::Tuple(shapes) => Reader::items(shapes, seq).map(Payload::Tuple),
                    Variant::Struct(shapes) => Reader::items(shapes, seq).map(Payload::Struct),
                    _ => Err(de::Error::custom("no sequence")),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Payload, A::Error> {
                let Variant::Struct(shapes) = self.0 else { return Err(de::Error::custom("no struct")) };
                Reader::fields(shapes, map).map(Payload::Struct)
            }
        }
        let Shape::Enum(variants) = self.0 else { return Err(de::Error::custom("no enum")) };
        let (variant, access): (String, A::Variant) = data.variant()?;
        let at = NAMES.iter().take(variants.len()).position(|name| **name == variant);
        let at = at.ok_or_else(|| de::Error::unknown_variant(&variant, NAMES))?;
        let payload = match &variants[at] {
            Variant::Unit => access.unit_variant().map(|()| Payload::Unit),
            Variant::Newtype(shape) => {
                access.newtype_variant_seed(shape).map(|value| Payload::Newtype(Box::new(value)))
            }
            tuple @ Variant::Tuple(shapes) => access.tuple_variant(shapes.len(), Parts(tuple)),
            fielded @ Variant::Struct(_) => access.struct_variant(NAMES, Parts(fielded)),
        };
        Ok(Val::Variant(u32::try_from(at).unwrap(), payload?))
    }
}

fn leaf() -> BoxedStrategy<Shape> {
    use Shape::*;
    let all = [Bool, I8, I64, I128, U16, U64, U128, F32, F64, Char, Text, Bytes, Unit, UnitStruct, Json];
    prop::sample::select(all.to_vec()).boxed()
}

fn key() -> BoxedStrategy<Shape> {
    let plain = leaf().prop_filter("no key", |shape| !matches!(shape, Shape::Json | Shape::Bytes));
    let names = Just(Shape::Enum(vec![Variant::Unit, Variant::Unit, Variant::Newtype(Shape::U16)]));
    prop_oneof![4 => plain.clone(), 1 => names, 1 => plain.clone().prop_map(|inner| Shape::Option(Box::new(inner))),
        1 => plain.prop_map(|inner| Shape::Newtype(Box::new(inner)))]
    .boxed()
}

pub(super) fn shape() -> impl Strategy<Value = Shape> {
    leaf().prop_recursive(5, 24, 3, |inner| {
        let many = prop::collection::vec(inner.clone(), 0..=3);
        let boxed = inner.clone().prop_map(Box::new);
        let variant = prop_oneof![
            Just(Variant::Unit),
            inner.prop_map(Variant::Newtype),
            many.clone()
                .prop_filter("a tuple of one is a newtype", |many| many.len() != 1)
                .prop_map(Variant::Tuple),
            many.clone().prop_map(Variant::Struct),
        ];
        prop_oneof![
            3 => boxed.clone().prop_map(Shape::Option),
            1 => boxed.clone().prop_map(Shape::Newtype),
            1 => boxed.clone().prop_map(Shape::Seq),
            1 => many.clone().prop_map(Shape::Tuple),
            1 => many.clone().prop_map(Shape::TupleStruct),
            2 => (key(), boxed).prop_map(|(key, inner)| Shape::Map(Box::new(key), inner)),
            2 => many.prop_map(Shape::Struct),
            2 => prop::collection::vec(variant, 1..=3).prop_map(Shape::Enum),
        ]
    })
}

fn json() -> BoxedStrategy<Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(Value::from(-0.0)),
    ];
    let leaf = prop_oneof![2 => Just(Value::Null), 1 => any::<bool>().prop_map(Value::from), 2 => number, 1 => any::<String>().prop_map(Value::from)];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::btree_map(any::<String>(), inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
    .boxed()
}

/// Any value of a shape.
pub(super) fn value(shape: &Shape) -> BoxedStrategy<Val> {
    fn all(shapes: &[Shape]) -> Vec<BoxedStrategy<Val>> {
        shapes.iter().map(value).collect()
    }
    match shape {
        Shape::Bool => any::<bool>().prop_map(Val::Bool).boxed(),
        Shape::I8 => any::<i8>().prop_map(|value| Val::Int(value.into())).boxed(),
        Shape::I64 => any::<i64>().prop_map(|value| Val::Int(value.into())).boxed(),
        Shape::I128 => {
            let within = prop_oneof![any::<i64>().prop_map(i128::from), any::<u64>().prop_map(i128::from)];
            prop_oneof![4 => within, 1 => any::<i128>()].prop_map(Val::Int).boxed()
        }
        Shape::U16 => any::<u16>().prop_map(|value| Val::Wide(value.into())).boxed(),
        Shape::U64 => any::<u64>().prop_map(|value| Val::Wide(value.into())).boxed(),
        Shape::U128 => prop_oneof![4 => any::<u64>().prop_map(u128::from), 1 => any::<u128>()]
            .prop_map(Val::Wide)
            .boxed(),
        Shape::F32 => any::<u32>().prop_map(|bits| Val::F32(f32::from_bits(bits).to_bits())).boxed(),
        Shape::F64 => {
            let odd = prop::sample::select(vec![
                0.0_f64,
                -0.0,
                f64::NAN,
                f64::INFINITY,
                f64::MIN_POSITIVE,
                9_007_199_254_740_993.0,
            ]);
            prop_oneof![4 => any::<u64>(), 1 => odd.prop_map(f64::to_bits)].prop_map(Val::F64).boxed()
        }
        Shape::Char => any::<char>().prop_map(Val::Char).boxed(),
        Shape::Text => any::<String>().prop_map(Val::Text).boxed(),
        Shape::Bytes => prop::collection::vec(any::<u8>(), 0..3).prop_map(Val::Bytes).boxed(),
        Shape::Unit => Just(Val::Unit).boxed(),
        Shape::UnitStruct => Just(Val::UnitStruct).boxed(),
        Shape::Json => json().prop_map(Val::Json).boxed(),
        Shape::Option(inner) => {
            prop_oneof![1 => Just(Val::None), 2 => value(inner).prop_map(|inner| Val::Some(Box::new(inner)))]
                .boxed()
        }
        Shape::Newtype(inner) => value(inner).prop_map(|inner| Val::Newtype(Box::new(inner))).boxed(),
        Shape::Seq(inner) => prop::collection::vec(value(inner), 0..3).prop_map(Val::Seq).boxed(),
        Shape::Tuple(shapes) => all(shapes).prop_map(Val::Tuple).boxed(),
        Shape::TupleStruct(shapes) => all(shapes).prop_map(Val::TupleStruct).boxed(),
        Shape::Struct(shapes) => all(shapes).prop_map(Val::Struct).boxed(),
        // Keys may become equal once they are text, even if their type treats them as different.
        Shape::Map(keys, inner) => {
            prop::collection::vec((value(keys), value(inner)), 0..3).prop_map(Val::map).boxed()
        }
        Shape::Enum(variants) => {
            let variants = variants.iter().zip(0..).map(|(variant, index)| {
                let payload = match variant {
                    Variant::Unit => Just(Payload::Unit).boxed(),
                    Variant::Newtype(inner) => {
                        value(inner).prop_map(|inner| Payload::Newtype(Box::new(inner))).boxed()
                    }
                    Variant::Tuple(shapes) => all(shapes).prop_map(Payload::Tuple).boxed(),
                    Variant::Struct(shapes) => all(shapes).prop_map(Payload::Struct).boxed(),
                };
                payload.prop_map(move |payload| Val::Variant(index, payload)).boxed()
            });
            prop::strategy::Union::new(variants).boxed()
        }
    }
}
