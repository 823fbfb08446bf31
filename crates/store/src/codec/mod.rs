//! How stores write headers: one table of the fields of [`RecordHeader`], which every layout walks.
//!
//! This module defines the fields of a header and their values; a layout only defines how it spells a field and which fields it omits. A line in
//! the table below adds a field to every layout that walks the table: [`JsonHeader`] for stores that keep text, [`binary`] for those that keep
//! bytes. Database tables walk [`Field::ALL`] with a column for each, so a new field needs a migration, too.
//!
//! A new field must be an `Option`, or `false` if absent, because older headers must stay readable. A JSON reader ignores an unknown field. A
//! binary reader rejects it, so a new field requires a newer binary format.

pub mod binary;
mod json;

use uuid::Uuid;

pub use self::json::{JsonHeader, JsonLayout, ShortId};
use crate::clock::Timestamp;
use crate::id::{Epoch, ExecutorId, NodeName, RecordId, Seq, Visit};
use crate::record::{RecordHeader, RecordKind, RunStatus};

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A count or a checksum.
    Number(u64),
    /// A moment.
    Time(Timestamp),
    /// The id of a record or an executor.
    Id(Uuid),
    /// Kind of the record.
    Kind(RecordKind),
    /// How the run stands.
    Status(RunStatus),
    /// The name of a node.
    Name(NodeName),
    /// Whether something is so.
    Flag(bool),
}

/// Which kind of value a field holds, so that a reader knows what to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// [`Value::Number`].
    Number,
    /// [`Value::Time`].
    Time,
    /// [`Value::Id`].
    Id,
    /// [`Value::Kind`].
    Kind,
    /// [`Value::Status`].
    Status,
    /// [`Value::Name`].
    Name,
    /// [`Value::Flag`].
    Flag,
}

/// A type that a field has.
trait FieldType: Sized {
    const SHAPE: Shape;
    const IS_OPTIONAL: bool = false;
    fn value(&self) -> Option<Value>;
    /// `None` if the field does not hold such a value.
    fn held(value: Option<Value>) -> Option<Self>;
}

impl<T: FieldType> FieldType for Option<T> {
    const SHAPE: Shape = T::SHAPE;
    const IS_OPTIONAL: bool = true;

    fn value(&self) -> Option<Value> {
        self.as_ref().and_then(T::value)
    }

    fn held(value: Option<Value>) -> Option<Self> {
        match value {
            None => Some(None),
            some => T::held(some).map(Some),
        }
    }
}

macro_rules! held {
    ($($type:ty, $shape:ident, $to:expr, $from:expr;)*) => {
        $(impl FieldType for $type {
            const SHAPE: Shape = Shape::$shape;

            fn value(&self) -> Option<Value> {
                let to: fn(&Self) -> _ = $to;
                Some(Value::$shape(to(self)))
            }

            fn held(value: Option<Value>) -> Option<Self> {
                let from: fn(_) -> Option<Self> = $from;
                match value {
                    Some(Value::$shape(value)) => from(value),
                    _ => None,
                }
            }
        })*
    };
}

held! {
    u16, Number, |number| u64::from(*number), |number: u64| number.try_into().ok();
    u32, Number, |number| u64::from(*number), |number: u64| number.try_into().ok();
    Seq, Number, |seq| seq.get(), |number| Some(Self::new(number));
    Epoch, Number, |epoch| u64::from(epoch.get()), |number: u64| number.try_into().ok().map(Self::new);
    Visit, Number, |visit| u64::from(visit.get()), |number: u64| number.try_into().ok().map(Self::new);
    RecordId, Id, |id| *id.as_uuid(), |id| Some(Self::from_uuid(id));
    ExecutorId, Id, |id| *id.as_uuid(), |id| Some(Self::from_uuid(id));
    Timestamp, Time, |at| *at, Some;
    RecordKind, Kind, |kind| *kind, Some;
    RunStatus, Status, |status| *status, Some;
    NodeName, Name, Clone::clone, Some;
    bool, Flag, |is| *is, Some;
}

macro_rules! fields {
    ($($(#[$doc:meta])* $field:ident, $member:ident: $type:ty, $name:literal;)*) => {
        /// A field of a [`RecordHeader`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Field {
            $($(#[$doc])* $field,)*
        }

        impl Field {
            /// Every field, in the order in which JSON names them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$field),*];

            /// Returns the key of the field where a header is spelled out as JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$field => $name,)*
                }
            }

            /// Returns the kind of value that it holds.
            pub const fn shape(self) -> Shape {
                match self {
                    $(Self::$field => <$type as FieldType>::SHAPE,)*
                }
            }

            /// Returns whether a header may lack it.
            pub const fn is_optional(self) -> bool {
                match self {
                    $(Self::$field => <$type as FieldType>::IS_OPTIONAL,)*
                }
            }
        }

        impl RecordHeader {
            /// Returns what a field holds; `None` if the header lacks it.
            pub fn field(&self, field: Field) -> Option<Value> {
                match field {
                    $(Field::$field => self.$member.value(),)*
                }
            }

            /// Makes a header of its fields, asked for in the order of [`Field::ALL`].
            ///
            /// # Errors
            ///
            /// That of `read`, or what `wrong` makes of a field that does not hold what it was given: another kind of value, none
            /// where there must be one, or a number that is too large.
            pub fn from_fields<E>(
                mut read: impl FnMut(Field) -> Result<Option<Value>, E>,
                wrong: impl Fn(Field) -> E,
            ) -> Result<Self, E> {
                Ok(Self {
                    $($member: FieldType::held(read(Field::$field)?).ok_or_else(|| wrong(Field::$field))?,)*
                })
            }
        }
    };
}

fields! {
    /// The format version of header and body.
    Format, format: u16, "v";
    /// The position in the run's log.
    Seq, seq: Seq, "seq";
    /// The record's id.
    Id, id: RecordId, "id";
    /// The id of the record before it.
    Prev, prev: Option<RecordId>, "prev";
    /// Kind of the record.
    Kind, kind: RecordKind, "kind";
    /// The run's status after it.
    Status, status: RunStatus, "status";
    /// The node it is about.
    Node, node: Option<NodeName>, "node";
    /// The visit of that node.
    Visit, visit: Option<Visit>, "visit";
    /// How often the run has been claimed.
    Epoch, epoch: Epoch, "epoch";
    /// Owner of the run after this record.
    Owner, owner: Option<ExecutorId>, "owner";
    /// When the run is to be woken.
    WakeAt, wake_at: Option<Timestamp>, "wake_at";
    /// When the writer made it.
    At, at: Timestamp, "at";
    /// Whether the body also holds the full state.
    Base, base: bool, "base";
    /// The length of the body.
    Len, body_len: u32, "len";
    /// The checksum of the body.
    Crc, body_crc: u32, "crc";
}
