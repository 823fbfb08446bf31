//! Bodies to bytes and back. The format is JSON; `docs/format.md` lists every field.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::{Base, Body, Event};
use super::header::{Record, RecordKind};
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;

#[derive(Serialize)]
struct With<'a, T> {
    #[serde(flatten)]
    event: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<&'a Base>,
}

/// Only the base of a body, whatever else it holds.
#[derive(Deserialize)]
struct BaseOf {
    base: Option<Base>,
}

/// What a body of kind `Status` or `Signal` holds beside its base.
#[derive(Serialize, Deserialize)]
struct Change<T> {
    change: T,
}

#[derive(Serialize, Deserialize)]
struct Nothing {}

impl Event {
    /// Returns the kind of the record that says this.
    pub(crate) fn kind(&self) -> RecordKind {
        match self {
            Self::Start(_) => RecordKind::Start,
            Self::Node(_) => RecordKind::Node,
            Self::Attempt(_) => RecordKind::Attempt,
            Self::Intent(_) => RecordKind::Intent,
            Self::Step(_) => RecordKind::Step,
            Self::Status(_) => RecordKind::Status,
            Self::Signal(_) => RecordKind::Signal,
            Self::Claim(_) => RecordKind::Claim,
            Self::Release(_) => RecordKind::Release,
            Self::Edit(_) => RecordKind::Edit,
            Self::Base => RecordKind::Base,
        }
    }
}

/// Encodes a body.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if it cannot be expressed in JSON; what users give was checked before.
pub(crate) fn encode(event: &Event, base: Option<&Base>) -> Result<Bytes> {
    let bytes = match event {
        Event::Start(event) => serde_json::to_vec(&With { event, base }),
        // The hot path: without a base there is nothing to flatten.
        Event::Node(event) if base.is_none() => serde_json::to_vec(event),
        Event::Node(event) => serde_json::to_vec(&With { event, base }),
        Event::Attempt(event) => serde_json::to_vec(&With { event, base }),
        Event::Intent(event) => serde_json::to_vec(&With { event, base }),
        Event::Step(event) => serde_json::to_vec(&With { event, base }),
        Event::Edit(event) => serde_json::to_vec(&With { event, base }),
        Event::Status(change) => serde_json::to_vec(&With { event: &Change { change }, base }),
        Event::Signal(change) => serde_json::to_vec(&With { event: &Change { change }, base }),
        Event::Claim(event) => serde_json::to_vec(&With { event, base }),
        Event::Release(event) => serde_json::to_vec(&With { event, base }),
        Event::Base => serde_json::to_vec(&With { event: &Nothing {}, base }),
    };
    let refuse =
        |source| Error::new(ErrorKind::Invalid, "the record cannot be encoded as JSON").with_source(source);
    bytes.map(Bytes::from).map_err(refuse)
}

/// Decodes the body of a record whose checksum was verified.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] naming run and record, if the body is not what its kind says, or a base holds none.
pub(crate) fn decode(run: &RunKey, record: &Record) -> Result<Body> {
    fn read<T: DeserializeOwned>(run: &RunKey, record: &Record) -> Result<T> {
        serde_json::from_slice(&record.body).map_err(|source| broken(run, record, source))
    }
    let event = match record.header.kind {
        RecordKind::Start => Event::Start(read(run, record)?),
        RecordKind::Node => Event::Node(read(run, record)?),
        RecordKind::Attempt => Event::Attempt(read(run, record)?),
        RecordKind::Intent => Event::Intent(read(run, record)?),
        RecordKind::Step => Event::Step(read(run, record)?),
        RecordKind::Edit => Event::Edit(read(run, record)?),
        RecordKind::Status => Event::Status(read::<Change<_>>(run, record)?.change),
        RecordKind::Signal => Event::Signal(read::<Change<_>>(run, record)?.change),
        RecordKind::Claim => Event::Claim(read(run, record)?),
        RecordKind::Release => Event::Release(read(run, record)?),
        RecordKind::Base => Event::Base,
    };
    let base = if record.header.base { Some(base(run, record)?) } else { None };
    Ok(Body { event, base })
}

/// Decodes only the base of a record.
///
/// # Errors
///
/// As [`decode`].
pub(crate) fn base(run: &RunKey, record: &Record) -> Result<Base> {
    let body: BaseOf = serde_json::from_slice(&record.body).map_err(|source| broken(run, record, source))?;
    body.base.ok_or_else(|| {
        Error::new(
            ErrorKind::Corrupt,
            "the record is a base, but its body holds no state; restore the run from a backup",
        )
        .with_run(run)
        .with_seq(record.header.seq)
    })
}

fn broken(run: &RunKey, record: &Record, source: serde_json::Error) -> Error {
    let kind = record.header.kind;
    let message = format!("the body is not that of a record of kind {kind:?}; restore the run from a backup");
    Error::new(ErrorKind::Corrupt, message).with_run(run).with_seq(record.header.seq).with_source(source)
}

/// Encodes a value of our own as JSON text.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if it cannot be expressed in JSON.
pub(crate) fn to_raw<T: Serialize>(value: &T) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(value).map_err(|source| {
        Error::new(ErrorKind::Invalid, "the value cannot be encoded as JSON").with_source(source)
    })
}
