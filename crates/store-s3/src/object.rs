//! An object of a log, byte by byte: a line that names and guards the head, the head in JSON, then the bodies.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ferrata_core::record::{FORMAT, Record, RecordHeader, RecordKind, RunFacts, RunStatus};
use ferrata_core::{Epoch, ExecutorId, HeadRef, NodeName, RecordId, Seq, Timestamp, Visit};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::layout::LAYOUT;

/// The first word of every object.
const NAME: &str = "ferrata-s3";

/// What lies where a life of a run ended, and in place of objects whose key must stay taken for a while.
pub(crate) const GONE: &[u8] = b"ferrata-s3 1 gone\n";

/// The longest first line that can be: the name, and three numbers.
const LONGEST_LINE: usize = 64;

/// What an object says before its bodies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The number that the key names: that of the first record at the time of writing.
    #[serde(rename = "seq")]
    pub(crate) start: u64,
    /// The number of the first record that is still here, if pruning has taken away some before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    /// The object that holds the newest base before this one.
    pub(crate) base: u64,
    /// How many bytes the bodies of the run had, up to the last of this object, when it was written.
    pub(crate) bytes: u64,
    /// What was said of the run at its start; in the object with number 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) facts: Option<RunFacts>,
    /// Where the log begins, if it was pruned; in the object with number 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cut: Option<Cut>,
    #[serde(rename = "records")]
    lines: Vec<Line>,
}

/// Where a pruned log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cut {
    /// The oldest record kept, which is a base.
    pub(crate) first: u64,
    /// The object it is in.
    pub(crate) object: u64,
    /// What of the bytes counted by objects is not kept; negative if a base is longer than all that it replaced.
    pub(crate) dropped: i64,
}

/// A header, as it is kept: the number follows from the place, and so does the record before, except for the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    #[serde(rename = "v", default = "first_format", skip_serializing_if = "is_first_format")]
    format: u16,
    id: Short,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prev: Option<Short>,
    kind: RecordKind,
    status: RunStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    visit: Option<Visit>,
    epoch: Epoch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Short>,
    #[serde(rename = "wake", default, skip_serializing_if = "Option::is_none")]
    wake_at: Option<Timestamp>,
    at: Timestamp,
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

/// The 16 bytes of an id in 22 characters of base64: there are up to three in each header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Short([u8; 16]);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Short {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(text.as_bytes()).map_err(serde::de::Error::custom)?;
        bytes.try_into().map(Self).map_err(|_| serde::de::Error::custom("an id has 16 bytes"))
    }
}

impl From<RecordId> for Short {
    fn from(id: RecordId) -> Self {
        Self(*id.as_uuid().as_bytes())
    }
}

impl From<ExecutorId> for Short {
    fn from(id: ExecutorId) -> Self {
        Self(*id.as_uuid().as_bytes())
    }
}

impl Short {
    fn record(self) -> RecordId {
        RecordId::from_uuid(uuid::Uuid::from_bytes(self.0))
    }

    fn executor(self) -> ExecutorId {
        ExecutorId::from_uuid(uuid::Uuid::from_bytes(self.0))
    }
}

/// Why bytes are no object of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spoilt {
    /// There is a head, and it has this many bytes, its line included.
    Short(usize),
    /// The end of a life, or of an object.
    Gone,
    /// A newer version wrote it.
    Newer(u32),
    /// A newer version wrote a record of it.
    NewerRecord(u64),
    /// They are damaged.
    Damaged(String),
}

impl Head {
    /// Makes the head of an object that is appended.
    pub(crate) fn new(records: &[Record], base: u64, bytes_before: u64, facts: Option<RunFacts>) -> Self {
        let start = records.first().map_or(0, |record| record.header.seq.get());
        let bytes = records.iter().map(|record| record.body.len() as u64).sum::<u64>() + bytes_before;
        let lines = lines(records);
        Self { start, from: None, base, bytes, facts, cut: None, lines }
    }

    /// Replaces the records, which end where they did.
    pub(crate) fn with_records(mut self, records: &[Record]) -> Self {
        let first = records.first().map(|record| record.header.seq.get());
        self.from = first.filter(|first| *first != self.start);
        self.lines = lines(records);
        self
    }

    /// Returns the number of the first record that is here.
    pub(crate) fn first(&self) -> u64 {
        self.from.unwrap_or(self.start)
    }

