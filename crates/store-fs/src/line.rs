//! The lines of a log: encodes the opening line and records as lines, and decodes them. `docs/reference/format-fs.md` describes them byte by byte.

use std::borrow::Cow;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use ferrata_store::{Record, RecordHeader, RecordId, RunFacts, RunId, RunKey, Seq, TenantId};
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::header::{self, LINE};

/// The version of the opening line that this library writes. It is also the newest version that it reads.
pub(crate) const OPENING: u64 = 1;

/// The maximum size of a body. A read needs several copies of a line in memory, whatever the file contains, so this limits the memory of a read.
pub(crate) const MAX_BODY: usize = 256 << 20;

/// The maximum length of a line: the longest body in base64, plus the header.
pub(crate) const MAX_LINE: usize = MAX_BODY / 3 * 4 + (64 << 10);

/// The length of `,"sum":"01234567"}`, which ends every line.
const SUM: usize = 18;

const JSON_BODY: &[u8] = br#","body":"#;
const BASE64_BODY: &[u8] = br#","body64":""#;
const DIGITS: &[u8; 16] = b"0123456789abcdef";
const PART: &[u8] = br#","part":["#;

/// The reason why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The checksum differs, or the line has none: the line is damaged, or its write was cut short.
    Sum,
    /// The checksum is right, but this version does not write such a line.
    Content(String),
    /// A newer version wrote the line.
    Newer(u64),
}

pub(crate) fn content(what: impl Into<String>) -> Flaw {
    Flaw::Content(what.into())
}

/// The position of a line in its append. All records of an append become visible with its last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The position, counted from 1.
    pub(crate) number: u32,
    pub(crate) of: u32,
}

impl Part {
    /// The only line of its append. The line does not store this value.
    pub(crate) const WHOLE: Self = Self { number: 1, of: 1 };

    pub(crate) fn is_first(self) -> bool {
        self.number == 1
    }

    pub(crate) fn is_last(self) -> bool {
        self.number == self.of
    }
}

/// The parsed first line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) run: RunKey,
    /// The number of the oldest stored record.
    pub(crate) first: Seq,
    pub(crate) facts: RunFacts,
}

#[derive(Serialize, Deserialize)]
struct OpeningLine<T> {
    ferrata: u64,
    tenant: TenantId,
    run: RunId,
    first: Seq,
    facts: T,
}

/// Appends the opening line to `out`.
pub(crate) fn write_opening(out: &mut Vec<u8>, run: &RunKey, first: Seq, facts: &RunFacts) {
    let line =
        OpeningLine { ferrata: OPENING, tenant: run.tenant.clone(), run: run.run.clone(), first, facts };
    let start = out.len();
    write_json(out, &line);
    out.pop();
    write_sum(out, start);
}

/// Parses an opening line, without its newline.
pub(crate) fn read_opening(line: &[u8]) -> Result<Opening, Flaw> {
    let inside = check_sum(line)?;
    version(inside, br#"{"ferrata":"#, OPENING)?;
    let line: OpeningLine<RunFacts> =
        serde_json::from_slice(&[inside, b"}"].concat()).map_err(|error| content(error.to_string()))?;
    Ok(Opening { run: RunKey::new(line.tenant, line.run), first: line.first, facts: line.facts })
}

/// Appends the line of a record to `out`.
///
/// `before` is the id of the record in the previous line. If the record's `prev` is that id, the line omits `prev`. A base always has its `prev`,
/// so that reading can begin at a base.
pub(crate) fn write_record(out: &mut Vec<u8>, record: &Record, before: Option<RecordId>, part: Part) {
    let start = out.len();
    let header = &record.header;
    let is_said = before.is_some() && header.prev == before && !header.base;
    header::write(out, header, header.prev.filter(|_| !is_said));
    if part != Part::WHOLE {
        out.extend_from_slice(PART);
        write_text(out, format_args!("{},{}]", part.number, part.of));
    }
    if is_line_of_json(&record.body) {
        out.extend_from_slice(JSON_BODY);
        out.extend_from_slice(&record.body);
    } else {
        out.extend_from_slice(BASE64_BODY);
        out.extend_from_slice(BASE64.encode(&record.body).as_bytes());
        out.push(b'"');
    }
    write_sum(out, start);
}

/// The parsed line of a record, with a body that is not decoded yet.
#[derive(Debug)]
pub(crate) struct RecordLine<'a> {
    /// The header. `prev` is `None` if the line omits it.
    pub(crate) header: RecordHeader,
    pub(crate) part: Part,
    /// The header as written, without the part.
    head: &'a [u8],
    body: LineBody<'a>,
}

