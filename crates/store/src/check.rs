//! What every store decides alike: whether an append is a repeat, and whether a base fits the place it is meant for.

use super::contract::{PruneCut, RunAppend};
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::record::{Record, RecordHeader};

/// Tells whether `append` already is the end of the log, so that its answer is `Ok` and nothing is written.
///
/// `newest_first` are the headers of the records kept, from the head backwards; at most as many as the append has are read.
/// A header stands for its record, because it holds the length and the checksum of the body.
///
/// Pruning between the lost reply and the retry does not make the retry another append: records that are gone are taken as
/// written, since the ones after them chain to them, and a record that has since become a base counts as the one it was.
pub fn is_repeat<'a>(newest_first: impl IntoIterator<Item = &'a RecordHeader>, append: &RunAppend) -> bool {
    let mut given = append.records.iter().rev().map(|record| &record.header);
    let mut kept = newest_first.into_iter();
    let (Some(head), Some(last)) = (kept.next(), given.next()) else { return false };
    is_same(head, last) && given.zip(kept).all(|(given, kept)| is_same(kept, given))
}

fn is_same(kept: &RecordHeader, given: &RecordHeader) -> bool {
    // The ids differ in nearly every call that is no repeat.
    kept.id == given.id && (kept == given || kept.base && !given.base && *kept == in_place_of(given, kept))
}

/// Returns `header` with what a base has of its own taken from `base`.
fn in_place_of(header: &RecordHeader, base: &RecordHeader) -> RecordHeader {
    RecordHeader {
        format: base.format,
        base: true,
        body_len: base.body_len,
        body_crc: base.body_crc,
        ..header.clone()
    }
}

/// Checks a cut against the header of the record at `cut.at`, and returns the base to put there, if one is needed.
///
/// # Errors
///
/// [`ErrorKind::Invalid`]: the record is no base and none was given, or what was given is another record, no base or not
/// sealed. Nothing may be changed.
///
/// <!-- held by: prune::pruning_with_another_record_is_refused -->
pub fn check_prune<'a>(run: &RunKey, kept: &RecordHeader, cut: &'a PruneCut) -> Result<Option<&'a Record>> {
    let refuse = |message: &str| {
        Error::new(ErrorKind::Invalid, message).with_operation("store.prune").with_run(run).with_seq(cut.at)
    };
    let Some(base) = &cut.base else {
        return if kept.base {
            Ok(None)
        } else {
            Err(refuse("the record is no base; cut at a base, or give one for this place"))
        };
    };
    if !base.header.base {
        return Err(refuse("the record given is no base; give one that holds the full state"));
    }
    base.verify(run)
        .map_err(|source| refuse("the base given cannot be kept; seal it first").with_source(source))?;
    // A record that is a base already stays as it is, so its own length and checksum do not matter here.
    if in_place_of(kept, &base.header) != base.header {
        return Err(refuse("the base given is another record; give the one at the cut, turned into a base"));
    }
    Ok((!kept.base).then_some(base))
}
