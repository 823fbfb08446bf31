//! The encoding of headers. A store that keeps bytes uses [`binary`].

// All encodings use one table of the fields of `RecordHeader`. The other items of this module are for the stores of this workspace.
//
// A layout only defines how it spells a field and which fields it omits. A new line in the table below adds a field to every layout that uses the
// table: `JsonHeader` for stores that keep text, `binary` for stores that keep bytes. Database stores have a column for each field of `Field::ALL`,
// so a new field also needs a migration.
//
// A new field must be an `Option`, or `false` if absent, because older headers must stay readable. A JSON reader ignores an unknown field. A binary
// reader rejects it, so a new field requires a newer binary format.

pub mod binary;
mod json;

use uuid::Uuid;

#[doc(hidden)]
pub use self::json::{JsonHeader, JsonLayout, ShortId};
use crate::clock::Timestamp;
use crate::id::{Epoch, ExecutorId, NodeName, RecordId, Seq, Visit};
use crate::record::{RecordHeader, RecordKind, RunStatus};

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(hidden)]
pub enum Value {
    /// A count or a checksum.
    Number(u64),
    /// A time.
    Time(Timestamp),
    /// The id of a record or an executor.
    Id(Uuid),
    /// Kind of the record.
    Kind(RecordKind),
    /// The status of the run.
    Status(RunStatus),
    /// The name of a node.
    Name(NodeName),
    /// A yes or no value.
    Flag(bool),
}

/// The kind of value that a field holds. A decoder uses it to read the right type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(hidden)]
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

/// A Rust type of a field.
trait FieldType: Sized {
    const SHAPE: Shape;
    const IS_OPTIONAL: bool = false;
    fn value(&self) -> Option<Value>;
    /// Converts a value to this type; `None` if the value has another type.
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
        #[doc(hidden)]
        pub enum Field {
            $($(#[$doc])* $field,)*
        }

        impl Field {
            /// All fields, in the order in which JSON lists them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$field),*];

            /// Returns the key of the field in a complete JSON header.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$field => $name,)*
                }
            }

            /// Returns the kind of value that the field holds.
            pub const fn shape(self) -> Shape {
                match self {
                    $(Self::$field => <$type as FieldType>::SHAPE,)*
                }
            }

            /// Returns whether a header may lack the field.
            pub const fn is_optional(self) -> bool {
                match self {
                    $(Self::$field => <$type as FieldType>::IS_OPTIONAL,)*
                }
            }
        }

        impl RecordHeader {
            /// Returns the value of a field; `None` if the header lacks the field.
            #[doc(hidden)]
            pub fn field(&self, field: Field) -> Option<Value> {
                match field {
                    $(Field::$field => self.$member.value(),)*
                }
            }

            /// Creates a header. Calls `read` for each field, in the order of [`Field::ALL`].
            ///
            /// # Errors
            ///
            /// Returns the first error of `read`. If the value of a field is invalid, returns the error that `wrong` creates for that field. A
            /// value is invalid if it has the wrong type, is missing although the field is required, or is a number that is too large.
            #[doc(hidden)]
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
    /// The status of the run after the record.
    Status, status: RunStatus, "status";
    /// The node that the record is about.
    Node, node: Option<NodeName>, "node";
    /// The visit of that node.
    Visit, visit: Option<Visit>, "visit";
    /// The number of times that executors have claimed the run.
    Epoch, epoch: Epoch, "epoch";
    /// Owner of the run after this record.
    Owner, owner: Option<ExecutorId>, "owner";
    /// The time at which the run is to be woken.
    WakeAt, wake_at: Option<Timestamp>, "wake_at";
    /// The time at which the writer made the record.
    At, at: Timestamp, "at";
    /// Whether the body also holds the full state.
    Base, base: bool, "base";
    /// The length of the body.
    Len, body_len: u32, "len";
    /// The checksum of the body.
    Crc, body_crc: u32, "crc";
}
