//! A deserializer that reads nothing: it plays a dummy value to a type and writes down what the type asked for.

use std::any::type_name;
use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{self, DeserializeSeed, Visitor};

use super::Int;

/// A value made up for a type. `Watch` marks the one place whose call is written down.
#[derive(Clone, Debug)]
pub(super) enum Dummy {
    /// No value yet: the call is written down and the type is told that there is none.
    Unknown,
    Null,
    Bool(bool),
    Unsigned(u64),
    Float(f64),
    Char(char),
    Text(&'static str),
    Bytes,
    Nothing,
    Some(Box<Dummy>),
    Newtype(Box<Dummy>),
    List(Vec<Dummy>),
    Map(Vec<(Dummy, Dummy)>),
    Variant(Box<Dummy>, Box<Dummy>),
    Watch(Box<Dummy>),
}

/// What a type asked its deserializer for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Any,
    Bool,
    Int(Int),
    Number,
    Char,
    Text,
    Bytes,
    Unit,
    Option,
    Newtype,
    Seq,
    Tuple(usize),
    Map,
    Struct(&'static [&'static str]),
    Enum(&'static [&'static str]),
}

/// Whose code judges the value that a call brings.
///
/// A visitor written by hand may take what another never would: a whole number as `1.0`, the second element by the
/// first. What it takes cannot be found by trying, so only visitors whose code is known are believed beyond the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judge {
    /// serde's own code for the types of the standard library.
    Serde,
    /// The code that `#[derive(Deserialize)]` wrote.
    Derived,
    Unknown,
}

impl Judge {
    /// Tells by the name of the visitor. If another compiler or serde names them otherwise, shapes become more lenient.
    fn of<V>() -> Self {
        let name = type_name::<V>();
        // What stands before the next `<` is a path that no wrapper around a visitor has; it begins with one where the
        // visitor belongs to another, private type.
        let path = name.strip_prefix('<').unwrap_or(name).split('<').next().unwrap_or_default();
        let own = ["serde_core::de::impls::", "serde::de::impls::"];
        // A saturating integer takes every number.
        if own.iter().any(|own| path.starts_with(own)) && !name.ends_with("::SaturatingVisitor") {
            return Self::Serde;
        }
        let derived =
            path.ends_with("::_::") && (name.contains("::__Visitor") || name.contains("::__FieldVisitor"));
        if derived { Self::Derived } else { Self::Unknown }
    }
}

/// What was seen at the watched place.
#[derive(Debug, Default)]
pub(super) struct Log {
    seen: Cell<Option<(Call, Judge)>>,
    end: RefCell<Option<Result<(), Refusal>>>,
}

impl Log {
    pub(super) fn seen(&self) -> Option<(Call, Judge)> {
        self.seen.get()
    }

    /// Tells whether the type took the dummy.
    pub(super) fn took(&self) -> bool {
        matches!(*self.end.borrow(), Some(Ok(())))
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.end.borrow().and_then(Result::err)
    }
}

/// Why a type did not take a dummy, as far as it says so by the constructor of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Missing(&'static str),
    Duplicate(&'static str),
    Other,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the dummy value was refused")
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Other
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::Duplicate(field)
    }
}

/// Plays `dummy` to the type behind `take`, and logs how it ended if the dummy is watched.
pub(super) fn play<R>(
    dummy: &Dummy,
    log: &Log,
    take: impl FnOnce(Probe<'_>) -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    let Dummy::Watch(dummy) = dummy else { return take(Probe { dummy, log, watched: false }) };
    let result = take(Probe { dummy, log, watched: true });
    log.end.replace(Some(result.as_ref().map(|_| ()).map_err(|refusal| *refusal)));
    result
}

/// The deserializer that plays one dummy; also the one of an enum and of its variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe<'a> {
    dummy: &'a Dummy,
    log: &'a Log,
    watched: bool,
}

impl Probe<'_> {
    fn saw<V>(&self, call: Call) {
        if self.watched {
            self.log.seen.set(Some((call, Judge::of::<V>())));
        }
    }

    fn answer<'de, V: Visitor<'de>>(self, call: Call, visitor: V) -> Result<V::Value, Refusal> {
        self.saw::<V>(call);
        match self.dummy {
            Dummy::Null => visitor.visit_unit(),
            Dummy::Bool(value) => visitor.visit_bool(*value),
            Dummy::Unsigned(value) => visitor.visit_u64(*value),
            Dummy::Float(value) => visitor.visit_f64(*value),
            Dummy::Char(value) => visitor.visit_char(*value),
            Dummy::Text(value) => visitor.visit_str(value),
            Dummy::Bytes => visitor.visit_bytes(b""),
            Dummy::Nothing => visitor.visit_none(),
            Dummy::Some(inner) => play(inner, self.log, |probe| visitor.visit_some(probe)),
            Dummy::Newtype(inner) => play(inner, self.log, |probe| visitor.visit_newtype_struct(probe)),
            Dummy::List(items) => visitor.visit_seq(Items { items: items.iter(), log: self.log }),
            Dummy::Map(entries) => {
                visitor.visit_map(Entries { entries: entries.iter(), value: None, log: self.log })
            }
            Dummy::Variant(..) => visitor.visit_enum(self),
            Dummy::Unknown | Dummy::Watch(_) => Err(Refusal::Other),
        }
    }
}