#[derive(Clone, Copy, Debug)]
enum LineBody<'a> {
    Json(&'a [u8]),
    Base64(&'a [u8]),
}

/// Parses a record's line, without its newline.
pub(crate) fn read_record(line: &[u8]) -> Result<RecordLine<'_>, Flaw> {
    let inside = check_sum(line)?;
    version(inside, br#"{"v":"#, LINE)?;
    // No text in a header can contain a quote. So the first match is the key and not part of a value.
    let key = find(inside, &JSON_BODY[..6]).ok_or_else(|| content("no body"))?;
    let (head, rest) = inside.split_at(key);
    let body = if let Some(json) = rest.strip_prefix(JSON_BODY) {
        LineBody::Json(json)
    } else if let Some(text) = rest.strip_prefix(BASE64_BODY).and_then(|text| text.strip_suffix(b"\"")) {
        LineBody::Base64(text)
    } else {
        return Err(content("no body"));
    };
    let (head, part) = split_part(head)?;
    let header = header::read(&[head, b"}"].concat(), &body.bytes()?)?;
    Ok(RecordLine { header, part, head, body })
}

impl<'a> LineBody<'a> {
    fn bytes(self) -> Result<Cow<'a, [u8]>, Flaw> {
        match self {
            LineBody::Json(json) => Ok(Cow::Borrowed(json)),
            LineBody::Base64(text) => {
                BASE64.decode(text).map(Cow::Owned).map_err(|error| content(error.to_string()))
            }
        }
    }
}

impl RecordLine<'_> {
    /// Returns the body, copied or decoded. The caller compares it with the header.
    pub(crate) fn body(&self) -> Result<Bytes, Flaw> {
        self.body.bytes().map(|body| match body {
            Cow::Borrowed(json) => Bytes::copy_from_slice(json),
            Cow::Owned(bytes) => bytes.into(),
        })
    }

    /// Appends the record to `out` as a line that is an append of its own.
    pub(crate) fn write_whole(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.head);
        match self.body {
            LineBody::Json(json) => {
                out.extend_from_slice(JSON_BODY);
                out.extend_from_slice(json);
            }
            LineBody::Base64(text) => {
                out.extend_from_slice(BASE64_BODY);
                out.extend_from_slice(text);
                out.push(b'"');
            }
        }
        write_sum(out, start);
    }
}

/// Ends a line with the same kind of checksum, for files that are not logs.
pub(crate) fn write_sum(out: &mut Vec<u8>, start: usize) {
    let sum = hex(crc32c::crc32c(&out[start..]));
    out.extend_from_slice(br#","sum":""#);
    out.extend_from_slice(&sum);
    out.extend_from_slice(b"\"}\n");
}

/// Returns the eight digits of a checksum.
fn hex(sum: u32) -> [u8; 8] {
    let mut digits = *b"00000000";
    for (pair, byte) in digits.chunks_exact_mut(2).zip(sum.to_be_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    digits
}

/// Returns the part before a line's checksum, if the checksum is right.
pub(crate) fn check_sum(line: &[u8]) -> Result<&[u8], Flaw> {
    let (inside, sum) = line.split_at(line.len().checked_sub(SUM).ok_or(Flaw::Sum)?);
    let digits =
        sum.strip_prefix(br#","sum":""#).and_then(|sum| sum.strip_suffix(br#""}"#)).ok_or(Flaw::Sum)?;
    // Compare the text: the same number in capitals, or with a sign, is another text.
    match hex(crc32c::crc32c(inside)) == digits {
        true => Ok(inside),
        false => Err(Flaw::Sum),
    }
}

fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("ids, numbers and text have JSON, and memory takes every write");
}

fn write_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("memory takes every write");
}

/// Returns whether the line can contain the body unchanged: one JSON value without surrounding space and line breaks.
fn is_line_of_json(body: &[u8]) -> bool {
    !body.contains(&b'\n')
        && body.len() <= MAX_BODY
        && serde_json::from_slice::<&RawValue>(body).is_ok_and(|value| value.get().len() == body.len())
}

/// Checks the version of a line. It is the first field of a line in every version.
pub(crate) fn version(inside: &[u8], key: &[u8], known: u64) -> Result<(), Flaw> {
    let rest = inside.strip_prefix(key).ok_or_else(|| content("the line does not start with its version"))?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let version = std::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse::<u64>().ok());
    match version {
        Some(version) if version > known => Err(Flaw::Newer(version)),
        Some(version) if version == known => Ok(()),
        _ => Err(content("the version of the line is unknown")),
    }
}

fn split_part(head: &[u8]) -> Result<(&[u8], Part), Flaw> {
    let Some(fields) = head.strip_suffix(b"]") else {
        return Ok((head, Part::WHOLE));
    };
    let key = find(fields, PART).ok_or_else(|| content("an array in the header"))?;
    let bad = || content("its part is not two numbers");
    let numbers = std::str::from_utf8(&fields[key + PART.len()..]).map_err(|_| bad())?;
    let (number, of) = numbers.split_once(',').ok_or_else(bad)?;
    let part = Part { number: number.parse().map_err(|_| bad())?, of: of.parse().map_err(|_| bad())? };
    if part.number < 1 || part.number > part.of {
        return Err(bad());
    }
    Ok((&head[..key], part))
}

fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    memmem::find(within, what)
}

#[cfg(test)]
mod tests;
