//! The head of an object in compact JSON. It omits fields that follow from the key or that repeat the previous value.

use std::borrow::Cow;

use ferrata_store::codec::{Field, JsonHeader, JsonLayout, ShortId, Value};
use ferrata_store::{RecordHeader, RecordKind, RunFacts, RunStatus, Timestamp};
use serde::{Deserialize, Serialize};

use crate::object::{LogCut, ObjectHead};

/// Distinguishes logs under the same key, by 24 bits of a checksum of the first record's id. All objects of a log have the same tag.
///
/// The first object of a log is never deleted while the run exists. If it is lost nevertheless, a start would find the key free, and without the
/// tag the older objects would look like its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Tag(ShortId<3>);

impl Tag {
    /// Returns the tag of the log that begins with this record.
    pub(crate) fn of(first: &RecordHeader) -> Self {
        let [_, a, b, c] = crc32c::crc32c(first.id.as_uuid().as_bytes()).to_be_bytes();
        Self(ShortId([a, b, c]))
    }
}

/// The stored form of a head.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Json<'a> {
    log: Tag,
    seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    base: u64,
    bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    facts: Option<Cow<'a, RunFacts>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<LogCut>,
    records: Vec<JsonHeader<HeaderJson>>,
}

/// The layout of the headers in an object. The number of a record follows from its position.
#[derive(Debug)]
pub(crate) enum HeaderJson {}

impl JsonLayout for HeaderJson {
    const SHORT_IDS: bool = true;

    fn key(field: Field) -> Option<&'static str> {
        match field {
            Field::Seq => None,
            Field::WakeAt => Some("wake"),
            field => Some(field.name()),
        }
    }
}

/// Returns the values that a header may omit: those of the previous header or, for the first header, those with which most objects begin. The time
/// is in the record's id.
fn assumed(before: Option<&RecordHeader>, seq: u64, at: Option<Value>) -> impl Fn(Field) -> Option<Value> {
    move |field| match (field, before) {
        (Field::Format, _) => Some(Value::Number(1)),
        (Field::Seq, _) => Some(Value::Number(seq)),
        (Field::At, _) => at.clone(),
        (Field::Base, _) => Some(Value::Flag(false)),
        (Field::Prev, Some(before)) => before.field(Field::Id),
        (
            Field::Kind | Field::Status | Field::Node | Field::Visit | Field::Epoch | Field::Owner,
            Some(before),
        ) => before.field(field),
        (Field::Kind, None) => Some(Value::Kind(RecordKind::Node)),
        (Field::Status, None) => Some(Value::Status(RunStatus::InProgress)),
        (Field::Visit | Field::Epoch, None) => Some(Value::Number(1)),
        _ => None,
    }
}

/// Returns the milliseconds at the beginning of an id of version 7. For any other id it returns some number, which is not the record's time.
fn time_of(id: Option<&Value>) -> Option<Value> {
    match id {
        Some(Value::Id(id)) => {
            let ms = id.as_bytes()[..6].iter().fold(0, |ms, byte| ms << 8 | i64::from(*byte));
            Some(Value::Time(Timestamp::from_unix_ms(ms)))
        }
        _ => None,
    }
}

impl<'a> Json<'a> {
    pub(crate) fn of(head: &'a ObjectHead) -> Self {
        let mut records = Vec::with_capacity(head.headers().len());
        let mut before = None;
        for header in head.headers() {
            let id = header.field(Field::Id);
            records.push(JsonHeader::of(header, assumed(before, header.seq.get(), time_of(id.as_ref()))));
            before = Some(header);
        }
        Self {
            log: head.log,
            seq: head.start,
            from: head.from,
            base: head.base,
            bytes: head.bytes,
            facts: head.facts.as_ref().map(Cow::Borrowed),
            cut: head.cut,
            records,
        }
    }

    /// Creates the head. The error is the field that is missing in a header, or invalid.
    pub(crate) fn head(self) -> Result<ObjectHead, Field> {
        let first = self.from.unwrap_or(self.seq);
        let mut headers: Vec<RecordHeader> = Vec::with_capacity(self.records.len());
        for (said, at) in self.records.into_iter().zip(0..) {
            let assumed = assumed(headers.last(), first.saturating_add(at), time_of(said.get(Field::Id)));
            headers.push(said.header(assumed)?);
        }
        Ok(ObjectHead {
            log: self.log,
            start: self.seq,
            from: self.from,
            base: self.base,
            bytes: self.bytes,
            facts: self.facts.map(Cow::into_owned),
            cut: self.cut,
            headers,
        })
    }
}
