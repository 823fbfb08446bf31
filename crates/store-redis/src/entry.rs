//! Records and heads as they are stored, and back. Whatever is stored, reading it gives a value or a typed fault.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use ferrata_core::record::{FORMAT, Record, RecordHeader, RecordKind, RunFacts, RunStatus};
use ferrata_core::store::RunHead;
use ferrata_core::{Epoch, ExecutorId, NodeName, RecordId, RunKey, Seq, Timestamp, Visit};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

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

/// A header as it is stored: what every record has by position, the rest by name, and ids in 22 characters. With all names,
/// and ids as they are usually written, a step would take half as much memory again.
#[derive(Serialize, Deserialize)]
struct Stored(u16, Seq, Id, Option<Id>, RecordKind, RunStatus, Epoch, Timestamp, u32, u32, More);

/// A UUID in base64, with `-` and `_` and without padding.
struct Id(Uuid);

/// Writes a record's id as it stands in headers.
pub(crate) fn id_text(id: &RecordId) -> String {
    BASE64.encode(id.as_uuid().as_bytes())
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(self.0.as_bytes()))
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = BASE64.decode(<&str>::deserialize(deserializer)?).map_err(D::Error::custom)?;
        Uuid::from_slice(&bytes).map(Self).map_err(D::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
struct More {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    visit: Option<Visit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wake_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    base: bool,
}

/// Encodes a header.
pub(crate) fn write_header(header: &RecordHeader) -> Result<Bytes, Fault> {
    // Taken apart by name, so that a field that is new cannot be forgotten here.
    let RecordHeader {
        format,
        seq,
        id,
        prev,
        kind,
        status,
        node,
        visit,
        epoch,
        owner,
        wake_at,
        at,
        base,
        body_len,
        body_crc,
    } = header.clone();
    let more = More { node, visit, owner: owner.map(|owner| Id(*owner.as_uuid())), wake_at, base };
    let (id, prev) = (Id(*id.as_uuid()), prev.map(|prev| Id(*prev.as_uuid())));
    let stored = Stored(format, seq, id, prev, kind, status, epoch, at, body_len, body_crc, more);
    let text = serde_json::to_vec(&stored);
    text.map(Bytes::from).map_err(|error| Fault::strange(format!("a header without JSON ({error})")))
}

/// Reads the version of a header, its first element in every version.
fn version(text: &[u8]) -> Option<u64> {
    let rest = text.strip_prefix(b"[")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

/// Reads a header; `seq` is the number it must have.
pub(crate) fn header_of(text: &[u8], seq: Option<Seq>) -> Result<RecordHeader, Fault> {
    if let Some(v) = version(text).filter(|v| *v > u64::from(FORMAT)) {
        let record = seq.map_or_else(|| "the last record".to_owned(), |seq| format!("record {seq}"));
        return Err(Fault::Newer {
            what: format!("{record} has format {v}, this version reads up to {FORMAT}: it is"),
        });
    }
    let Stored(format, found, id, prev, kind, status, epoch, at, body_len, body_crc, more) =
        serde_json::from_slice(text)
            .map_err(|error| Fault::corrupt(seq, format!("the record's header cannot be read ({error})")))?;
    if seq.is_some_and(|seq| seq != found) {
        return Err(Fault::corrupt(seq, format!("record {found} stands in its place")));
    }
    let More { node, visit, owner, wake_at, base } = more;
    Ok(RecordHeader {
        format,
        seq: found,
        id: RecordId::from_uuid(id.0),
        prev: prev.map(|prev| RecordId::from_uuid(prev.0)),
        kind,
        status,
        node,
        visit,
        epoch,
        owner: owner.map(|owner| ExecutorId::from_uuid(owner.0)),
        wake_at,
        at,
        base,
        body_len,
        body_crc,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        RecordHeader {
            format: FORMAT,
            seq: Seq::new(12),
            id: "019aa4b6-4500-768c-931c-6e7d5b8ea912".parse().unwrap(),
            prev: Some("019aa4b6-4500-768c-931c-6e7d5b8ea911".parse().unwrap()),
            kind: RecordKind::Node,
            status: RunStatus::InProgress,
            node: Some(NodeName::new("write").unwrap()),
            visit: Some(Visit::new(2)),
            epoch: Epoch::new(1),
            owner: Some("019aa4b6-4500-768c-931c-000000000001".parse().unwrap()),
            wake_at: None,
            at: Timestamp::from_unix_ms(1_763_700_000_000),
            base: false,
            body_len: 300,
            body_crc: 1_860_712_058,
        }
    }

    /// The stored form is a promise to every later version: it is never edited.
    #[test]
    fn a_header_is_stored_as_documented() {
        let text = write_header(&header()).unwrap();
        let expected = r#"[1,12,"AZqktkUAdoyTHG59W46pEg","AZqktkUAdoyTHG59W46pEQ","node","in_progress",1,1763700000000,300,1860712058,{"node":"write","visit":2,"owner":"AZqktkUAdoyTHAAAAAAAAQ"}]"#;
        assert_eq!(text, expected);
        assert_eq!(header_of(&text, Some(Seq::new(12))).unwrap(), header());
        let first = RecordHeader {
            prev: None,
            node: None,
            visit: None,
            owner: None,
            wake_at: Some(Timestamp::from_unix_ms(-1)),
            base: true,
            ..header()
        };
        let text = write_header(&first).unwrap();
        assert!(text.ends_with(br#",{"wake_at":-1,"base":true}]"#), "{text:?}");
        assert_eq!(header_of(&text, None).unwrap(), first);
    }

    #[test]
    fn what_is_no_header_is_a_fault_and_a_newer_one_is_not_damage() {
        let good = write_header(&header()).unwrap();
        assert!(matches!(header_of(&good, Some(Seq::new(11))), Err(Fault::Corrupt { .. })));
        for newer in [&b"[2]"[..], b"[2,{}]", b"[10,\"x\"", b"[2"] {
            assert!(matches!(header_of(newer, None), Err(Fault::Newer { .. })), "{newer:?}");
        }
        for cut in 0..good.len() {
            assert!(matches!(header_of(&good[..cut], None), Err(Fault::Corrupt { .. })), "cut at {cut}");
        }
        for broken in [&b"null"[..], b"[]", b"[-1]", b"\xff", b"[99999999999999999999999]"] {
            assert!(matches!(header_of(broken, None), Err(Fault::Corrupt { .. })), "{broken:?}");
        }
    }
}
