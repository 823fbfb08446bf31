//! The strict serializer between a user's value and the encoder.

use std::fmt;

use serde::{Serialize, Serializer};

use super::compound::{Compound, CompoundShape};
use super::keys::MapKeys;
use super::path::{PathTracker, Segment, StrictRefusal};
use super::{Role, StrictValue};

/// The name under which `serde_json` passes raw text through any serializer.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

pub(super) struct Strict<'a, S> {
    pub(super) inner: S,
    pub(super) room: u8,
    pub(super) role: Role,
    pub(super) tracker: &'a PathTracker,
}

impl<'a, S: Serializer> Strict<'a, S> {
    /// Opens `levels` of nesting, or fails if they exceed the limit.
    #[inline]
    fn open<T>(
        self,
        levels: u8,
        shape: CompoundShape,
        open: impl FnOnce(S) -> Result<T, S::Error>,
    ) -> Result<Compound<'a, T>, S::Error> {
        let Some(room) = self.room.checked_sub(levels) else {
            return Err(self.tracker.refuse(StrictRefusal::TooDeep));
        };
        Ok(Compound {
            inner: open(self.inner)?,
            room,
            tracker: self.tracker,
            next: 0,
            shape,
            keys: MapKeys::default(),
            first: None,
            role: self.role,
        })
    }

    /// Returns an error for a `null` inside of `Some`, because it would be decoded as `None`.
    #[inline]
    fn null(&self) -> Result<(), S::Error> {
        if self.role == Role::Held { Err(self.tracker.refuse(StrictRefusal::NullInSome)) } else { Ok(()) }
    }

    #[inline]
    fn finite(&self, value: f64) -> Result<(), S::Error> {
        if value.is_finite() {
            Ok(())
        } else if value.is_nan() {
            Err(self.tracker.refuse(StrictRefusal::NotANumber))
        } else {
            Err(self.tracker.refuse(StrictRefusal::Infinite))
        }
    }
}

macro_rules! forward {
    ($($method:ident($ty:ty))*) => {$(
        #[inline]
        fn $method(self, value: $ty) -> Result<S::Ok, S::Error> {
            self.inner.$method(value)
        }
    )*};
}

impl<'a, S: Serializer> Serializer for Strict<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Compound<'a, S::SerializeSeq>;
    type SerializeTuple = Compound<'a, S::SerializeTuple>;
    type SerializeTupleStruct = Compound<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Compound<'a, S::SerializeTupleVariant>;
    type SerializeMap = Compound<'a, S::SerializeMap>;
    type SerializeStruct = Compound<'a, S::SerializeStruct>;
    type SerializeStructVariant = Compound<'a, S::SerializeStructVariant>;

    forward! {
        serialize_bool(bool) serialize_char(char) serialize_str(&str)
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64)
    }

    #[inline]
    fn serialize_i128(self, value: i128) -> Result<S::Ok, S::Error> {
        if let Ok(value) = i64::try_from(value) {
            return self.inner.serialize_i64(value);
        }
        match u64::try_from(value) {
            Ok(value) => self.inner.serialize_u64(value),
            Err(_) => Err(self.tracker.refuse(StrictRefusal::TooWide)),
        }
    }

    #[inline]
    fn serialize_u128(self, value: u128) -> Result<S::Ok, S::Error> {
        match u64::try_from(value) {
            Ok(value) => self.inner.serialize_u64(value),
            Err(_) => Err(self.tracker.refuse(StrictRefusal::TooWide)),
        }
    }

    #[inline]
    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        self.finite(value.into())?;
        self.inner.serialize_f32(value)
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        self.finite(value)?;
        self.inner.serialize_f64(value)
    }

    #[inline]
    fn serialize_bytes(self, value: &[u8]) -> Result<S::Ok, S::Error> {
        if self.room == 0 {
            return Err(self.tracker.refuse(StrictRefusal::TooDeep));
        }
        self.inner.serialize_bytes(value)
    }

    #[inline]
    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.null()?;
        self.inner.serialize_none()
    }

    #[inline]
    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&StrictValue {
            value,
            room: self.room,
            role: Role::Held,
            tracker: self.tracker,
        })
    }

    #[inline]
    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.null()?;
        self.inner.serialize_unit()
    }

    #[inline]
    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        self.null()?;
        self.inner.serialize_unit_struct(name)
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    #[inline]
    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        // Written as its content, so the rule about `null` still applies.
        let value = StrictValue { value, room: self.room, role: self.role, tracker: self.tracker };
        self.inner.serialize_newtype_struct(name, &value)
    }

    #[inline]
    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let Some(room) = self.room.checked_sub(1) else {
            return Err(self.tracker.refuse(StrictRefusal::TooDeep));
        };
        let value = StrictValue { value, room, role: Role::Value, tracker: self.tracker };
        let result = self.inner.serialize_newtype_variant(name, index, variant, &value);
        result.inspect_err(|_| self.tracker.push(Segment::Field(variant)))
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.open(1, CompoundShape::Plain, |inner| inner.serialize_seq(len))
    }

    #[inline]
    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.open(1, CompoundShape::Plain, |inner| inner.serialize_tuple(len))
    }

    #[inline]
    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.open(1, CompoundShape::Plain, |inner| inner.serialize_tuple_struct(name, len))
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        if len == 0 {
            // `serde_json` decodes it from a `Value` as a unit, which no derived type accepts.
            self.tracker.push(Segment::Field(variant));
            return Err(self.tracker.refuse(StrictRefusal::EmptyVariant));
        }
        // An object around an array.
        self.open(2, CompoundShape::Variant(variant), |inner| {
            inner.serialize_tuple_variant(name, index, variant, len)
        })
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.open(1, CompoundShape::Plain, |inner| inner.serialize_map(len))
    }

    #[inline]
    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeStruct, S::Error> {
        if name == RAW_VALUE {
            // Not a level of its own. Its text is checked later.
            return self.open(0, CompoundShape::Raw, |inner| inner.serialize_struct(name, len));
        }
        self.open(1, CompoundShape::Plain, |inner| inner.serialize_struct(name, len))
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        // An object around an object.
        self.open(2, CompoundShape::Variant(variant), |inner| {
            inner.serialize_struct_variant(name, index, variant, len)
        })
    }

    #[inline]
    fn collect_str<T: ?Sized + fmt::Display>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}
