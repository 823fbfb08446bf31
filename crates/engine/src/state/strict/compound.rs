//! Serializes the elements of sequences, maps and structs, and checks them.

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};

use super::keys::MapKeys;
use super::path::{PathTracker, Segment, StrictRefusal, key_segment};
use super::raw::checked_raw;
use super::{Role, StrictValue};

pub(super) struct Compound<'a, C> {
    pub(super) inner: C,
    pub(super) room: u8,
    pub(super) tracker: &'a PathTracker,
    /// The index of the next element.
    pub(super) next: usize,
    pub(super) shape: CompoundShape,
    pub(super) keys: MapKeys,
    /// The first field of a struct.
    pub(super) first: Option<&'static str>,
    pub(super) role: Role,
}

#[derive(Clone, Copy)]
pub(super) enum CompoundShape {
    Plain,
    Variant(&'static str),
    Raw,
}

impl<C> Compound<'_, C> {
    /// If `result` is an error, adds the segment and the enclosing variant to the path of the failure.
    #[inline]
    fn within<E>(&self, result: Result<(), E>, segment: impl FnOnce() -> Segment) -> Result<(), E> {
        if let Err(error) = result {
            self.tracker.push(segment());
            if let CompoundShape::Variant(variant) = self.shape {
                self.tracker.push(Segment::Field(variant));
            }
            return Err(error);
        }
        Ok(())
    }

    /// Returns an error if a field has the same name as the first field. The first field may be the tag of an enum or struct, and serde's derive
    /// macro does not compare its name with the names of the other fields.
    #[inline]
    fn field_once<E: serde::ser::Error>(&mut self, name: &'static str) -> Result<(), E> {
        match self.first {
            None => self.first = Some(name),
            Some(first) if first == name => {
                self.tracker.push(Segment::Field(name));
                return Err(self.tracker.refuse(StrictRefusal::SameKey));
            }
            Some(_) => {}
        }
        Ok(())
    }
}

macro_rules! element {
    ($trait:ident, $method:ident) => {
        impl<C: $trait> $trait for Compound<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            #[inline]
            fn $method<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), C::Error> {
                let guarded =
                    StrictValue { value, room: self.room, role: Role::Value, tracker: self.tracker };
                let result = self.inner.$method(&guarded);
                let index = self.next;
                self.next += 1;
                self.within(result, || Segment::Index(index))
            }

            #[inline]
            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        }
    };
}

element!(SerializeSeq, serialize_element);
element!(SerializeTuple, serialize_element);
element!(SerializeTupleStruct, serialize_field);
element!(SerializeTupleVariant, serialize_field);

impl<C: SerializeMap> SerializeMap for Compound<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    #[inline]
    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), C::Error> {
        // The encoder itself checks keys: it rejects keys other than text or finite numbers.
        let result = self.inner.serialize_key(key);
        self.within(result, || key_segment(key))?;
        if self.role != Role::Entries {
            self.keys.add_key(key);
        }
        Ok(())
    }

    #[inline]
    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), C::Error> {
        let guarded = StrictValue { value, room: self.room, role: Role::Value, tracker: self.tracker };
        let result = self.inner.serialize_value(&guarded);
        self.within(result, || Segment::UnknownKey)
    }

    #[inline]
    fn serialize_entry<K: ?Sized + Serialize, V: ?Sized + Serialize>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), C::Error> {
        let guarded = StrictValue { value, room: self.room, role: Role::Value, tracker: self.tracker };
        let result = self.inner.serialize_entry(key, &guarded);
        self.within(result, || key_segment(key))?;
        if self.role != Role::Entries {
            self.keys.add_key(key);
        }
        Ok(())
    }

    #[inline]
    fn end(self) -> Result<C::Ok, C::Error> {
        if let Some(key) = self.keys.repeated() {
            self.tracker.push(Segment::Key(key));
            return Err(self.tracker.refuse(StrictRefusal::SameKey));
        }
        self.inner.end()
    }
}

impl<C: SerializeStruct> SerializeStruct for Compound<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    #[inline]
    fn serialize_field<T: ?Sized + Serialize>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), C::Error> {
        if let CompoundShape::Raw = self.shape {
            let text = checked_raw(value, self.room, self.role);
            let text = text.map_err(|refusal| self.tracker.refuse(refusal))?;
            return self.inner.serialize_field(name, &text);
        }
        self.field_once(name)?;
        let guarded = StrictValue { value, room: self.room, role: Role::Value, tracker: self.tracker };
        let result = self.inner.serialize_field(name, &guarded);
        self.within(result, || Segment::Field(name))
    }

    fn skip_field(&mut self, name: &'static str) -> Result<(), C::Error> {
        self.inner.skip_field(name)
    }

    #[inline]
    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}

impl<C: SerializeStructVariant> SerializeStructVariant for Compound<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    #[inline]
    fn serialize_field<T: ?Sized + Serialize>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), C::Error> {
        let guarded = StrictValue { value, room: self.room, role: Role::Value, tracker: self.tracker };
        let result = self.inner.serialize_field(name, &guarded);
        self.within(result, || Segment::Field(name))
    }

    fn skip_field(&mut self, name: &'static str) -> Result<(), C::Error> {
        self.inner.skip_field(name)
    }

    #[inline]
    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}
