//! Encodes and decodes the bodies of records. The format is JSON. The page `docs/reference/format.md` lists every field.

use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::{NodesDone, RecordBase, RecordBody, RecordEvent};
use super::write;
use super::{Record, RecordKind};
use crate::compact::pool;
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::state::text::on_desk;
use crate::state::{FoldedChange as Folding, Patch};

/// The extra capacity for an event in a body with a base. It is more than most events need.
const EVENT: usize = 4 * 1024;

#[derive(Serialize)]
struct EventWithBase<'a, T> {
    #[serde(flatten)]
    event: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<&'a RecordBase>,
}

/// A body of any kind. Only its base is decoded.
#[derive(Deserialize)]
struct BaseOf {
    base: Option<RecordBase>,
}

/// The fields of a body of kind `Status` or `Signal` next to its base.
#[derive(Serialize, Deserialize)]
struct ChangeBody<T> {
    change: T,
}

#[derive(Serialize, Deserialize)]
struct EmptyEvent {}

impl RecordEvent {
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
/// Returns [`ErrorKind::Invalid`] if the body cannot be expressed in JSON. Values from users are checked earlier.
pub fn encode(event: &RecordEvent, base: Option<&RecordBase>) -> Result<Bytes> {
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

fn fill(event: &RecordEvent, base: Option<&RecordBase>, body: &mut Vec<u8>) -> serde_json::Result<()> {
    match event {
        RecordEvent::Node(event) => write::nodes(event, base, body),
        RecordEvent::Start(event) => with(event, base, body),
        RecordEvent::Attempt(event) => with(event, base, body),
        RecordEvent::Intent(event) => with(event, base, body),
        RecordEvent::Step(event) => with(event, base, body),
        RecordEvent::Edit(event) => with(event, base, body),
        RecordEvent::Status(change) => with(&ChangeBody { change }, base, body),
        RecordEvent::Signal(change) => with(&ChangeBody { change }, base, body),
        RecordEvent::Claim(event) => with(event, base, body),
        RecordEvent::Release(event) => with(event, base, body),
        RecordEvent::Base => with(&EmptyEvent {}, base, body),
    }
}

fn with<T: Serialize>(event: &T, base: Option<&RecordBase>, body: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json::to_writer(body, &EventWithBase { event, base })
}

/// Decodes the body of a record. The caller has verified the checksum of the record.
///
/// # Errors
///
/// Returns [`ErrorKind::Corrupt`] with run and record, if the body does not match its kind, or a base lacks its state.
pub fn decode(run: &RunKey, record: &Record) -> Result<RecordBody> {
    let event = match record.header.kind {
        RecordKind::Start => RecordEvent::Start(read(run, record)?),
        RecordKind::Node => RecordEvent::Node(read(run, record)?),
        RecordKind::Attempt => RecordEvent::Attempt(read(run, record)?),
        RecordKind::Intent => RecordEvent::Intent(read(run, record)?),
        RecordKind::Step => RecordEvent::Step(read(run, record)?),
        RecordKind::Edit => RecordEvent::Edit(read(run, record)?),
        RecordKind::Status => RecordEvent::Status(read::<ChangeBody<_>>(run, record)?.change),
        RecordKind::Signal => RecordEvent::Signal(read::<ChangeBody<_>>(run, record)?.change),
        RecordKind::Claim => RecordEvent::Claim(read(run, record)?),
        RecordKind::Release => RecordEvent::Release(read(run, record)?),
        RecordKind::Base => RecordEvent::Base,
        kind => {
            let message = format!("cannot read records of kind `{kind:?}`; upgrade this process");
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_run(run)
                .with_seq(record.header.seq));
        }
    };
    let base = if record.header.base { Some(base(run, record)?) } else { None };
    Ok(RecordBody { event, base })
}

/// Decodes the body of a record for a replay. The caller has verified the checksum. The state change of ended nodes is returned separately in parsed
/// form, and the patch in the event is empty. [`decode`] does not parse the change.
///
/// # Errors
///
/// Returns the errors of [`decode`], and an error if the change is not a list of operations.
pub(crate) fn decode_to_fold<'a>(run: &RunKey, record: &'a Record) -> Result<(RecordBody, Vec<Folding<'a>>)> {
    if record.header.kind != RecordKind::Node {
        return Ok((decode(run, record)?, Vec::new()));
    }
    let NodesDone { done, patch: changes } = read(run, record)?;
    let event = RecordEvent::Node(NodesDone { done, patch: Patch::default() });
    let base = if record.header.base { Some(base(run, record)?) } else { None };
    Ok((RecordBody { event, base }, changes))
}

/// Decodes only the base of a record.
///
/// # Errors
///
/// Returns the errors of [`decode`].
pub fn base(run: &RunKey, record: &Record) -> Result<RecordBase> {
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
/// - [`ErrorKind::Unsupported`] if an `EnvelopeStore` has compressed or encrypted the body, and this process reads the store without it.
/// - [`ErrorKind::Corrupt`] if the body is not UTF-8.
pub fn text<'a>(run: &RunKey, record: &'a Record) -> Result<&'a str> {
    std::str::from_utf8(&record.body)
        .map_err(|source| damaged_record(run, record, serde_json::Error::custom(source)))
}

fn read<'a, T: Deserialize<'a>>(run: &RunKey, record: &'a Record) -> Result<T> {
    // Validates the whole text once. A reader of bytes would validate each string in it again.
    serde_json::from_str(text(run, record)?).map_err(|source| damaged_record(run, record, source))
}

fn damaged_record(run: &RunKey, record: &Record, source: serde_json::Error) -> Error {
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
/// Returns [`ErrorKind::Invalid`] if the value cannot be expressed in JSON.
pub fn to_raw<T: Serialize>(value: &T) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(value).map_err(|source| {
        Error::new(ErrorKind::Invalid, "cannot encode the value as JSON").with_source(source)
    })
}
