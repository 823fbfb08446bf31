//! The stored messages of a log. A message has a header with the state of the run, and the bodies of the records in the message.
//!
//! The records of one append are one message, so a server stores all of them or none. There are two other kinds of messages. A *cut* has no new
//! record. It names the first retained record of the log, and may contain that record as a base, or records in other envelopes. An *end* marks that
//! the run was purged.
//!
//! The header `Ferrata` of a message is JSON:
//!
//! | Key | Meaning |
//! |---|---|
//! | `v` | the version, 1 |
//! | `first` | the number of the oldest retained record |
//! | `base` | `record`, the number of the newest base, and `at`, the position in the stream of its message or of one before it; 0 for this message |
//! | `records` | the headers of the message's records in the form of [`binary`], as base64 for URLs without padding |
//! | `inside` | if they are more than 16 KiB: how many bytes at the beginning of the body hold them instead, with spaces between |
//! | `head` | of a cut, and with `inside`: the header of the run's last record |
//! | `cut` | true for a cut |
//! | `facts` | the facts of the run |
//! | `gone` | true for an end; `v` is then the only other key |
//!
//! The bodies of the records follow each other in the body of the message. If several messages have a record, the last message counts.

use async_nats::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};
use ferrata_store::codec::binary::{self, InvalidHeader};
use ferrata_store::{Record, RecordHeader, RunFacts, Seq};
use serde::{Deserialize, Serialize};

use crate::error::NatsStoreError;
use crate::layout::VERSION;

/// The header with the contents of a message.
pub(crate) const SAID: &str = "Ferrata";

/// The header with the position of the message that must be the last of the subject.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// The maximum size of the records in a header, in bytes. A server accepts headers of 64 KiB, and facts may need half of that.
const MOST_SAID: usize = 16 << 10;

/// The position of the newest base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BasePosition {
    /// The number of the record.
    pub(crate) record: Seq,
    /// The position of the message with the record of this number, or of an earlier message; 0 for the message that contains this value.
    pub(crate) at: u64,
}

/// The contents of a message.
#[derive(Clone, Debug)]
pub(crate) struct MessageContent {
    /// The number of the oldest retained record.
    pub(crate) first: Seq,
    pub(crate) base: BasePosition,
    /// The run's last record.
    pub(crate) head: RecordHeader,
    /// The records whose bodies the message holds. In a cut, these records replace the stored records with the same numbers.
    pub(crate) records: Vec<RecordHeader>,
    pub(crate) is_cut: bool,
    pub(crate) facts: RunFacts,
}

/// The contents of a message as JSON.
#[derive(Serialize, Deserialize)]
struct MessageJson {
    v: u64,
    first: Seq,
    base: BasePosition,
    records: Vec<String>,
    /// The number of bytes at the start of the body that describe the records, if a header cannot hold them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inside: Option<usize>,
    /// The run's last record, if the message's last record does not determine it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    facts: RunFacts,
}

/// The fields that a reader parses first, in every version. An end has no other fields.
#[derive(Serialize, Deserialize)]
struct MessageVersion {
    v: u64,
    #[serde(default)]
    gone: bool,
}

/// An outgoing message. If `expected` is a position, the server stores the message only if that is the position of the subject's last message. If
/// `expected` is 0, the subject must have no message.
#[derive(Default)]
pub(crate) struct OutgoingMessage {
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

impl OutgoingMessage {
    /// Creates an unconditional message with only a body.
    pub(crate) fn plain(payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), ..Self::default() }
    }

    fn new(said: &impl Serialize, expected: Option<u64>, payload: Bytes) -> Result<Self, NatsStoreError> {
        let fault = |error| NatsStoreError::strange(format!("facts without JSON ({error})"));
        let text = serde_json::to_string(said).map_err(fault)?;
        let mut headers = HeaderMap::new();
        headers.insert(SAID, text);
        if let Some(expected) = expected {
            headers.insert(EXPECTED, expected.to_string());
        }
        Ok(Self { headers, payload })
    }

    /// Creates a message with the contents `said` and the bodies of `records`.
    pub(crate) fn of(
        said: &MessageContent,
        expected: u64,
        records: &[Record],
    ) -> Result<Self, NatsStoreError> {
        let newest = |header: &RecordHeader| match header.base {
            true => header.seq,
            false => said.base.record.min(header.seq),
        };
        let mut base = said.records.first().map_or(said.base.record, newest);
        let mut texts = Vec::with_capacity(said.records.len());
        for header in &said.records {
            base = if header.base { header.seq } else { base };
            texts.push(encode(header, base)?);
        }
        let is_long = texts.iter().map(String::len).sum::<usize>() > MOST_SAID;
        let before = if is_long { std::mem::take(&mut texts).join(" ") } else { String::new() };
        let head = (said.is_cut || is_long).then(|| encode(&said.head, newest(&said.head))).transpose()?;
        let MessageContent { first, base, is_cut: cut, facts, .. } = said.clone();
        let inside = is_long.then_some(before.len());
        let written = MessageJson { v: VERSION, first, base, records: texts, inside, head, cut, facts };
        let payload = match records {
            [one] if !is_long => one.body.clone(),
            all => {
                let bytes = all.iter().map(|record| record.body.len()).sum::<usize>();
                let mut joined = BytesMut::with_capacity(before.len().saturating_add(bytes));
                joined.extend_from_slice(before.as_bytes());
                all.iter().for_each(|record| joined.extend_from_slice(&record.body));
                joined.freeze()
            }
        };
        Self::new(&written, Some(expected), payload)
    }

    /// Creates an end: of whatever run exists if `expected` is `None`.
    pub(crate) fn end(expected: Option<u64>) -> Result<Self, NatsStoreError> {
        Self::new(&MessageVersion { v: VERSION, gone: true }, expected, Bytes::new())
    }
}

