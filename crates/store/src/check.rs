//! Checks that all stores share. They decide which entries of a batch a store may write, whether an append repeats an earlier one, whether a base
//! fits its position, and whether the records that a store read are a valid result of a load.

use std::collections::HashSet;

use super::contract::{PruneCut, RunAppend};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey, Seq};
use crate::query::At;
use crate::record::{Record, RecordHeader};
use crate::refusal;

/// Checks each entry of a batch. Returns one result for each entry, in order.
///
/// A run may have one entry in a batch: this function refuses its second and every further entry. `check` runs for each entry: pass
/// [`check_append`](crate::check_append), together with any other check that the store makes before it writes.
pub fn check_batch(batch: &[RunAppend], check: impl Fn(&RunAppend) -> Result<()>) -> Vec<Result<()>> {
    let mut seen = HashSet::with_capacity(batch.len());
    let mut admit = |append: &RunAppend| match seen.insert(append.run.clone()) {
        true => check(append),
        false => Err(refusal::doubled(&append.run)),
    };
    batch.iter().map(&mut admit).collect()
}

/// Returns whether the log already ends with the records of `append`, so that the store returns `Ok` and writes nothing.
///
/// `newest_first` are the headers of the stored records, from the head backward. The check reads at most as many headers as the append has records.
/// To compare headers is enough, because a header contains the length and the checksum of the body.
///
/// A prune between the lost reply and the retry does not change the answer. Removed records count as written, because later records chain to them.
/// A stored record that a prune turned into a base counts as the record that the append holds.
pub fn is_repeat<'a>(newest_first: impl IntoIterator<Item = &'a RecordHeader>, append: &RunAppend) -> bool {
    let mut given = append.records.iter().rev().map(|record| &record.header);
    let mut kept = newest_first.into_iter();
    let (Some(head), Some(last)) = (kept.next(), given.next()) else { return false };
    is_same(head, last) && given.zip(kept).all(|(given, kept)| is_same(kept, given))
}

fn is_same(kept: &RecordHeader, given: &RecordHeader) -> bool {
    // Compare the ids first: they differ in nearly every call that is no repeat.
    kept.id == given.id
        && (kept == given || kept.base && !given.base && *kept == with_base_fields(given, kept))
}

/// Returns `header` with the fields that a base changes (format, base flag, length, checksum) taken from `base`.
fn with_base_fields(header: &RecordHeader, base: &RecordHeader) -> RecordHeader {
    RecordHeader {
        format: base.format,
        base: true,
        body_len: base.body_len,
        body_crc: base.body_crc,
        ..header.clone()
    }
}

/// Checks the records that a store has read for a load up to `last`. The first record must be a base, the numbers must have no gap, and each record
/// must name the record before it. [`Record::verify`] checks whether a record is damaged.
///
/// The check goes from the last record backward. A store that counts positions numbers the earlier records wrongly if a record is missing, so a
/// check from the front would blame the wrong record.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`], with the run, and with the record that is missing or does not chain to the record before it.
pub fn check_loaded(run: &RunKey, records: &[Record], last: Seq) -> Result<()> {
    let mut expected = Some(last);
    let mut after: Option<&RecordHeader> = None;
    for header in records.iter().rev().map(|record| &record.header) {
        match expected {
            Some(seq) if seq == header.seq => {}
            Some(seq) => return Err(refusal::gone(run, seq)),
            None => return Err(refusal::corrupt(run, header.seq, "a record precedes the first record")),
        }
        if let Some(after) = after.filter(|after| after.prev != Some(header.id)) {
            return Err(refusal::corrupt(run, after.seq, "the record does not follow the previous record"));
        }
        expected = header.seq.get().checked_sub(1).map(Seq::new);
        after = Some(header);
    }
    match after {
        Some(first) if first.base => Ok(()),
        _ => Err(refusal::corrupt(run, last, "no base exists at or before the record")),
    }
}

/// Checks that the result of a load by record id ends with that record. A damaged index or number can lead a store to another record.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`], with the run, and with the record that was loaded instead.
pub fn check_asked(run: &RunKey, at: At, records: &[Record]) -> Result<()> {
    match (at, records.last()) {
        (At::Record(id), Some(last)) if last.header.id != id => {
            Err(refusal::corrupt(run, last.header.seq, "another record has this number"))
        }
        _ => Ok(()),
    }
}

/// Checks the records that a store has read after the record `known`: the numbers have no gap, and each record names the record before it.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`], with the run, and with the record that is missing or does not chain to the record before it.
pub fn check_news(run: &RunKey, known: HeadRef, records: &[Record]) -> Result<()> {
    let mut before = known;
    for header in records.iter().map(|record| &record.header) {
        if header.seq != before.seq.next() {
            return Err(refusal::gone(run, before.seq.next()));
        }
        if header.prev != Some(before.id) {
            return Err(refusal::corrupt(run, header.seq, "the record does not follow the previous record"));
        }
        before = header.head();
    }
    Ok(())
}

/// Checks a cut against the header of the stored record at `cut.at`. Returns the base that replaces that record, or `None` if the record is a base
/// already.
///
/// # Errors
///
/// [`ErrorKind::Invalid`]: the stored record is no base and the caller gave no base. Or the given record is another record, is no base, or is not
/// sealed. The store must change nothing.
pub fn check_prune<'a>(run: &RunKey, kept: &RecordHeader, cut: &'a PruneCut) -> Result<Option<&'a Record>> {
    let refuse = |message: &str| {
        Error::new(ErrorKind::Invalid, message).with_operation("store.prune").with_run(run).with_seq(cut.at)
    };
    let Some(base) = &cut.base else {
        return if kept.base {
            Ok(None)
        } else {
            Err(refuse("the record is not a base; cut at a base, or pass a base for this position"))
        };
    };
    if !base.header.base {
        return Err(refuse("the given record is not a base; pass a record with the full state"));
    }
    base.verify(run)
        .map_err(|source| refuse("the given base cannot be stored; seal it first").with_source(source))?;
    // A stored base stays unchanged, so the length and checksum of the given one do not matter.
    if with_base_fields(kept, &base.header) != base.header {
        return Err(refuse(
            "the given base is another record; pass the record at the cut, converted to a base",
        ));
    }
    Ok((!kept.base).then_some(base))
}
