//! The header of a record as its line holds it: without what is the same in most, and what the line itself tells.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ferrata_store::{
    Epoch, ExecutorId, FORMAT, NodeName, RecordHeader, RecordId, RecordKind, RunStatus, Seq, Timestamp, Visit,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::line::{Flaw, content};

/// The version of the lines that are written, and the newest that is read. Those of version 1 spell out all that
/// `RecordHeader` has.
pub(crate) const LINE: u64 = 2;

// A line of version 2 holds a record of format 1; a newer format asks for a newer version of lines.
const _: () = assert!(FORMAT == 1, "give records of another format a version of lines");

/// What stands in a line. What is left out is what most records have.
#[derive(Serialize, Deserialize)]
struct Written<'a> {
    #[serde(rename = "v")]
    version: u64,
    seq: Seq,
    id: Short,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prev: Option<Short>,
    #[serde(default = "node", skip_serializing_if = "is_node")]
    kind: RecordKind,
    #[serde(default, skip_serializing_if = "is_in_progress")]
    status: RunStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<Cow<'a, NodeName>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    visit: Option<Visit>,
    #[serde(default = "first_epoch", skip_serializing_if = "is_first_epoch")]
    epoch: Epoch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Short>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wake_at: Option<Timestamp>,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    base: bool,
}

/// Appends what stands before the body, without the brace that would end it.
pub(crate) fn write(out: &mut Vec<u8>, header: &RecordHeader, prev: Option<RecordId>) {
    let written = Written {
        version: LINE,
        seq: header.seq,
        id: Short(*header.id.as_uuid()),
        prev: prev.map(|id| Short(*id.as_uuid())),
        kind: header.kind,
        status: header.status,
        node: header.node.as_ref().map(Cow::Borrowed),
        visit: header.visit,
        epoch: header.epoch,
        owner: header.owner.map(|id| Short(*id.as_uuid())),
        wake_at: header.wake_at,
        at: header.at,
        base: header.base,
    };
    serde_json::to_writer(&mut *out, &written)
        .expect("ids, numbers and text have JSON, and memory takes every write");
    out.pop();
}

/// Reads what stands before the body in a line of this version, its brace put back.
pub(crate) fn read(version: u64, json: &[u8], body: &[u8]) -> Result<RecordHeader, Flaw> {
    let wrong = |error: serde_json::Error| content(error.to_string());
    if version < LINE {
        // Spelled out, with the body's length and checksum, which the caller compares.
        return serde_json::from_slice(json).map_err(wrong);
    }
    let written: Written<'_> = serde_json::from_slice(json).map_err(wrong)?;
    Ok(RecordHeader {
        format: FORMAT,
        seq: written.seq,
        id: RecordId::from_uuid(written.id.0),
        prev: written.prev.map(|id| RecordId::from_uuid(id.0)),
        kind: written.kind,
        status: written.status,
        node: written.node.map(Cow::into_owned),
        visit: written.visit,
        epoch: written.epoch,
        owner: written.owner.map(|id| ExecutorId::from_uuid(id.0)),
        wake_at: written.wake_at,
        at: written.at,
        base: written.base,
        body_len: u32::try_from(body.len()).map_err(|_| content("a body of 4 GiB"))?,
        body_crc: crc32c::crc32c(body),
    })
}

fn node() -> RecordKind {
    RecordKind::Node
}

fn first_epoch() -> Epoch {
    Epoch::new(1)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_node(kind: &RecordKind) -> bool {
    *kind == node()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_in_progress(status: &RunStatus) -> bool {
    *status == RunStatus::InProgress
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_first_epoch(epoch: &Epoch) -> bool {
    *epoch == first_epoch()
}

/// The 16 bytes of an id in 22 characters of base64: there are up to three in each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Short(Uuid);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Short {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(text.as_bytes()).map_err(serde::de::Error::custom)?;
        Uuid::from_slice(&bytes).map(Self).map_err(serde::de::Error::custom)
    }
}
