//! Headers as they are stored: some fifty bytes, and back. Whatever is stored, reading it gives a value or a typed fault.

use bytes::{BufMut as _, Bytes, BytesMut};
use ferrata_store::{
    Epoch, ExecutorId, FORMAT, HeadRef, NodeName, RecordHeader, RecordId, RecordKind, RunStatus, Seq,
    Timestamp, Visit,
};
use uuid::Uuid;

use crate::error::Fault;

/// What is stored for each kind: its place here, for good. New ones come at the end.
const KINDS: [RecordKind; 11] = [
    RecordKind::Start,
    RecordKind::Node,
    RecordKind::Attempt,
    RecordKind::Step,
    RecordKind::Intent,
    RecordKind::Status,
    RecordKind::Signal,
    RecordKind::Claim,
    RecordKind::Release,
    RecordKind::Edit,
    RecordKind::Base,
];

/// What is stored for each status, in the same way.
const STATUSES: [RunStatus; 6] = [
    RunStatus::InProgress,
    RunStatus::Completed,
    RunStatus::Failed,
    RunStatus::Interrupted,
    RunStatus::AwaitingInput,
    RunStatus::Cancelled,
];

/// Which of the fields that not every header has are there: a bit for each, and they follow in this order.
const PREV: u8 = 1;
const OWNER: u8 = 2;
const NODE: u8 = 4;
const VISIT: u8 = 8;
const WAKE_AT: u8 = 16;

/// Returns what the header of this record begins with, and no other header.
pub(crate) fn beginning(head: &HeadRef) -> Bytes {
    let mut text = BytesMut::with_capacity(26);
    text.put_slice(head.id.as_uuid().as_bytes());
    put(&mut text, head.seq.get());
    text.freeze()
}

/// Encodes a header; `base` is the number of the newest base up to it.
pub(crate) fn write_header(header: &RecordHeader, base: Seq) -> Result<Bytes, Fault> {
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
        base: is_base,
        body_len,
        body_crc,
    } = header;
    let back = if *is_base { Some(0) } else { seq.get().checked_sub(base.get()).filter(|back| *back > 0) };
    let back = back.ok_or_else(|| Fault::strange("a record without a base before it"))?;
    let mut text = BytesMut::with_capacity(96);
    text.put_slice(id.as_uuid().as_bytes());
    put(&mut text, seq.get());
    put(&mut text, u64::from(*format));
    put(&mut text, back);
    text.put_u8(code(&KINDS, kind)?);
    text.put_u8(code(&STATUSES, status)?);
    let bit = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
    text.put_u8(
        bit(prev.is_some(), PREV)
            | bit(owner.is_some(), OWNER)
            | bit(node.is_some(), NODE)
            | bit(visit.is_some(), VISIT)
            | bit(wake_at.is_some(), WAKE_AT),
    );
    put(&mut text, u64::from(epoch.get()));
    put(&mut text, zigzag(at.unix_ms()));
    put(&mut text, u64::from(*body_len));
    text.put_u32(*body_crc);
    if let Some(prev) = prev {
        text.put_slice(prev.as_uuid().as_bytes());
    }
    if let Some(owner) = owner {
        text.put_slice(owner.as_uuid().as_bytes());
    }
    if let Some(node) = node {
        put(&mut text, node.as_str().len() as u64);
        text.put_slice(node.as_str().as_bytes());
    }
    if let Some(visit) = visit {
        put(&mut text, u64::from(visit.get()));
    }
    if let Some(wake_at) = wake_at {
        put(&mut text, zigzag(wake_at.unix_ms()));
    }
    Ok(text.freeze())
}

/// Reads a header; `seq` is the number it must have.
pub(crate) fn header_of(text: &[u8], seq: Option<Seq>) -> Result<RecordHeader, Fault> {
    let header = read(text, seq)?.0;
    if let Some(seq) = seq.filter(|seq| *seq != header.seq) {
        return Err(Fault::corrupt(Some(seq), format!("record {} stands in its place", header.seq)));
    }
    Ok(header)
}

