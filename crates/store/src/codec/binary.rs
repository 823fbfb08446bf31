//! Headers in a binary form of about 50 bytes. Decoding returns a header or a typed error for any input.
//!
//! A header has these parts, in this order:
//!
//! 1. The record id, in 16 bytes.
//! 2. Three varints: the number of the record, the format, and the distance back to the newest base, in records.
//! 3. The kind in one byte: start 0, node 1, attempt 2, step 3, intent 4, status 5, signal 6, claim 7, release 8, edit 9, base 10.
//! 4. The status in one byte: in_progress 0, completed 1, failed 2, interrupted 3, awaiting_input 4, cancelled 5.
//! 5. One byte with a bit for each optional field, which says whether the field is present: `prev` 1, `owner` 2, `node` 4, `visit` 8, `wake_at` 16.
//! 6. Three varints: the epoch, the time and the length of the body.
//! 7. The checksum of the body, in 4 bytes, the highest first.
//! 8. The optional fields that are present, in the order of their bits. An id has 16 bytes; a name follows its length, a varint.
//!
//! A varint has seven bits in a byte, the lowest first; the highest bit means that more bytes follow. A time *t* in ms since the Unix epoch is the
//! varint 2*t*, or −2*t* − 1 if it is negative.
//!
//! Number, format and base stand near the front, so that a script in a server can read them.
//!
//! A prune can remove the newest base that a header names. It then makes the oldest record a base, so a load begins at the larger of the two numbers.
//! For [`InvalidHeader::Newer`], a store returns `Unsupported`.

use bytes::{BufMut as _, Bytes, BytesMut};
use uuid::Uuid;

use super::{Field, Shape, Value};
use crate::clock::Timestamp;
use crate::id::{HeadRef, NodeName, Seq};
use crate::record::{FORMAT, RecordHeader, RecordKind, RunStatus};

/// The fields that every header has, in their order. The distance to the base and the byte of bits stand between these groups.
const BEGINNING: [Field; 3] = [Field::Id, Field::Seq, Field::Format];
const KINDS: [Field; 2] = [Field::Kind, Field::Status];
const MIDDLE: [Field; 4] = [Field::Epoch, Field::At, Field::Len, Field::Crc];

/// The optional fields in the order of their bits, lowest bit first. First come the fields of the first version of the layout, then later fields in
/// the order of [`Field::ALL`].
const OPTIONAL: [Field; Field::ALL.len() - 10] = {
    use Field::{At, Base, Crc, Epoch, Format, Id, Kind, Len, Node, Owner, Prev, Seq, Status, Visit, WakeAt};
    let mut optional = [WakeAt; Field::ALL.len() - 10];
    [optional[0], optional[1], optional[2], optional[3], optional[4]] = [Prev, Owner, Node, Visit, WakeAt];
    let (mut count, mut at) = (5, 0);
    while at < Field::ALL.len() {
        let field = Field::ALL[at];
        let is_always_there =
            matches!(field, Id | Seq | Format | Base | Kind | Status | Epoch | At | Len | Crc);
        if !is_always_there && !matches!(field, Prev | Owner | Node | Visit | WakeAt) {
            optional[count] = field;
            count += 1;
        }
        at += 1;
    }
    // More than eight optional fields need a second byte of bits and a new version of the layout.
    assert!(count <= 8, "give the bits of the binary layout a second byte");
    optional
};

/// Iterates over the optional fields, each with its bit.
fn optional() -> impl Iterator<Item = (Field, u8)> + Clone {
    OPTIONAL.into_iter().zip((0..8).map(|bit| 1 << bit))
}

/// The reason why bytes are not a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidHeader {
    /// The bytes are too short, too long, or hold an invalid value.
    Damaged,
    /// A newer version of the library wrote the header.
    Newer {
        /// The number of the record.
        seq: u64,
        /// The format of the record.
        format: u64,
    },
}

/// Returns the first bytes of the header of the record at `head`. The header of any other record begins with other bytes.
pub fn beginning(head: &HeadRef) -> Bytes {
    let mut out = BytesMut::with_capacity(26);
    put(&mut out, Value::Id(*head.id.as_uuid()));
    put(&mut out, Value::Number(head.seq.get()));
    out.freeze()
}

/// Encodes a header. `base` is the number of the newest base at or before the record. Returns `None` if `base` is invalid, because every log begins
/// with a base.
pub fn write(header: &RecordHeader, base: Seq) -> Option<Bytes> {
    let back = match header.base {
        true => 0,
        false => header.seq.get().checked_sub(base.get()).filter(|back| *back > 0)?,
    };
    let mut out = BytesMut::with_capacity(96);
    let put_all = |out: &mut BytesMut, fields: &[Field]| {
        for field in fields {
            match header.field(*field)? {
                Value::Number(crc) if *field == Field::Crc => out.put_u32(u32::try_from(crc).ok()?),
                value => put(out, value),
            }
        }
        Some(())
    };
    put_all(&mut out, &BEGINNING)?;
    put(&mut out, Value::Number(back));
    put_all(&mut out, &KINDS)?;
    let there = optional().filter_map(|(field, bit)| match header.field(field) {
        Some(Value::Flag(false)) | None => None,
        Some(value) => Some((value, bit)),
    });
    out.put_u8(there.clone().fold(0, |bits, (_, bit)| bits | bit));
    put_all(&mut out, &MIDDLE)?;
    // The bit already holds the value of a flag, so a flag needs no further bytes.
    there.filter(|(value, _)| *value != Value::Flag(true)).for_each(|(value, _)| put(&mut out, value));
    Some(out.freeze())
}

