//! What JSON a question takes as its answer, as data: so an answer of the wrong kind is refused when it comes, in any
//! process, without the code that asked.

mod check;
mod explore;
mod probe;
mod stored;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

/// What JSON an answer may be.
///
/// # Guarantees
///
/// - **Never too strict.** JSON that `serde_json::from_str::<T>` takes, `Shape::of::<T>()` takes. It may take more: a rule
///   that a type checks in code of its own (an e-mail address, a number above seven) is not seen, and what a deserializer
///   written by hand takes is seen only as the kind of JSON it asks for.
///   The judgement is only as fine as the code of `T` is known: that of serde for the standard library and that of
///   `#[derive(Deserialize)]`, told by name. Should these names change, shapes take more, never less.
/// - **Readable for ever.** It is stored as JSON, see below, and a form of a later version reads as [`Shape::any`].
/// - Extra fields of an object are allowed.
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
/// | `{"object": {"amount": "u64", "note?": "text"}}` | an object with these fields, or a list of them |
///
/// A field that may be left out ends in `?`. The name of one that may not gets a `!` if it ends in `?` or `!` by itself.
///
/// # Examples
///
/// ```
/// use ferrata_core::ask::Shape;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Decision {
///     amount: u32,
///     note: Option<String>,
/// }
///
/// let shape = Shape::of::<Decision>();
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
pub struct Shape(Form);

impl Shape {
    /// Finds the shape of `T` by playing dummy values to its `Deserialize` and watching what it asks for.
    ///
    /// Nothing fails here: what cannot be found is taken as anything. So is what lies more than eight containers deep,
    /// earlier in very wide types. `T::deserialize` is called some times for each field, so it should have no effects.
    #[must_use]
    pub fn of<T: DeserializeOwned>() -> Self {
        Self::within::<T>(explore::PLACES)
    }

    fn within<T: DeserializeOwned>(places: usize) -> Self {
        let run = |dummy: &_, log: &_| {
            // Whether a value comes out does not matter; what was asked for stands in the log.
            drop(probe::play(dummy, log, |probe| T::deserialize(probe)));
        };
        Self(explore::explore(&run, places))
    }

    /// One of these texts.
    ///
    /// ```
    /// use ferrata_core::ask::Shape;
    ///
    /// let shape = Shape::choices(["approve", "reject"]);
    /// assert!(shape.check(r#""approve""#).is_ok());
    /// assert!(shape.check(r#""perhaps""#).is_err());
    /// assert_eq!(shape.to_string(), "one of: approve, reject");
    /// ```
    #[must_use]
    pub fn choices(texts: impl IntoIterator<Item: Into<String>>) -> Self {
        Self(Form::OneOf(texts.into_iter().map(Into::into).collect()))
    }

    /// Anything that is JSON.
    #[must_use]
    pub fn any() -> Self {
        Self(Form::Any)
    }

    /// Returns the texts to choose from, if the answer is one of some texts; otherwise none.
    pub fn options(&self) -> &[String] {
        match &self.0 {
            Form::OneOf(texts) | Form::Units(texts) => texts,
            _ => &[],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Any,
    Bool,
    Int(Int),
    Number,
    Text,
    Char,
    Bytes,
    Null,
    /// Texts, and nothing else.
    OneOf(Vec<String>),
    /// An enum of which no variant holds anything.
    Units(Vec<String>),
    /// An enum; a variant without content has `Null`.
    Variants(BTreeMap<String, Form>),
    Nullable(Box<Form>),
    List(Box<Form>),
    Tuple {
        forms: Vec<Form>,
        least: usize,
    },
    Map(Box<Form>),
    Object(BTreeMap<String, Field>),
}

impl Form {
    fn variants(forms: Vec<(String, Self)>) -> Self {
        if forms.iter().all(|(_, form)| *form == Self::Null) {
            return Self::Units(forms.into_iter().map(|(name, _)| name).collect());
        }
        Self::Variants(forms.into_iter().collect())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    form: Form,
    required: bool,
}

/// An integer type, for its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Int {
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

impl Int {
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

    fn is_wide(self) -> bool {
        matches!(self, Self::I128 | Self::U128)
    }

    /// Returns the least and the greatest.
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
