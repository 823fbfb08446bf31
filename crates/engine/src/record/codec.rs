//! Encodes and decodes bodies. The format is JSON; `docs/format.md` lists every field.

use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::{Base, Body, Event, NodesDone};
use super::write;
use super::{Record, RecordKind};
use crate::compact::pool;
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::state::text::on_desk;
use crate::state::{Change as Folding, Patch};

/// Extra capacity for an event next to a base: more than most events need.
const EVENT: usize = 4 * 1024;

#[derive(Serialize)]
struct With<'a, T> {
    #[serde(flatten)]
    event: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<&'a Base>,
}

/// Only the base of a body of any kind.
#[derive(Deserialize)]
struct BaseOf {
    base: Option<Base>,
}

/// The fields of a body of kind `Status` or `Signal` next to its base.
#[derive(Serialize, Deserialize)]
struct Change<T> {
    change: T,
}

#[derive(Serialize, Deserialize)]
struct Nothing {}

impl Event {
    /// Returns the record kind of this event.
    pub fn kind(&self) -> RecordKind {
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
/// [`ErrorKind::Invalid`] if the body cannot be expressed in JSON. Values from users were checked before.
pub fn encode(event: &Event, base: Option<&Base>) -> Result<Bytes> {
    let refuse =
        |source| Error::new(ErrorKind::Invalid, "cannot encode the record as JSON").with_source(source);
    let Some(base) = base else {
        return on_desk(|desk| fill(event, None, desk).map(|()| pool::share(desk))).map_err(refuse);
    };
    // The size may be that of the whole state, which is copied only once, to its final location.
    let mut body = Vec::with_capacity(base.state.get().len() + base.machine.get().len() + EVENT);
    fill(event, Some(base), &mut body).map_err(refuse)?;
    Ok(body.into_boxed_slice().into())
}

fn fill(event: &Event, base: Option<&Base>, body: &mut Vec<u8>) -> serde_json::Result<()> {
    match event {
        Event::Node(event) => write::nodes(event, base, body),
        Event::Start(event) => with(event, base, body),
        Event::Attempt(event) => with(event, base, body),
        Event::Intent(event) => with(event, base, body),
        Event::Step(event) => with(event, base, body),
        Event::Edit(event) => with(event, base, body),
        Event::Status(change) => with(&Change { change }, base, body),
        Event::Signal(change) => with(&Change { change }, base, body),
        Event::Claim(event) => with(event, base, body),
        Event::Release(event) => with(event, base, body),
        Event::Base => with(&Nothing {}, base, body),
    }
}

fn with<T: Serialize>(event: &T, base: Option<&Base>, body: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json::to_writer(body, &With { event, base })
}

/// Decodes the body of a record whose checksum was verified.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`], with run and record, if the body does not match its kind, or a base lacks its state.
pub fn decode(run: &RunKey, record: &Record) -> Result<Body> {
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
        kind => {
            let message = format!("cannot read records of kind `{kind:?}`; upgrade this process");
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_run(run)
                .with_seq(record.header.seq));
        }
    };
    let base = if record.header.base { Some(base(run, record)?) } else { None };
    Ok(Body { event, base })
}

/// Decodes the body of a record whose checksum was verified, for a fold. Returns the state change of nodes next to the event, whose own patch is
/// empty. The text of the change is parsed once; [`decode`] leaves it unparsed.
///
/// # Errors
///
/// Returns the errors of [`decode`], and an error if the change is not a list of operations.
pub(crate) fn decode_to_fold<'a>(run: &RunKey, record: &'a Record) -> Result<(Body, Vec<Folding<'a>>)> {
    if record.header.kind != RecordKind::Node {
        return Ok((decode(run, record)?, Vec::new()));
    }
    let NodesDone { done, patch: changes } = read(run, record)?;
    let event = Event::Node(NodesDone { done, patch: Patch::default() });
    let base = if record.header.base { Some(base(run, record)?) } else { None };
    Ok((Body { event, base }, changes))
}

/// Decodes only the base of a record.
///
/// # Errors
///
/// Returns the errors of [`decode`].
pub fn base(run: &RunKey, record: &Record) -> Result<Base> {
    let body: BaseOf = read(run, record)?;
    body.base.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "the record is a base without a state; restore the run from a backup")
            .with_run(run)
            .with_seq(record.header.seq)
    })
}

/// Returns the body of a record as text.
///
/// # Errors
///
/// - [`ErrorKind::Unsupported`] if the body is in the envelope of an `EnvelopeStore` that this process does not use.
/// - [`ErrorKind::Corrupt`] if the body is not UTF-8.
pub fn text<'a>(run: &RunKey, record: &'a Record) -> Result<&'a str> {
    std::str::from_utf8(&record.body).map_err(|source| broken(run, record, serde_json::Error::custom(source)))
}

fn read<'a, T: Deserialize<'a>>(run: &RunKey, record: &'a Record) -> Result<T> {
    // Validates the whole text once. A reader of bytes would validate each string in it again.
    serde_json::from_str(text(run, record)?).map_err(|source| broken(run, record, source))
}

fn broken(run: &RunKey, record: &Record, source: serde_json::Error) -> Error {
    let kind = record.header.kind;
    let (failed, message) = match record.body.first() {
        // The first byte of an `EnvelopeStore`'s envelope. No JSON starts with it.
        Some(0xFE) => (
            ErrorKind::Unsupported,
            "the record is compressed or encrypted; wrap this process's store in an `EnvelopeStore`"
                .to_owned(),
        ),
        _ => (
            ErrorKind::Corrupt,
            format!("cannot read the body of a record of kind `{kind:?}`; restore the run from a backup"),
        ),
    };
    Error::new(failed, message).with_run(run).with_seq(record.header.seq).with_source(source)
}

/// Encodes a value of the library as JSON text.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if the value cannot be expressed in JSON.
pub fn to_raw<T: Serialize>(value: &T) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(value).map_err(|source| {
        Error::new(ErrorKind::Invalid, "cannot encode the value as JSON").with_source(source)
    })
}