/// Decodes a header. Also returns the number of the newest base at or before the record.
///
/// # Errors
///
/// [`InvalidHeader`]. Decoding never panics, whatever the bytes are.
pub fn read(bytes: &[u8]) -> Result<(RecordHeader, Seq), InvalidHeader> {
    read_up_to(bytes, FORMAT)
}

/// Decodes a header of any format up to `newest`.
#[doc(hidden)]
pub fn read_up_to(bytes: &[u8], newest: u16) -> Result<(RecordHeader, Seq), InvalidHeader> {
    let mut rest = UnreadBytes(bytes);
    let mut found = [const { None }; Field::ALL.len()];
    rest.all(&BEGINNING, &mut found).ok_or(InvalidHeader::Damaged)?;
    let [seq, format] = [Field::Seq, Field::Format].map(|field| match found[field as usize] {
        Some(Value::Number(number)) => number,
        _ => 0,
    });
    if format > u64::from(newest) {
        return Err(InvalidHeader::Newer { seq, format });
    }
    let base = rest.after_beginning(seq, &mut found).ok_or(InvalidHeader::Damaged)?;
    let read = |field: Field| Ok(found[field as usize].take());
    Ok((RecordHeader::from_fields(read, |_| InvalidHeader::Damaged)?, base))
}

/// Writes a value. A varint has seven bits of a number in each byte, the lowest first. The highest bit of a byte is set if another byte follows.
fn put(out: &mut BytesMut, value: Value) {
    let mut varint = |mut number: u64| {
        while number > 0x7f {
            out.put_u8(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        out.put_u8(number.to_le_bytes()[0]);
    };
    match value {
        Value::Number(number) => varint(number),
        // Zigzag: small numbers of both signs become small unsigned numbers.
        Value::Time(at) => varint((at.unix_ms() << 1 ^ at.unix_ms() >> 63).cast_unsigned()),
        Value::Id(id) => out.put_slice(id.as_bytes()),
        Value::Kind(kind) => out.put_u8(kind as u8),
        Value::Status(status) => out.put_u8(status as u8),
        Value::Name(name) => {
            varint(name.as_str().len() as u64);
            out.put_slice(name.as_str().as_bytes());
        }
        Value::Flag(is) => out.put_u8(u8::from(is)),
    }
}

/// The bytes that are not read yet. Methods return `None` if the bytes are too short or malformed.
struct UnreadBytes<'a>(&'a [u8]);

impl<'a> UnreadBytes<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // In the tenth byte, only one bit may be used.
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

    fn value(&mut self, field: Field) -> Option<Value> {
        Some(match field.shape() {
            Shape::Number if field == Field::Crc => {
                Value::Number(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?).into())
            }
            Shape::Number => Value::Number(self.number()?),
            Shape::Time => {
                let number = self.number()?;
                let half = (number >> 1).cast_signed();
                Value::Time(Timestamp::from_unix_ms(if number & 1 == 0 { half } else { !half }))
            }
            Shape::Id => Value::Id(Uuid::from_slice(self.bytes(16)?).ok()?),
            Shape::Kind => Value::Kind(*RecordKind::ALL.get(usize::from(self.byte()?))?),
            Shape::Status => Value::Status(*RunStatus::ALL.get(usize::from(self.byte()?))?),
            Shape::Name => {
                let length = usize::try_from(self.number()?).ok()?;
                Value::Name(NodeName::new(std::str::from_utf8(self.bytes(length)?).ok()?).ok()?)
            }
            // The bit of the flag says that it is set.
            Shape::Flag => Value::Flag(true),
        })
    }

    fn all(&mut self, fields: &[Field], found: &mut [Option<Value>]) -> Option<()> {
        fields.iter().try_for_each(|field| {
            found[*field as usize] = Some(self.value(*field)?);
            Some(())
        })
    }

    /// Reads the rest of the header, after id, number and format. Returns the number of the base.
    fn after_beginning(mut self, seq: u64, found: &mut [Option<Value>]) -> Option<Seq> {
        let back = self.number()?;
        found[Field::Base as usize] = Some(Value::Flag(back == 0));
        self.all(&KINDS, found)?;
        let mut there = self.byte()?;
        self.all(&MIDDLE, found)?;
        for (field, bit) in optional() {
            if there & bit != 0 {
                self.all(&[field], found)?;
            } else if field.shape() == Shape::Flag {
                found[field as usize] = Some(Value::Flag(false));
            }
            there &= !bit;
        }
        let base = Seq::new(seq.checked_sub(back)?);
        (self.0.is_empty() && there == 0).then_some(base)
    }
}

#[cfg(test)]
mod tests;
