//! Headers as JSON objects: complete, or without the fields that the reader knows from elsewhere.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeSliceError, Engine as _};
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::{Field, Shape, Value};
use crate::clock::Timestamp;
use crate::record::RecordHeader;
use crate::text::TextAs;

/// The number of fields of a header.
const COUNT: usize = Field::ALL.len();

/// A layout of headers as JSON objects.
pub trait JsonLayout {
    /// If true, ids have 22 characters of base64 ([`ShortId`]); if false, the 36 characters of a UUID.
    const SHORT_IDS: bool;

    /// Returns the key of a field; `None` if the layout omits it, because the reader knows it from elsewhere.
    fn key(field: Field) -> Option<&'static str> {
        Some(field.name())
    }
}

/// The header fields of a JSON object. The object omits each field whose value the reader assumes anyway.
///
/// A layout chooses the values that reader and writer assume; both must assume the same. If a header lacks a field for which a value is assumed,
/// the layout writes `null`. Readers ignore unknown keys, so an older version can read the object of a newer version.
///
/// ```
/// use ferrata_store::codec::{Field, JsonHeader, JsonLayout, Value};
/// use ferrata_store::{RecordHeader, RecordKind};
///
/// /// Spells out everything but the kind of most records.
/// struct Mine;
///
/// impl JsonLayout for Mine {
///     const SHORT_IDS: bool = true;
/// }
///
/// fn assumed(field: Field) -> Option<Value> {
///     (field == Field::Kind).then_some(Value::Kind(RecordKind::Node))
/// }
///
/// fn read(said: JsonHeader<Mine>) -> Result<RecordHeader, Field> {
///     said.header(assumed)
/// }
/// ```
pub struct JsonHeader<L> {
    /// The value of each field that the object has. The inner `None` stands for `null`.
    said: [Option<Option<Value>>; COUNT],
    layout: PhantomData<L>,
}

impl<L: JsonLayout> JsonHeader<L> {
    /// Keeps the fields of a header that differ from the assumed values. Where `assumed` returns `None`, the reader assumes that the field is
    /// absent.
    pub fn of(header: &RecordHeader, assumed: impl Fn(Field) -> Option<Value>) -> Self {
        let mut said = [const { None }; COUNT];
        for (field, said) in Field::ALL.into_iter().zip(&mut said) {
            let now = header.field(field);
            *said = (L::key(field).is_some() && now != assumed(field)).then_some(now);
        }
        Self { said, layout: PhantomData }
    }

    /// Returns the value of a field, if the object has one.
    pub fn get(&self, field: Field) -> Option<&Value> {
        self.said[field as usize].as_ref()?.as_ref()
    }

    /// Sets the value of a field; `None` marks the field as absent.
    pub fn set(&mut self, field: Field, value: Option<Value>) {
        self.said[field as usize] = value.map(Some);
    }

    /// Creates the header. Fields that the object lacks get their assumed values.
    ///
    /// # Errors
    ///
    /// The field that is missing or has an invalid value.
    pub fn header(self, assumed: impl Fn(Field) -> Option<Value>) -> Result<RecordHeader, Field> {
        let mut said = self.said;
        let read = |field: Field| Ok(said[field as usize].take().unwrap_or_else(|| assumed(field)));
        RecordHeader::from_fields(read, |field| field)
    }
}

impl<L> fmt::Debug for JsonHeader<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = Field::ALL.into_iter().zip(&self.said);
        f.debug_map().entries(said.filter_map(|(field, said)| Some((field.name(), said.as_ref()?)))).finish()
    }
}

