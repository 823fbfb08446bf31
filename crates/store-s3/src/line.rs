//! The head of an object in JSON, as short as it can be read: what follows from the place, or is as before, is left out.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ferrata_store::{
    Epoch, ExecutorId, NodeName, RecordHeader, RecordId, RecordKind, RunFacts, RunStatus, Seq, Timestamp,
    Visit,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::object::{Cut, Head};

/// Tells one log from another under the same key, by 24 bits of a checksum of its first record's id: all objects of a log have
/// the same.
///
/// The first object of a log is never deleted while its life lasts. Should it be lost all the same, a start would find the key
/// free and the older objects would seem to be its own.
pub(crate) type Tag = Bytes<3>;

/// Some bytes in base64: an id of 16 has 22 characters, and there are up to three in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes<const N: usize>([u8; N]);

impl<const N: usize> Serialize for Bytes<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de, const N: usize> Deserialize<'de> for Bytes<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(text.as_bytes()).map_err(serde::de::Error::custom)?;
        bytes.try_into().map(Self).map_err(|_| serde::de::Error::custom(format!("{N} bytes are expected")))
    }
}

impl Tag {
    /// Returns the tag of the log that begins with this record.
    pub(crate) fn of(first: &RecordHeader) -> Self {
        let [_, a, b, c] = crc32c::crc32c(first.id.as_uuid().as_bytes()).to_be_bytes();
        Self([a, b, c])
    }
}

type Short = Bytes<16>;

impl Short {
    fn record(self) -> RecordId {
        RecordId::from_uuid(uuid::Uuid::from_bytes(self.0))
    }

    fn executor(self) -> ExecutorId {
        ExecutorId::from_uuid(uuid::Uuid::from_bytes(self.0))
    }
}

/// A field that may be left out because it is as in the line before, and may also say that there is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Said<T> {
    #[default]
    Same,
    Now(Option<T>),
}

impl<T> Said<T> {
    fn of(before: Option<&T>, now: Option<&T>) -> Self
    where
        T: Clone + PartialEq,
    {
        if before == now { Self::Same } else { Self::Now(now.cloned()) }
    }

    fn or(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Same => before,
            Self::Now(now) => now,
        }
    }

    const fn is_same(&self) -> bool {
        matches!(self, Self::Same)
    }
}

impl<T: Serialize> Serialize for Said<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Now(Some(now)) => now.serialize(serializer),
            _ => serializer.serialize_none(),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Said<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::Now)
    }
}

/// A head, as it is kept.
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
    cut: Option<Cut>,
    records: Vec<Line>,
}

/// A header, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    #[serde(rename = "v", default = "first_format", skip_serializing_if = "is_first_format")]
    format: u16,
    id: Short,
    #[serde(default, skip_serializing_if = "Said::is_same")]
    prev: Said<Short>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<RecordKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<RunStatus>,
    #[serde(default, skip_serializing_if = "Said::is_same")]
    node: Said<NodeName>,
    #[serde(default, skip_serializing_if = "Said::is_same")]
    visit: Said<Visit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch: Option<Epoch>,
    #[serde(default, skip_serializing_if = "Said::is_same")]
    owner: Said<Short>,
    #[serde(rename = "wake", default, skip_serializing_if = "Option::is_none")]
    wake_at: Option<Timestamp>,
    /// Left out if it is the time in the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    base: bool,
    len: u32,
    crc: u32,
}

const fn first_format() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_first_format(format: &u16) -> bool {
    *format == 1
}

/// What a line may leave out: what the line before it says, and at first what most objects begin with.
#[derive(Clone, Debug)]
struct Before {
    id: Option<Short>,
    kind: RecordKind,
    status: RunStatus,
    node: Option<NodeName>,
    visit: Option<Visit>,
    epoch: Epoch,
    owner: Option<Short>,
}

impl Default for Before {
    fn default() -> Self {
        Self {
            id: None,
            kind: RecordKind::Node,
            status: RunStatus::InProgress,
            node: None,
            visit: Some(Visit::new(1)),
            epoch: Epoch::new(1),
            owner: None,
        }
    }
}

impl Before {
    fn of(header: &RecordHeader) -> Self {
        Self {
            id: Some(Bytes(*header.id.as_uuid().as_bytes())),
            kind: header.kind,
            status: header.status,
            node: header.node.clone(),
            visit: header.visit,
            epoch: header.epoch,
            owner: header.owner.map(|owner| Bytes(*owner.as_uuid().as_bytes())),
        }
    }
}

/// Returns the milliseconds that an id of version 7 begins with; of any other some number, which then is not the record's.
fn time_in(id: Short) -> Timestamp {
    let ms = id.0[..6].iter().fold(0, |ms, byte| ms << 8 | i64::from(*byte));
    Timestamp::from_unix_ms(ms)
}

impl Line {
    fn after(before: &Before, header: &RecordHeader) -> (Self, Before) {
        let now = Before::of(header);
        let id = Bytes(*header.id.as_uuid().as_bytes());
        let prev = header.prev.map(|prev| Bytes(*prev.as_uuid().as_bytes()));
        let line = Self {
            format: header.format,
            id,
            prev: Said::of(before.id.as_ref(), prev.as_ref()),
            kind: (before.kind != now.kind).then_some(now.kind),
            status: (before.status != now.status).then_some(now.status),
            node: Said::of(before.node.as_ref(), now.node.as_ref()),
            visit: Said::of(before.visit.as_ref(), now.visit.as_ref()),
            epoch: (before.epoch != now.epoch).then_some(now.epoch),
            owner: Said::of(before.owner.as_ref(), now.owner.as_ref()),
            wake_at: header.wake_at,
            at: (header.at != time_in(id)).then_some(header.at),
            base: header.base,
            len: header.body_len,
            crc: header.body_crc,
        };
        (line, now)
    }

    fn header(self, before: Before, seq: Seq) -> RecordHeader {
        RecordHeader {
            format: self.format,
            seq,
            id: self.id.record(),
            prev: self.prev.or(before.id).map(Short::record),
            kind: self.kind.unwrap_or(before.kind),
            status: self.status.unwrap_or(before.status),
            node: self.node.or(before.node),
            visit: self.visit.or(before.visit),
            epoch: self.epoch.unwrap_or(before.epoch),
            owner: self.owner.or(before.owner).map(Short::executor),
            wake_at: self.wake_at,
            at: self.at.unwrap_or_else(|| time_in(self.id)),
            base: self.base,
            body_len: self.len,
            body_crc: self.crc,
        }
    }
}

impl<'a> Json<'a> {
    pub(crate) fn of(head: &'a Head) -> Self {
        let mut before = Before::default();
        let mut records = Vec::with_capacity(head.headers().len());
        for header in head.headers() {
            let (line, now) = Line::after(&before, header);
            records.push(line);
            before = now;
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

    pub(crate) fn head(self) -> Head {
        let first = self.from.unwrap_or(self.seq);
        let mut before = Before::default();
        let mut headers = Vec::with_capacity(self.records.len());
        for (line, at) in self.records.into_iter().zip(0..) {
            let header = line.header(before, Seq::new(first.saturating_add(at)));
            before = Before::of(&header);
            headers.push(header);
        }
        Head {
            log: self.log,
            start: self.seq,
            from: self.from,
            base: self.base,
            bytes: self.bytes,
            facts: self.facts.map(Cow::into_owned),
            cut: self.cut,
            headers,
        }
    }
}