/// Encodes a header. If the base before the record is unknown, the previous record is a valid value, because this store keeps the position of the
/// base elsewhere.
fn encode(header: &RecordHeader, base: Seq) -> Result<String, NatsStoreError> {
    let base = match header.base {
        true => header.seq,
        false => base.min(Seq::new(header.seq.get().saturating_sub(1))),
    };
    let bytes =
        binary::write(header, base).ok_or_else(|| NatsStoreError::strange("a header without bytes"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns the maximum size of a record in a message, in bytes, including its header.
pub(crate) fn length(record: &Record) -> usize {
    // The distance to the base is at most that of the first record. Quotes and a comma surround the text.
    let header = encode(&record.header, Seq::new(0)).map_or(0, |text| text.len() + 3);
    record.body.len().saturating_add(header)
}

fn decode(text: &str) -> Result<RecordHeader, NatsStoreError> {
    let damaged = || NatsStoreError::corrupt(None, "the header of a record cannot be read");
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| damaged())?;
    match binary::read(&bytes) {
        Ok((header, _)) => Ok(header),
        Err(InvalidHeader::Newer { seq, format }) => {
            let what = format!("the record has format {format},");
            Err(NatsStoreError::Newer { what, seq: Some(Seq::new(seq)) })
        }
        Err(InvalidHeader::Damaged) => Err(damaged()),
    }
}

/// Parses a message. Returns `None` for an end.
pub(crate) fn read(
    at: u64,
    text: Option<&str>,
    payload: &Bytes,
) -> Result<Option<StoredMessage>, NatsStoreError> {
    let fault = |error: String| NatsStoreError::corrupt(None, format!("a message is unreadable ({error})"));
    let text = text.ok_or_else(|| fault("a message is empty".to_owned()))?;
    let MessageVersion { v, gone } = serde_json::from_str(text).map_err(|error| fault(error.to_string()))?;
    if v > VERSION {
        return Err(NatsStoreError::Newer { what: format!("the run has version {v},"), seq: None });
    }
    if gone {
        return Ok(None);
    }
    let written: MessageJson = serde_json::from_str(text).map_err(|error| fault(error.to_string()))?;
    let MessageJson { first, base, records, inside, head, cut: is_cut, facts, .. } = written;
    let inside = inside.unwrap_or(0);
    let lacks_body = inside > payload.len();
    let (before, payload) = match lacks_body {
        true => (Bytes::new(), Bytes::new()),
        false => (payload.slice(..inside), payload.slice(inside..)),
    };
    let before = String::from_utf8_lossy(&before);
    let texts = records.iter().map(String::as_str).chain(before.split_terminator(' '));
    let records = texts.map(decode).collect::<Result<Vec<_>, _>>()?;
    let head = match &head {
        Some(text) => decode(text)?,
        None => records.last().cloned().ok_or_else(|| fault("it has no record".to_owned()))?,
    };
    let said = MessageContent { first, base, head, records, is_cut, facts };
    Ok(Some(StoredMessage { at, said, payload, lacks_body }))
}

/// A stored message.
#[derive(Clone, Debug)]
pub(crate) struct StoredMessage {
    /// The position of the message in the stream.
    pub(crate) at: u64,
    pub(crate) said: MessageContent,
    /// The bodies of its records, or nothing if the reader did not request them.
    pub(crate) payload: Bytes,
    /// Whether the description of the records is in the body, which the reader did not request.
    pub(crate) lacks_body: bool,
}

impl StoredMessage {
    /// Returns the records with their bodies. If a part of a body is missing, the body fails the check of its checksum.
    pub(crate) fn into_records(self) -> impl Iterator<Item = Record> {
        let mut rest = self.payload;
        let last = self.said.records.len();
        self.said.records.into_iter().enumerate().map(move |(n, header)| {
            let length = usize::try_from(header.body_len).unwrap_or(usize::MAX).min(rest.len());
            // Surplus bytes go to the last record, whose check then fails.
            let body = if n + 1 == last { std::mem::take(&mut rest) } else { rest.split_to(length) };
            Record { header, body }
        })
    }
}