impl<L: JsonLayout> Serialize for JsonHeader<L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (field, said) in Field::ALL.into_iter().zip(&self.said) {
            let (Some(key), Some(said)) = (L::key(field), said) else { continue };
            match said {
                None => map.serialize_entry(key, &())?,
                Some(Value::Number(number)) => map.serialize_entry(key, number)?,
                Some(Value::Time(at)) => map.serialize_entry(key, at)?,
                Some(Value::Id(id)) if L::SHORT_IDS => map.serialize_entry(key, &ShortId(*id.as_bytes()))?,
                Some(Value::Id(id)) => map.serialize_entry(key, id)?,
                Some(Value::Kind(kind)) => map.serialize_entry(key, kind)?,
                Some(Value::Status(status)) => map.serialize_entry(key, status)?,
                Some(Value::Name(name)) => map.serialize_entry(key, name)?,
                Some(Value::Flag(is)) => map.serialize_entry(key, is)?,
            }
        }
        map.end()
    }
}

impl<'de, L: JsonLayout> Deserialize<'de> for JsonHeader<L> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<L>(PhantomData<L>);

impl<'de, L: JsonLayout> Visitor<'de> for ObjectVisitor<L> {
    type Value = JsonHeader<L>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the header of a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut said = [const { None }; COUNT];
        while let Some(key) = map.next_key::<BorrowedText<'_>>()? {
            let Some(field) = Field::ALL.into_iter().find(|field| L::key(*field) == Some(&*key.0)) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if said[field as usize].is_some() {
                return Err(A::Error::custom(format_args!("duplicate field `{}`", key.0)));
            }
            said[field as usize] = Some(map.next_value_seed(JsonField { field, short_ids: L::SHORT_IDS })?);
        }
        Ok(JsonHeader { said, layout: PhantomData })
    }
}

/// Text that borrows from its input if possible.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads the value of a field.
struct JsonField {
    field: Field,
    short_ids: bool,
}

impl<'de> DeserializeSeed<'de> for JsonField {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let from = deserializer;
        Ok(match self.field.shape() {
            Shape::Number => Option::<u64>::deserialize(from)?.map(Value::Number),
            Shape::Time => Option::<Timestamp>::deserialize(from)?.map(Value::Time),
            Shape::Id if self.short_ids => {
                Option::<ShortId<16>>::deserialize(from)?.map(|id| Value::Id(Uuid::from_bytes(id.0)))
            }
            Shape::Id => Option::<Uuid>::deserialize(from)?.map(Value::Id),
            Shape::Kind => Option::deserialize(from)?.map(Value::Kind),
            Shape::Status => Option::deserialize(from)?.map(Value::Status),
            Shape::Name => Option::deserialize(from)?.map(Value::Name),
            Shape::Flag => Option::deserialize(from)?.map(Value::Flag),
        })
    }
}

/// The bytes of an id, or of a value derived from an id, in base64. The 16 bytes of a UUID have 22 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortId<const N: usize>(pub [u8; N]);

impl<const N: usize> Serialize for ShortId<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<const N: usize> ShortId<N> {
    fn read(text: &str) -> Result<Self, String> {
        let mut bytes = [0; N];
        match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(length) if length == N => Ok(Self(bytes)),
            Ok(_) | Err(DecodeSliceError::OutputSliceTooSmall) => Err(format!("expected {N} bytes")),
            Err(DecodeSliceError::DecodeError(error)) => Err(error.to_string()),
        }
    }
}

impl<'de, const N: usize> Deserialize<'de> for ShortId<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextAs(Self::read))
    }
}

/// The complete layout: every field under its own name. An absent field is omitted.
enum SpelledOut {}

impl JsonLayout for SpelledOut {
    const SHORT_IDS: bool = false;
}

/// The assumed value of each field in the complete layout: a missing key means an absent field, and a missing `base` means `false`.
fn nothing(field: Field) -> Option<Value> {
    (field.shape() == Shape::Flag).then_some(Value::Flag(false))
}

impl Serialize for RecordHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        JsonHeader::<SpelledOut>::of(self, nothing).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RecordHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let said = JsonHeader::<SpelledOut>::deserialize(deserializer)?;
        said.header(nothing)
            .map_err(|field| D::Error::custom(format_args!("missing or wrong field `{}`", field.name())))
    }
}
