//! Shapes, which describe as data what JSON a question accepts as its answer. With a shape, any process can reject an invalid answer without the code
//! that asked.

mod build;
mod check;
mod compare;
mod of;
mod schema;
mod stored;
#[cfg(test)]
mod tests;
mod text;
mod types;

use std::collections::BTreeMap;

pub use of::{AnswerShape, Shapes};

/// A description of the JSON that an answer may have.
///
/// A type describes its shape by implementing [`AnswerShape`], usually with `#[derive(AnswerShape)]`. [`Shape::of`] returns the shape of a type. With
/// the other functions, you build a shape by hand.
///
/// # Guarantees
///
/// - **As strict as the type, if only the type decides.** A derived type decodes every value that [`check`](Self::check) accepts, and `check` accepts
///   every value that such a type encodes. `check` accepts more in three cases: for a rule in the type's own code (a number above seven), for the
///   keys of a map, and for deep parts of a recursive type.
/// - **Readable forever.** The shape is stored as JSON, see below. A form of a later version decodes as [`Shape::any`].
///
/// # Stored form
///
/// A text, or an object with one key:
///
/// | JSON | takes |
/// |---|---|
/// | `"any"` | everything; also what every unknown form reads as |
/// | `"bool"`, `"null"`, `"text"`, `"number"` | that |
/// | `"char"` | a text of one character |
/// | `"bytes"` | a list or a text |
/// | `"i8"` to `"i128"`, `"u8"` to `"u128"` | an integer of that range |
/// | `{"one_of": ["a", "b"]}` | one of these texts |
/// | `{"variants": ["a", "b"]}` | one of these texts, or `{"a": null}` |
/// | `{"variants": {"a": null, "b": "text"}}` | `"a"`, `{"a": null}` or `{"b": …}` |
/// | `{"nullable": shape}` | null, or that |
/// | `{"list": shape}` | a list of that |
/// | `{"tuple": [shape, …]}` | a list with these elements |
/// | `{"tuple": [shape, …], "least": 1}` | the same, of which the later may be left out |
/// | `{"map": shape}` | an object whose values are that |
/// | `{"object": {"amount": "u64", "note?": "text"}}` | an object with these fields, and any other |
/// | `{"object": {"amount": "u64"}, "closed": true}` | an object with these fields and no other |
/// | `{"tagged": {"kind": {"card": shape, "cash": null}}}` | an object whose `kind` is one of these texts, and whose other fields are of the shape there |
/// | `{"any_of": [shape, …]}` | what one of these takes |
///
/// The name of an optional field is stored with a `?` at its end. If the name of a required field itself ends in `?` or `!`, it is stored with an
/// extra `!` at its end.
///
/// # Examples
///
/// ```
/// use ferrata_core::ask::Shape;
///
/// let shape = Shape::object([("amount", Shape::of::<u32>()), ("note?", Shape::of::<Option<String>>())]);
/// assert!(shape.check(r#"{"amount": 7}"#).is_ok());
/// assert_eq!(
///     shape.check(r#"{"amount": "seven"}"#),
///     Err("at /amount: expected an integer from 0, found text".to_owned())
/// );
/// assert_eq!(
///     serde_json::to_string(&shape)?,
///     r#"{"object":{"amount":"u32","note?":{"nullable":"text"}}}"#
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(ShapeForm);

#[derive(Clone, Debug, PartialEq, Eq)]
enum ShapeForm {
    Any,
    Bool,
    Int(IntegerType),
    Number,
    Text,
    Char,
    Bytes,
    Null,
    /// The answer is one of these texts.
    OneOf(Vec<String>),
    /// The answer is an enum in which no variant has content.
    Units(Vec<String>),
    /// The answer is an enum. A variant without content has the form `Null`.
    Variants(BTreeMap<String, ShapeForm>),
    Nullable(Box<ShapeForm>),
    List(Box<ShapeForm>),
    Tuple {
        forms: Vec<ShapeForm>,
        least: usize,
    },
    Map(Box<ShapeForm>),
    Object {
        fields: BTreeMap<String, ShapeField>,
        /// Whether the object rejects other fields.
        closed: bool,
    },
    /// The answer is an object whose field `tag` names a variant. Its other fields are the fields of this variant. A variant without content has the
    /// form `Null`.
    Tagged {
        tag: String,
        variants: BTreeMap<String, ShapeForm>,
    },
    AnyOf(Vec<ShapeForm>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ShapeField {
    form: ShapeForm,
    required: bool,
}

/// An integer type, for its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IntegerType {
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    U128,
}

impl IntegerType {
    const ALL: [(Self, &'static str); 10] = [
        (Self::I8, "i8"),
        (Self::I16, "i16"),
        (Self::I32, "i32"),
        (Self::I64, "i64"),
        (Self::I128, "i128"),
        (Self::U8, "u8"),
        (Self::U16, "u16"),
        (Self::U32, "u32"),
        (Self::U64, "u64"),
        (Self::U128, "u128"),
    ];

    /// Returns the smallest and the largest value.
    fn range(self) -> (i128, u128) {
        match self {
            Self::I8 => (i8::MIN.into(), 0x7f),
            Self::I16 => (i16::MIN.into(), 0x7fff),
            Self::I32 => (i32::MIN.into(), 0x7fff_ffff),
            Self::I64 => (i64::MIN.into(), i64::MAX.unsigned_abs().into()),
            Self::I128 => (i128::MIN, i128::MAX.unsigned_abs()),
            Self::U8 => (0, u8::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
            Self::U128 => (0, u128::MAX),
        }
    }
}
