//! Records and heads as they are stored, and back. Whatever is stored, reading it gives a value or a typed fault.

use bytes::Bytes;
use ferrata_core::record::{FORMAT, Record, RecordHeader, RunFacts};
use ferrata_core::store::RunHead;
use ferrata_core::{RunKey, Seq};
use serde::Deserialize;

use crate::error::Fault;
use crate::layout::LAYOUT;
use crate::reply::Parts;

/// The fields of a run's hash that make its head, in this order.
pub(crate) const HEAD_FIELDS: [&str; 7] = ["layout", "seq", "first", "header", "facts", "member", "places"];

/// A run's hash without what was cut.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) last: RecordHeader,
    pub(crate) first: Seq,
    pub(crate) facts: RunFacts,
    pub(crate) member: Bytes,
    pub(crate) places: Bytes,
}

impl Head {
    /// Reads the reply to `HMGET` with [`HEAD_FIELDS`]; `None` if there is no such run.
    pub(crate) fn read(mut reply: Parts) -> Result<Option<Self>, Fault> {
        let (layout, seq, first) = (reply.optional()?, reply.optional()?, reply.optional()?);
        let (header, facts) = (reply.optional()?, reply.optional()?);
        let (member, places) = (reply.optional()?, reply.optional()?);
        let Some(layout) = layout else {
            let is_rest = [&seq, &first, &header, &facts, &member, &places].into_iter().any(Option::is_some);
            return if is_rest {
                Err(Fault::corrupt(None, "the run's hash lacks its layout"))
            } else {
                Ok(None)
            };
        };
        check_layout(&String::from_utf8_lossy(&layout))?;
        let lacks = |field: &str| Fault::corrupt(None, format!("the run's hash lacks its `{field}`"));
        let last = header_of(&header.ok_or_else(|| lacks("header"))?, None)?;
        let seq = number(&seq.ok_or_else(|| lacks("seq"))?)?;
        if last.seq != seq {
            return Err(Fault::corrupt(
                Some(seq),
                format!("the run's hash holds the header of record {}", last.seq),
            ));
        }
        let facts = facts.ok_or_else(|| lacks("facts"))?;
        let facts = serde_json::from_slice(&facts)
            .map_err(|error| Fault::corrupt(None, format!("the run's facts cannot be read ({error})")))?;
        Ok(Some(Self {
            last,
            first: number(&first.ok_or_else(|| lacks("first"))?)?,
            facts,
            member: member.ok_or_else(|| lacks("member"))?,
            places: places.ok_or_else(|| lacks("places"))?,
        }))
    }

    pub(crate) fn into_run_head(self, run: RunKey, owner_alive: bool) -> RunHead {
        RunHead::after(run, self.first, &self.last, owner_alive, self.facts)
    }
}

fn number(text: &[u8]) -> Result<Seq, Fault> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number
        .map(Seq::new)
        .ok_or_else(|| Fault::corrupt(None, "the run's hash holds a text where a number belongs"))
}

/// Refuses a layout that this version does not read.
pub(crate) fn check_layout(layout: &str) -> Result<(), Fault> {
    match layout.parse::<u64>() {
        Ok(LAYOUT) => Ok(()),
        Ok(newer) if newer > LAYOUT => Err(Fault::Newer { what: format!("the run has layout {newer},") }),
        _ => Err(Fault::corrupt(None, format!("the run's layout is {layout:?}"))),
    }
}

/// Encodes a header.
pub(crate) fn write_header(header: &RecordHeader) -> Result<Bytes, Fault> {
    let text = serde_json::to_vec(header)
        .map_err(|error| Fault::strange(format!("a header without JSON ({error})")))?;
    Ok(text.into())
}

/// Just the version, whatever else a later one changes.
#[derive(Deserialize)]
struct Version {
    v: u64,
}

/// Reads a header; `seq` is the number it must have.
pub(crate) fn header_of(text: &[u8], seq: Option<Seq>) -> Result<RecordHeader, Fault> {
    let broken = |error: serde_json::Error| {
        Fault::corrupt(seq, format!("the record's header cannot be read ({error})"))
    };
    let Version { v } = serde_json::from_slice(text).map_err(broken)?;
    if v > u64::from(FORMAT) {
        let record = seq.map_or_else(|| "the last record".to_owned(), |seq| format!("record {seq}"));
        return Err(Fault::Newer {
            what: format!("{record} has format {v}, this version reads up to {FORMAT}: it is"),
        });
    }
    let header: RecordHeader = serde_json::from_slice(text).map_err(broken)?;
    if seq.is_some_and(|seq| seq != header.seq) {
        return Err(Fault::corrupt(seq, format!("record {} stands in its place", header.seq)));
    }
    Ok(header)
}

/// Reads one entry of a stream, `[id, [h, header, p, base, b, body]]`, which must be this record.
pub(crate) fn record_of(entry: redis::Value, seq: Seq) -> Result<Record, Fault> {
    let mut entry = Parts::of(entry)?;
    let id = entry.text()?;
    if id.strip_suffix("-1").and_then(|id| id.parse().ok()) != Some(seq.get()) {
        return Err(Fault::corrupt(Some(seq), format!("the record is gone; entry {id} stands in its place")));
    }
    let mut fields = entry.parts()?;
    let (mut header, mut body) = (None, None);
    while fields.len() >= 2 {
        match &*fields.bytes()? {
            b"h" => header = Some(fields.bytes()?),
            b"b" => body = Some(fields.bytes()?),
            _ => drop(fields.value()?),
        }
    }
    let (Some(header), Some(body)) = (header, body) else {
        return Err(Fault::corrupt(Some(seq), "the record lacks its header or its body"));
    };
    Ok(Record { header: header_of(&header, Some(seq))?, body })
}
