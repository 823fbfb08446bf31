//! The header of a record in its line. It omits common values and values that other parts of the line imply.

use ferrata_store::codec::{Field, JsonHeader, JsonLayout, Value};
use ferrata_store::{FORMAT, RecordHeader, RecordId, RecordKind, RunStatus};

use crate::line::{Flaw, content};

/// The version of a line.
pub(crate) const LINE: u64 = 1;

// A line of version 1 holds a record of format 1. A newer format needs a newer version of lines.
const _: () = assert!(FORMAT == 1, "give records of another format a version of lines");

/// The layout of headers in lines. The line's version replaces the header's format. Length and checksum follow from the body.
enum HeaderLine {}

impl JsonLayout for HeaderLine {
    const SHORT_IDS: bool = true;

    fn key(field: Field) -> Option<&'static str> {
        (!matches!(field, Field::Len | Field::Crc)).then(|| field.name())
    }
}

/// The values of most records, which a line omits.
fn assumed(field: Field) -> Option<Value> {
    match field {
        Field::Kind => Some(Value::Kind(RecordKind::Node)),
        Field::Status => Some(Value::Status(RunStatus::InProgress)),
        Field::Epoch => Some(Value::Number(1)),
        Field::Base => Some(Value::Flag(false)),
        _ => None,
    }
}

/// Writes the part of a line before the body, without its closing brace.
pub(crate) fn write(out: &mut Vec<u8>, header: &RecordHeader, prev: Option<RecordId>) {
    let mut said = JsonHeader::<HeaderLine>::of(header, assumed);
    said.set(Field::Format, Some(Value::Number(LINE)));
    said.set(Field::Prev, prev.map(|id| Value::Id(*id.as_uuid())));
    serde_json::to_writer(&mut *out, &said)
        .expect("ids, numbers and text have JSON, and memory takes every write");
    out.pop();
}

/// Parses the part of a line before the body, after its closing brace was added again.
pub(crate) fn read(json: &[u8], body: &[u8]) -> Result<RecordHeader, Flaw> {
    let wrong = |error: serde_json::Error| content(error.to_string());
    // Check once that the text is UTF-8. A parser of bytes would check each string again.
    let json = std::str::from_utf8(json).map_err(|error| content(error.to_string()))?;
    let mut said: JsonHeader<HeaderLine> = serde_json::from_str(json).map_err(wrong)?;
    said.set(Field::Format, Some(Value::Number(FORMAT.into())));
    said.set(Field::Len, Some(Value::Number(body.len() as u64)));
    said.set(Field::Crc, Some(Value::Number(crc32c::crc32c(body).into())));
    said.header(assumed).map_err(|field| content(format!("no `{}`, or a wrong one", field.name())))
}
