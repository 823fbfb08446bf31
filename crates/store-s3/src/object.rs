//! An object of a log, byte by byte: a line with the format and the checksum of the head, then the head in JSON, then the bodies.
//!
//! The checksum of the head includes the position of the object: tenant, run, generation and first record. So an object under another key is not
//! accepted as an object of that log.
//!
//! ```text
//! ferrata-s3 1 412 1a2b3c4d                                 name, version, length of the next line, and a checksum (hex)
//! {"log":"q83v","seq":5,"base":4,"bytes":4711,"records":[…]} the head: one line of JSON, its newline counted
//! <body><body>…                                             the bodies, one after the other, nothing between or after
//! ```
//!
//! | Field | Meaning |
//! |---|---|
//! | `log` | the last three bytes of the CRC-32C of the id (16 bytes) of the first record, in base64. If it differs between the newest and the first object, the first object was lost: the log is corrupt |
//! | `seq` | the number of the first record at the time of the write |
//! | `from` | the number of the first stored record, if a prune removed some |
//! | `base` | the `seq` of the object with the newest base before this object |
//! | `bytes` | the size of all bodies of the run up to this object, at the time of the write |
//! | `facts` | the facts of the run; only in the object with number 0, always |
//! | `cut` | only in the object with number 0, if the log was pruned: `first` (its first number), `object` (the `seq` of that object), `dropped` (the removed part of `bytes`) |
//! | `records` | the headers, in order |
//!
//! A header omits the fields that follow from others:
//!
//! - `seq` always; `v` if it is 1; `at` if it is the time in the id.
//! - `kind`, `status`, `node`, `visit`, `epoch` and `owner` if they equal those of the previous record in the object. Before the first record, they are
//!   `node`, `in_progress`, no node, 1, 1 and no owner. `null` means that the field has no value.
//! - `prev` if it is the id of the previous record in the object.
//!
//! Ids are 22 characters of unpadded URL-safe base64. The field `wake_at` has the key `wake`.
//!
//! The object with number 0 stays until the purge. A prune removes pruned records from it, and writes the position of the first stored record into it.
//! Objects between object 0 and that position are not part of the log. An object that consists of `ferrata-s3 1 gone` and a newline ends the log if it is
//! the newest; otherwise it only keeps its key taken.

use bytes::Bytes;
use ferrata_store::{FORMAT, Record, RecordHeader, RunFacts};
use serde::{Deserialize, Serialize};

use crate::layout::VERSION;
use crate::line::{Json, Tag};

/// The first word of every object.
const NAME: &str = "ferrata-s3";

/// The mark at the end of a purged run, and in place of objects whose key must stay taken for a while.
pub(crate) const GONE: &[u8] = b"ferrata-s3 1 gone\n";

/// The maximum length of the first line: the name, and three numbers.
const LONGEST_LINE: usize = 64;

/// The part of an object before its bodies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObjectHead {
    /// The tag of the object's log. It distinguishes logs that may have started under the same key.
    pub(crate) log: Tag,
    /// The number in the key: that of the first record at the time of the write.
    pub(crate) start: u64,
    /// The number of the object's first stored record, if a prune has removed some records before it.
    pub(crate) from: Option<u64>,
    /// The object that contains the newest base before this object.
    pub(crate) base: u64,
    /// The total size of the run's bodies in bytes, up to the last body of this object, at the time of the write.
    pub(crate) bytes: u64,
    /// The run's facts. Only the object with number 0 has them.
    pub(crate) facts: Option<RunFacts>,
    /// The beginning of a pruned log. Only the object with number 0 has it.
    pub(crate) cut: Option<LogCut>,
    pub(crate) headers: Vec<RecordHeader>,
}

/// The beginning of a pruned log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogCut {
    /// The number of the oldest stored record, which is a base.
    pub(crate) first: u64,
    /// The number of the object that contains that record.
    pub(crate) object: u64,
    /// The bytes that were counted but are not stored any more; negative if a base is longer than everything that it replaced.
    pub(crate) dropped: i64,
}

/// The reason why bytes are not an object of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InvalidObject {
    /// The bytes are only the beginning of an object. The head needs this many bytes, including its line.
    Short(usize),
    /// The mark of a purged run or of a removed object.
    Gone,
    /// A newer version wrote the object.
    Newer(u32),
    /// A newer version wrote a record of the object.
    NewerRecord(u64),
    /// The bytes are damaged.
    Damaged(String),
}

impl ObjectHead {
    /// Creates the head of an object with appended records.
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

    /// Replaces the records. The last record must stay the same.
    pub(crate) fn with_records(mut self, records: &[Record]) -> Self {
        let first = records.first().map(|record| record.header.seq.get());
        self.from = first.filter(|first| *first != self.start);
        self.headers = headers(records);
        self
    }

    /// Returns the number of the object's first stored record.
    pub(crate) fn first(&self) -> u64 {
        self.from.unwrap_or(self.start)
    }

    /// Returns the number after that of the last record.
    pub(crate) fn end(&self) -> u64 {
        self.first().saturating_add(self.headers.len() as u64)
    }

    /// Returns the headers, oldest first.
    pub(crate) fn headers(&self) -> &[RecordHeader] {
        &self.headers
    }

    /// Returns the last header; `None` if a prune removed all records of the object.
    pub(crate) fn last(&self) -> Option<&RecordHeader> {
        self.headers.last()
    }

    /// Returns whether a record of this object is a base.
    pub(crate) fn has_base(&self) -> bool {
        self.headers.iter().any(|header| header.base)
    }

    /// Encodes the object for the key `place` below the logs, with the bodies of `records`.
    pub(crate) fn encode(&self, place: &str, records: &[Record]) -> Bytes {
        // Numbers, names and ids always have a JSON form.
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

    /// Decodes a head from the beginning of the object with key `place`. Also returns the offset of the bodies.
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

    /// Decodes the whole object with key `place`.
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

/// Returns the checksum of a head and its key. No key contains a brace, with which a head begins, so the text to sum is unambiguous.
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