macro_rules! answer {
    ($($method:ident($($argument:ident: $type:ty),*) => $call:expr;)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, Refusal> {
            self.answer($call, visitor)
        }
    )*};
}

type Names = &'static [&'static str];

impl<'de> de::Deserializer<'de> for Probe<'_> {
    type Error = Refusal;

    answer! {
        deserialize_any() => Call::Any;
        deserialize_ignored_any() => Call::Any;
        deserialize_bool() => Call::Bool;
        deserialize_i8() => Call::Int(Int::I8);
        deserialize_i16() => Call::Int(Int::I16);
        deserialize_i32() => Call::Int(Int::I32);
        deserialize_i64() => Call::Int(Int::I64);
        deserialize_i128() => Call::Int(Int::I128);
        deserialize_u8() => Call::Int(Int::U8);
        deserialize_u16() => Call::Int(Int::U16);
        deserialize_u32() => Call::Int(Int::U32);
        deserialize_u64() => Call::Int(Int::U64);
        deserialize_u128() => Call::Int(Int::U128);
        deserialize_f32() => Call::Number;
        deserialize_f64() => Call::Number;
        deserialize_char() => Call::Char;
        deserialize_str() => Call::Text;
        deserialize_string() => Call::Text;
        deserialize_identifier() => Call::Text;
        deserialize_bytes() => Call::Bytes;
        deserialize_byte_buf() => Call::Bytes;
        deserialize_option() => Call::Option;
        deserialize_unit() => Call::Unit;
        deserialize_unit_struct(_name: &'static str) => Call::Unit;
        // serde_json passes a raw value, which is any JSON, under the name of a newtype of its own.
        deserialize_newtype_struct(name: &'static str) => if name.starts_with('$') { Call::Any } else { Call::Newtype };
        deserialize_seq() => Call::Seq;
        deserialize_tuple(len: usize) => Call::Tuple(len);
        deserialize_tuple_struct(_name: &'static str, len: usize) => Call::Tuple(len);
        deserialize_map() => Call::Map;
        deserialize_struct(_name: &'static str, fields: Names) => Call::Struct(fields);
        deserialize_enum(_name: &'static str, variants: Names) => Call::Enum(variants);
    }
}

struct Items<'a> {
    items: std::slice::Iter<'a, Dummy>,
    log: &'a Log,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Refusal;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Refusal> {
        let Some(item) = self.items.next() else { return Ok(None) };
        play(item, self.log, |probe| seed.deserialize(probe)).map(Some)
    }
}

struct Entries<'a> {
    entries: std::slice::Iter<'a, (Dummy, Dummy)>,
    value: Option<&'a Dummy>,
    log: &'a Log,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Refusal;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Refusal> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some(value);
        play(key, self.log, |probe| seed.deserialize(probe)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Refusal> {
        let value = self.value.take().ok_or(Refusal::Other)?;
        play(value, self.log, |probe| seed.deserialize(probe))
    }
}

impl<'de> de::EnumAccess<'de> for Probe<'_> {
    type Error = Refusal;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Refusal> {
        let Dummy::Variant(name, payload) = self.dummy else { return Err(Refusal::Other) };
        let name = play(name, self.log, |probe| seed.deserialize(probe))?;
        Ok((name, Self { dummy: payload, watched: false, ..self }))
    }
}

impl<'de> de::VariantAccess<'de> for Probe<'_> {
    type Error = Refusal;

    fn unit_variant(self) -> Result<(), Refusal> {
        play(self.dummy, self.log, |probe| {
            probe.saw::<()>(Call::Unit);
            if matches!(probe.dummy, Dummy::Null) { Ok(()) } else { Err(Refusal::Other) }
        })
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Refusal> {
        play(self.dummy, self.log, |probe| {
            probe.saw::<S>(Call::Newtype);
            let Dummy::Newtype(inner) = probe.dummy else { return Err(Refusal::Other) };
            play(inner, probe.log, |probe| seed.deserialize(probe))
        })
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refusal> {
        play(self.dummy, self.log, |probe| probe.answer(Call::Tuple(len), visitor))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: Names, visitor: V) -> Result<V::Value, Refusal> {
        play(self.dummy, self.log, |probe| probe.answer(Call::Struct(fields), visitor))
    }
}