/// Reads a header, and the number of the newest base up to it.
pub(crate) fn read(text: &[u8], seq: Option<Seq>) -> Result<(RecordHeader, Seq), Fault> {
    let fault = || Fault::corrupt(seq, "the record's header cannot be read");
    let mut rest = Rest(text);
    let id = rest.uuid().ok_or_else(fault)?;
    let found = rest.number().ok_or_else(fault)?;
    let format = rest.number().ok_or_else(fault)?;
    if format > u64::from(FORMAT) {
        return Err(Fault::Newer {
            what: format!("record {found} has format {format}, this version reads up to {FORMAT}: it is"),
        });
    }
    rest.after(id, Seq::new(found), u16::try_from(format).map_err(|_| fault())?).ok_or_else(fault)
}

fn code<T: PartialEq>(table: &[T], value: &T) -> Result<u8, Fault> {
    let place = table.iter().position(|known| known == value).and_then(|place| u8::try_from(place).ok());
    place.ok_or_else(|| Fault::Unfit { what: "this version of the store has no code for the record".into() })
}

/// Seven bits in each byte, the lowest first; the highest bit says that more follow.
fn put(text: &mut BytesMut, mut number: u64) {
    while number > 0x7f {
        text.put_u8(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    text.put_u8(number.to_le_bytes()[0]);
}

/// Makes small numbers of both signs small numbers.
fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

/// What is left to read; `None` says that it is too short, or no such thing.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn uuid(&mut self) -> Option<Uuid> {
        Uuid::from_slice(self.bytes(16)?).ok()
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has one bit left to give.
            if shift > 63 || shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            shift += 7;
            if byte < 0x80 {
                return Some(number);
            }
        }
    }

    fn time(&mut self) -> Option<Timestamp> {
        let number = self.number()?;
        let half = (number >> 1).cast_signed();
        Some(Timestamp::from_unix_ms(if number & 1 == 0 { half } else { !half }))
    }

    /// Reads what follows id, number and format, to the end.
    fn after(mut self, id: Uuid, seq: Seq, format: u16) -> Option<(RecordHeader, Seq)> {
        let back = self.number()?;
        let base = Seq::new(seq.get().checked_sub(back)?);
        let kind = *KINDS.get(usize::from(self.byte()?))?;
        let status = *STATUSES.get(usize::from(self.byte()?))?;
        let there = self.byte()?;
        let epoch = Epoch::new(self.number()?.try_into().ok()?);
        let at = self.time()?;
        let body_len = u32::try_from(self.number()?).ok()?;
        let body_crc = u32::from_be_bytes(self.bytes(4)?.try_into().ok()?);
        let prev = if there & PREV == 0 { None } else { Some(RecordId::from_uuid(self.uuid()?)) };
        let owner = if there & OWNER == 0 { None } else { Some(ExecutorId::from_uuid(self.uuid()?)) };
        let node = match there & NODE {
            0 => None,
            _ => {
                let length = usize::try_from(self.number()?).ok()?;
                let name = std::str::from_utf8(self.bytes(length)?).ok()?;
                Some(NodeName::new(name).ok()?)
            }
        };
        let visit = if there & VISIT == 0 { None } else { Some(Visit::new(self.number()?.try_into().ok()?)) };
        let wake_at = if there & WAKE_AT == 0 { None } else { Some(self.time()?) };
        let is_all = self.0.is_empty() && there >> 5 == 0;
        let header = RecordHeader {
            format,
            seq,
            id: RecordId::from_uuid(id),
            prev,
            kind,
            status,
            node,
            visit,
            epoch,
            owner,
            wake_at,
            at,
            base: back == 0,
            body_len,
            body_crc,
        };
        is_all.then_some((header, base))
    }
}

#[cfg(test)]
mod tests;
