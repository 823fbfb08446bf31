//! Reads the end of a log. Distinguishes a torn end, which was never acknowledged, from damage, which the store never cuts off.
//!
//! A write that a crash cut short leaves its beginning: there is no newline at the end, or there are fewer lines than the append has. It may also
//! leave a file of full length in which lost sectors read as zeros. No valid line contains a zero byte. Any other flaw at the end of a log is
//! damage: a flipped bit in an acknowledged record must not remove that record.

use ferrata_store::{RecordHeader, Seq};

use crate::backward::{BackwardLines, LogSource};
use crate::error::FsStoreError;
use crate::line::{self, Flaw};

/// The smallest unit that a disk writes atomically.
const SECTOR: usize = 512;

/// The last complete append of a log.
#[derive(Clone, Debug)]
pub(crate) struct IntactTail {
    /// The offset of the end of the log. A torn write may follow.
    pub(crate) end: u64,
    /// The header of its last record. `prev` may be missing.
    pub(crate) head: RecordHeader,
}

/// Consecutive intact lines of one append.
struct LineRow {
    first: u32,
    last: u32,
    of: u32,
    end: u64,
    head: RecordHeader,
}

/// Finds the last complete append of a log with `len` bytes. The records begin at offset `floor` with number `first`.
pub(crate) fn read_tail(
    source: LogSource<'_>,
    floor: u64,
    first: Seq,
    len: u64,
) -> Result<IntactTail, FsStoreError> {
    let damaged = |at, what: &str, seq| FsStoreError::damaged(source.path, at, what).with_seq(seq);
    let mut lines = BackwardLines::new(source, floor, len);
    let (at, rest) = lines.remainder()?;
    // The line is intact, except for the byte in the place of its newline.
    let ends_wrongly = rest.split_last().is_some_and(|(_, line)| line::check_sum(line).is_ok());
    let mut broken = ends_wrongly.then_some(at);
    let mut torn = !rest.is_empty();
    let mut row: Option<LineRow> = None;
    let (begin, row) = loop {
        let Some((at, bytes)) = lines.previous()? else {
            return Err(damaged(floor, "no record is complete", first));
        };
        let end = at + bytes.len() as u64 + 1;
        let record = match line::read_record(bytes) {
            Ok(record) => record,
            Err(Flaw::Sum) => {
                if has_lost_sector(bytes, at) {
                    torn = true;
                } else {
                    broken = Some(at);
                }
                row = None;
                continue;
            }
            Err(flaw) => return Err(flaw_error(source.path, at, flaw)),
        };
        let part = record.part;
        let joined = match row.take() {
            Some(row) if row.first == part.number + 1 && row.of == part.of => {
                LineRow { first: part.number, ..row }
            }
            _ => LineRow { first: part.number, last: part.number, of: part.of, end, head: record.header },
        };
        if part.is_first() {
            break (at, joined);
        }
        row = Some(joined);
    };
    // Every line after `begin` belongs to the last append, or is no valid line: no line there is the first of another append.
    if let Some(at) = broken {
        return Err(damaged(at, "a line's checksum differs", after(row.head.seq)));
    }
    if row.last == row.of {
        if row.end < len && !torn {
            return Err(damaged(row.end, "a later line is in the middle of no append", after(row.head.seq)));
        }
        return Ok(IntactTail { end: row.end, head: row.head });
    }
    if row.end < len && !torn {
        return Err(damaged(row.end, "a later line belongs to another append", after(row.head.seq)));
    }
    match lines.previous()? {
        // A log gets its name only when its first append is durable, so the first append can never be torn.
        None => Err(damaged(begin, "the first append is incomplete", after(row.head.seq))),
        Some((at, bytes)) => match line::read_record(bytes) {
            Ok(record) if record.part.is_last() => Ok(IntactTail { end: begin, head: record.header }),
            Ok(record) => Err(damaged(begin, "an append is incomplete", after(record.header.seq))),
            Err(flaw) => Err(flaw_error(source.path, at, flaw)),
        },
    }
}

fn after(seq: Seq) -> Seq {
    Seq::new(seq.get().saturating_add(1))
}

/// Returns the error for a flaw in a line at `at`, where no torn write can be.
pub(crate) fn flaw_error(path: &std::path::Path, at: u64, flaw: Flaw) -> FsStoreError {
    match flaw {
        Flaw::Sum => FsStoreError::damaged(path, at, "a line's checksum differs"),
        Flaw::Content(what) => FsStoreError::damaged(path, at, what),
        Flaw::Newer(found) => {
            FsStoreError::NewerRecord { path: path.into(), seq: None, found, known: crate::header::LINE }
        }
    }
}

/// Returns whether the line at offset `at` contains a sector of zeros, counting only the bytes within the line.
fn has_lost_sector(line: &[u8], at: u64) -> bool {
    let into_sector = usize::try_from(at % SECTOR as u64).expect("less than a sector");
    let to_boundary = (SECTOR - into_sector) % SECTOR;
    let (head, sectors) = line.split_at(to_boundary.min(line.len()));
    std::iter::once(head)
        .chain(sectors.chunks(SECTOR))
        .any(|sector| !sector.is_empty() && sector.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests;