    /// Returns how many records are here.
    pub(crate) fn len(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Returns the number of the record that follows the last one.
    pub(crate) fn end(&self) -> u64 {
        self.first().saturating_add(self.len())
    }

    /// Returns the headers, the oldest first.
    pub(crate) fn headers(&self) -> impl DoubleEndedIterator<Item = RecordHeader> + ExactSizeIterator {
        (0..self.lines.len()).map(|at| self.header(at))
    }

    /// Returns the last header; none of an object that pruning emptied.
    pub(crate) fn last(&self) -> Option<RecordHeader> {
        self.lines.len().checked_sub(1).map(|at| self.header(at))
    }

    /// Tells whether a record of this object is a base.
    pub(crate) fn has_base(&self) -> bool {
        self.lines.iter().any(|line| line.base)
    }

    fn header(&self, at: usize) -> RecordHeader {
        let line = &self.lines[at];
        let prev = line.prev.or_else(|| at.checked_sub(1).map(|before| self.lines[before].id));
        RecordHeader {
            format: line.format,
            seq: Seq::new(self.first().saturating_add(at as u64)),
            id: line.id.record(),
            prev: prev.map(Short::record),
            kind: line.kind,
            status: line.status,
            node: line.node.clone(),
            visit: line.visit,
            epoch: line.epoch,
            owner: line.owner.map(Short::executor),
            wake_at: line.wake_at,
            at: line.at,
            base: line.base,
            body_len: line.len,
            body_crc: line.crc,
        }
    }

    /// Writes the object with these bodies.
    pub(crate) fn encode(&self, records: &[Record]) -> Bytes {
        // Numbers, names and ids always have JSON.
        let mut json = serde_json::to_vec(self).unwrap_or_default();
        json.push(b'\n');
        let line = format!("{NAME} {LAYOUT} {} {:08x}\n", json.len(), crc32c::crc32c(&json));
        let bodies: usize = records.iter().map(|record| record.body.len()).sum();
        let mut bytes = Vec::with_capacity(line.len() + json.len() + bodies);
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(&json);
        for record in records {
            bytes.extend_from_slice(&record.body);
        }
        bytes.into()
    }

    /// Reads a head from the beginning of an object; also returns where the bodies begin.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, usize), Spoilt> {
        let damaged = |what: &str| Spoilt::Damaged(what.to_owned());
        let end = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| damaged("it does not begin with the line of a log"))?;
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| damaged("its first line is not text"))?;
        let mut words = line.split(' ');
        if words.next() != Some(NAME) {
            return Err(damaged("it does not begin with the line of a log"));
        }
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<usize>().ok());
        let layout = words.next().and_then(|word| word.parse::<u32>().ok());
        let layout = layout.ok_or_else(|| damaged("its first line has no version"))?;
        if layout > LAYOUT {
            return Err(Spoilt::Newer(layout));
        }
        if bytes == GONE {
            return Err(Spoilt::Gone);
        }
        let len = number(words.next()).ok_or_else(|| damaged("its first line has no length"))?;
        let sum = words.next().and_then(|word| u32::from_str_radix(word, 16).ok());
        let begin = end + 1;
        let until = begin.checked_add(len).ok_or_else(|| damaged("its head has no end"))?;
        let json = bytes.get(begin..until).ok_or(Spoilt::Short(until))?;
        if sum != Some(crc32c::crc32c(json)) {
            return Err(damaged("its head has another checksum than its first line says"));
        }
        let head = serde_json::from_slice(json).map_err(|error| match newest_format(json) {
            Some(found) if found > u64::from(FORMAT) => Spoilt::NewerRecord(found),
            _ => Spoilt::Damaged(error.to_string()),
        })?;
        Ok((head, until))
    }

    /// Reads a whole object.
    pub(crate) fn decode_whole(bytes: &Bytes) -> Result<(Self, Vec<Record>), Spoilt> {
        let (head, mut at) = Self::decode(bytes).map_err(|spoilt| match spoilt {
            Spoilt::Short(_) => Spoilt::Damaged("it ends within its head".into()),
            other => other,
        })?;
        let mut records = Vec::with_capacity(head.lines.len());
        for header in head.headers() {
            let end = at + header.body_len as usize;
            if end > bytes.len() {
                return Err(Spoilt::Damaged(format!("it ends within the body of record {}", header.seq)));
            }
            records.push(Record { header, body: bytes.slice(at..end) });
            at = end;
        }
        if at != bytes.len() {
            return Err(Spoilt::Damaged("it goes on after its last body".into()));
        }
        Ok((head, records))
    }
}

/// Finds the newest format in a head that this version cannot read.
fn newest_format(json: &[u8]) -> Option<u64> {
    let head: serde_json::Value = serde_json::from_slice(json).ok()?;
    head.get("records")?.as_array()?.iter().filter_map(|line| line.get("v")?.as_u64()).max()
}

fn lines(records: &[Record]) -> Vec<Line> {
    let mut before: Option<HeadRef> = None;
    let mut lines = Vec::with_capacity(records.len());
    for Record { header, .. } in records {
        let prev = header.prev.filter(|prev| before.is_none_or(|before| before.id != *prev));
        before = Some(header.head());
        lines.push(Line {
            format: header.format,
            id: header.id.into(),
            prev: prev.map(Short::from),
            kind: header.kind,
            status: header.status,
            node: header.node.clone(),
            visit: header.visit,
            epoch: header.epoch,
            owner: header.owner.map(Short::from),
            wake_at: header.wake_at,
            at: header.at,
            base: header.base,
            len: header.body_len,
            crc: header.body_crc,
        });
    }
    lines
}

#[cfg(test)]
mod tests;
