//! Checks that all stores share: which entries of a batch they may write, whether an append is a repeat, whether a base fits its position, and
//! whether the records that were read are the result of a load.

use std::collections::HashSet;

use super::contract::{PruneCut, RunAppend};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey, Seq};
use crate::query::At;
use crate::record::{Record, RecordHeader};
use crate::refusal;

/// Checks each entry of a batch, and refuses every further entry of a run that stands in it already. One result for each, in order.
///
/// `check` is [`check_append`](crate::check_append), and whatever else the store must refuse before it writes.
pub fn check_batch(batch: &[RunAppend], check: impl Fn(&RunAppend) -> Result<()>) -> Vec<Result<()>> {
    let mut seen = HashSet::with_capacity(batch.len());
    let mut admit = |append: &RunAppend| match seen.insert(append.run.clone()) {
        true => check(append),
        false => Err(refusal::doubled(&append.run)),
    };
    batch.iter().map(&mut admit).collect()
}

/// Returns whether `append` already is the end of the log, so that the store returns `Ok` and writes nothing.
///
/// `newest_first` are the headers of the stored records, from the head backward; the check reads at most as many as the append has. A header stands
/// for its record, because it contains the length and the checksum of the body.
///
/// Pruning between the lost reply and the retry does not turn the retry into another append. Removed records count as written, because later
/// records chain to them. A record that has become a base counts as the original.
pub fn is_repeat<'a>(newest_first: impl IntoIterator<Item = &'a RecordHeader>, append: &RunAppend) -> bool {
    let mut given = append.records.iter().rev().map(|record| &record.header);
    let mut kept = newest_first.into_iter();
    let (Some(head), Some(last)) = (kept.next(), given.next()) else { return false };
    is_same(head, last) && given.zip(kept).all(|(given, kept)| is_same(kept, given))
}

fn is_same(kept: &RecordHeader, given: &RecordHeader) -> bool {
    // The ids differ in nearly every call that is no repeat.
    kept.id == given.id
        && (kept == given || kept.base && !given.base && *kept == with_base_fields(given, kept))
}

/// Returns `header` with what a base has of its own taken from `base`.
fn with_base_fields(header: &RecordHeader, base: &RecordHeader) -> RecordHeader {
    RecordHeader {
        format: base.format,
        base: true,
        body_len: base.body_len,
        body_crc: base.body_crc,
        ..header.clone()
    }
}

/// Checks what a store has read for a load up to `last`: from a base on, in order and without a gap, each record naming the one
/// before it. Whether a record is damaged is for [`Record::verify`] to say.
///
/// Checks from the end backward: in a store that counts positions, a missing record shifts the earlier ones, which are not at fault.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`], naming the run and the record that is missing or does not follow.
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

/// Checks that a load by record id ends with that record. A damaged index or number may have led to another one.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`], naming the run and the record that was loaded instead.
pub fn check_asked(run: &RunKey, at: At, records: &[Record]) -> Result<()> {
    match (at, records.last()) {
        (At::Record(id), Some(last)) if last.header.id != id => {
            Err(refusal::corrupt(run, last.header.seq, "another record has this number"))
        }
        _ => Ok(()),
    }
}

/// Checks what a store has read after a record that its caller knows: in order and without a gap, each record naming the one before it.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`], naming the run and the record that is missing or does not follow.
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

/// Checks a cut against the header of the record at `cut.at`, and returns the base to put there, if one is needed.
///
/// # Errors
///
/// [`ErrorKind::Invalid`]: the record is no base and the caller gave none, or the given record is another one, no base or not sealed. The store
/// must change nothing.
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
