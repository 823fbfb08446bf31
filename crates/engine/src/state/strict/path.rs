//! The path to the value at which an encoding failed. The path is built only after the failure.

use std::cell::RefCell;
use std::fmt::Write as _;

use serde::Serialize;

use super::MAX_DEPTH;
use crate::error::{Error, ErrorKind};

/// The subject of an encoding, for the first words of an error.
#[derive(Clone, Copy)]
pub(super) enum EncodingSubject<'a> {
    Value,
    Channel(&'a str),
    State,
}

/// The reason to reject a value.
#[derive(Clone, Copy)]
pub(super) enum StrictRefusal {
    NotANumber,
    Infinite,
    TooWide,
    TooDeep,
    BadRaw,
    NullInSome,
    EmptyVariant,
    SameKey,
}

pub(super) enum Segment {
    Field(&'static str),
    Index(usize),
    Key(String),
    UnknownKey,
}

/// Collects the reason and, while the error propagates outwards, the path. A successful encoding tracks nothing.
#[derive(Default)]
pub(super) struct PathTracker {
    refusal: RefCell<Option<StrictRefusal>>,
    /// The segments of the path, with the innermost first.
    path: RefCell<Vec<Segment>>,
}

impl PathTracker {
    #[cold]
    pub(super) fn refuse<E: serde::ser::Error>(&self, refusal: StrictRefusal) -> E {
        *self.refusal.borrow_mut() = Some(refusal);
        E::custom("refused")
    }

    /// Adds a segment to the path of a failure. The function is separate so that a successful encoding does not contain its code.
    #[cold]
    pub(super) fn push(&self, segment: Segment) {
        self.path.borrow_mut().push(segment);
    }

    pub(super) fn into_error(self, subject: EncodingSubject<'_>, source: serde_json::Error) -> Error {
        let mut path = self.path.into_inner();
        let mut place = match subject {
            EncodingSubject::Value => "value".to_owned(),
            EncodingSubject::Channel(name) => format!("channel \"{name}\""),
            EncodingSubject::State => match path.pop() {
                Some(Segment::Field(name)) => format!("channel \"{name}\""),
                Some(Segment::Key(name)) => format!("channel \"{name}\""),
                _ => "state".to_owned(),
            },
        };
        if !path.is_empty() && !matches!(subject, EncodingSubject::Value) {
            place.push_str(", at ");
        }
        for segment in path.iter().rev() {
            // Writing to a `String` cannot fail.
            let _ = match segment {
                Segment::Field(name) => write!(place, ".{name}"),
                Segment::Index(index) => write!(place, "[{index}]"),
                Segment::Key(key) => write!(place, "[{key:?}]"),
                Segment::UnknownKey => write!(place, "[?]"),
            };
        }
        let why = match self.refusal.into_inner() {
            Some(StrictRefusal::NotANumber) => "NaN cannot be stored in JSON; use an Option and store None",
            Some(StrictRefusal::Infinite) => {
                "an infinity cannot be stored in JSON; use an Option, or a large finite number"
            }
            Some(StrictRefusal::TooWide) => "an integer beyond 64 bits cannot be read back; store it as text",
            Some(StrictRefusal::TooDeep) => {
                let message = format!(
                    "{place}: a value nested deeper than {MAX_DEPTH} levels cannot be read back; flatten it"
                );
                return Error::new(ErrorKind::Invalid, message);
            }
            Some(StrictRefusal::BadRaw) => "the raw JSON text cannot be read back; store it as a string",
            Some(StrictRefusal::NullInSome) => {
                "a Some that is written as null would be read back as None; use an enum with a variant for each case, \
                 or a bool for Some(())"
            }
            Some(StrictRefusal::EmptyVariant) => {
                "a variant with empty parentheses cannot be read back; declare it without them"
            }
            Some(StrictRefusal::SameKey) => {
                "two entries have this key in JSON, so at most one would be read back; make the keys differ, or rename the field or tag"
            }
            None => {
                let message = format!(
                    "{place}: cannot be written as JSON ({source}); map keys must be text, and `Serialize` must succeed"
                );
                return Error::new(ErrorKind::Invalid, message).with_source(source);
            }
        };
        Error::new(ErrorKind::Invalid, format!("{place}: {why}"))
    }
}

/// The text of a map key for a path.
pub(super) fn key_segment<K: ?Sized + Serialize>(key: &K) -> Segment {
    match serde_json::to_value(key) {
        Ok(serde_json::Value::String(text)) => Segment::Key(text),
        Ok(other) => Segment::Key(other.to_string()),
        Err(_) => Segment::UnknownKey,
    }
}
