//! An object of a log, byte by byte: a line that names and guards the head, the head in JSON, then the bodies.
//!
//! The checksum of the head covers the place of the object, too: tenant, run, life and first record. An object that lies under another key is no
//! object of that log.

use bytes::Bytes;
use ferrata_store::{FORMAT, Record, RecordHeader, RunFacts};
use serde::{Deserialize, Serialize};

use crate::layout::VERSION;
use crate::line::{Json, Tag};

/// The first word of every object.
const NAME: &str = "ferrata-s3";

/// The mark at the end of a run's life, and in place of objects whose key must stay taken for a while.
pub(crate) const GONE: &[u8] = b"ferrata-s3 1 gone\n";

/// The longest first line that can be: the name, and three numbers.
const LONGEST_LINE: usize = 64;

/// The part of an object before its bodies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObjectHead {
    /// The log of the object, among those that may have started under one key.
    pub(crate) log: Tag,
    /// The number that the key names: that of the first record at the time of writing.
    pub(crate) start: u64,
    /// The number of the first record that is still here, if pruning has taken away some before it.
    pub(crate) from: Option<u64>,
    /// The object that holds the newest base before this one.
    pub(crate) base: u64,
    /// The total bytes of the run's bodies, up to the last of this object, at the time of the write.
    pub(crate) bytes: u64,
    /// The run's facts; only in the object with number 0.
    pub(crate) facts: Option<RunFacts>,
    /// The start of a pruned log; in the object with number 0.
    pub(crate) cut: Option<LogCut>,
    pub(crate) headers: Vec<RecordHeader>,
}

/// The start of a pruned log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogCut {
    /// The oldest record kept, which is a base.
    pub(crate) first: u64,
    /// The object it is in.
    pub(crate) object: u64,
    /// The counted bytes that are no longer stored; negative if a base is longer than everything that it replaced.
    pub(crate) dropped: i64,
}

/// The reason why bytes are no object of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InvalidObject {
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

impl ObjectHead {
    /// Creates the head of an appended object.
    pub(crate) fn new(
        records: &[Record],
        log: Tag,
        base: u64,
        bytes_before: u64,
        facts: Option<RunFacts>,
    ) -> Self {
        let start = records.first().map_or(0, |record| record.header.seq.get());
        let bytes = records.iter().map(|record| record.body.len() as u64).sum::<u64>() + bytes_before;
        Self { log, start, from: None, base, bytes, facts, cut: None, headers: headers(records) }
    }

    /// Replaces the records, which end where they did.
    pub(crate) fn with_records(mut self, records: &[Record]) -> Self {
        let first = records.first().map(|record| record.header.seq.get());
        self.from = first.filter(|first| *first != self.start);
        self.headers = headers(records);
        self
    }

    /// Returns the number of the first record that is here.
    pub(crate) fn first(&self) -> u64 {
        self.from.unwrap_or(self.start)
    }

    /// Returns the number of the record that follows the last one.
    pub(crate) fn end(&self) -> u64 {
        self.first().saturating_add(self.headers.len() as u64)
    }

    /// Returns the headers, the oldest first.
    pub(crate) fn headers(&self) -> &[RecordHeader] {
        &self.headers
    }

    /// Returns the last header; none of an object that pruning emptied.
    pub(crate) fn last(&self) -> Option<&RecordHeader> {
        self.headers.last()
    }

    /// Returns whether a record of this object is a base.
    pub(crate) fn has_base(&self) -> bool {
        self.headers.iter().any(|header| header.base)
    }

    /// Writes the object for this place below the logs, with these bodies.
    pub(crate) fn encode(&self, place: &str, records: &[Record]) -> Bytes {
        // Numbers, names and ids always have JSON.
        let mut json = serde_json::to_vec(&Json::of(self)).unwrap_or_default();
        json.push(b'\n');
        let line = format!("{NAME} {VERSION} {} {:08x}\n", json.len(), sum(place, &json));
        let bodies: usize = records.iter().map(|record| record.body.len()).sum();
        let mut bytes = Vec::with_capacity(line.len() + json.len() + bodies);
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(&json);
        for record in records {
            bytes.extend_from_slice(&record.body);
        }
        bytes.into()
    }

    /// Reads a head from the beginning of the object of this place; also returns where the bodies begin.
    pub(crate) fn decode(place: &str, bytes: &[u8]) -> Result<(Self, usize), InvalidObject> {
        let damaged = |what: &str| InvalidObject::Damaged(what.to_owned());
        let end = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| damaged("it does not start with the line of a log"))?;
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| damaged("its first line is not text"))?;
        let mut words = line.split(' ');
        if words.next() != Some(NAME) {
            return Err(damaged("it does not start with the line of a log"));
        }
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<usize>().ok());
        match words.next().and_then(|word| word.parse::<u32>().ok()) {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => return Err(InvalidObject::Newer(newer)),
            _ => return Err(damaged("its first line has no version")),
        }
        if bytes == GONE {
            return Err(InvalidObject::Gone);
        }
        let len = number(words.next()).ok_or_else(|| damaged("its first line has no length"))?;
        let guarded = words.next().and_then(|word| u32::from_str_radix(word, 16).ok());
        let begin = end + 1;
        let until = begin.checked_add(len).ok_or_else(|| damaged("its head has no end"))?;
        let json = bytes.get(begin..until).ok_or(InvalidObject::Short(until))?;
        if guarded != Some(sum(place, json)) {
            return Err(damaged("its head does not match its checksum"));
        }
        let read: Json<'_> = serde_json::from_slice(json).map_err(|error| match newest_format(json) {
            Some(found) if found > u64::from(FORMAT) => InvalidObject::NewerRecord(found),
            _ => InvalidObject::Damaged(error.to_string()),
        })?;
        let head = read.head();
        Ok((head.map_err(|field| damaged(&format!("a record lacks `{}`", field.name())))?, until))
    }

    /// Reads the whole object of this place.
    pub(crate) fn decode_whole(place: &str, bytes: &Bytes) -> Result<(Self, Vec<Record>), InvalidObject> {
        let (head, mut at) = Self::decode(place, bytes).map_err(|invalid| match invalid {
            InvalidObject::Short(_) => InvalidObject::Damaged("it ends within its head".into()),
            other => other,
        })?;
        let mut records = Vec::with_capacity(head.headers.len());
        for header in &head.headers {
            let end = at + header.body_len as usize;
            if end > bytes.len() {
                return Err(InvalidObject::Damaged(format!(
                    "it ends within the body of record {}",
                    header.seq
                )));
            }
            records.push(Record { header: header.clone(), body: bytes.slice(at..end) });
            at = end;
        }
        if at != bytes.len() {
            return Err(InvalidObject::Damaged("it has bytes after its last body".into()));
        }
        Ok((head, records))
    }
}

/// The checksum of a head, and of where it belongs. No place holds the brace that a head begins with.
fn sum(place: &str, json: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(place.as_bytes()), json)
}

/// Finds the newest format in a head that this version cannot read.
fn newest_format(json: &[u8]) -> Option<u64> {
    let head: serde_json::Value = serde_json::from_slice(json).ok()?;
    head.get("records")?.as_array()?.iter().filter_map(|line| line.get("v")?.as_u64()).max()
}

fn headers(records: &[Record]) -> Vec<RecordHeader> {
    records.iter().map(|record| record.header.clone()).collect()
}

#[cfg(test)]
mod tests;
