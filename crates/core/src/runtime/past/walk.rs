//! Reading a run's log from its oldest record on, one base at a time: memory for one stretch, not for the whole log.

use std::sync::Arc;

use crate::engine::fold::{Folded, fold};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::plan::Plan;
use crate::id::{HeadRef, RunKey, Seq};
use crate::record::body::Body;
use crate::record::{Record, RecordHeader, codec};
use crate::runtime::load::missing;
use crate::store::{At, CheckpointStore, Order, Page};

/// A page of the newest records, as large as pages get.
pub(crate) fn newest_first(limit: u32) -> Page {
    Page::first(limit).with_order(Order::NewestFirst)
}

/// Folds a run as it was at some place.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no such run or place, and as [`fold`].
pub(crate) async fn folded_at(
    store: &dyn CheckpointStore,
    run: &RunKey,
    at: At,
    plan: Option<&Arc<Plan>>,
) -> Result<Folded> {
    let records = store.load(run, at).await?.ok_or_else(|| missing(run))?;
    fold(run, &records, plan)
}

/// Returns the last record of each stretch from one base to before the next, the oldest first, up to `at`.
pub(crate) async fn segment_ends(store: &dyn CheckpointStore, run: &RunKey, at: At) -> Result<Vec<Seq>> {
    let mut ends = Vec::new();
    let mut last: Option<Seq> = None;
    let mut page = Page::first(Page::MAX).with_order(Order::OldestFirst);
    'pages: loop {
        let found = store.history(run, page).await?;
        for header in found.items {
            if matches!(at, At::Seq(to) if header.seq > to) {
                break 'pages;
            }
            if header.base {
                ends.extend(last);
            }
            last = Some(header.seq);
            if matches!(at, At::Record(id) if header.id == id) {
                break 'pages;
            }
        }
        match found.next {
            Some(next) => page = Page::first(Page::MAX).with_order(Order::OldestFirst).with_cursor(next),
            None => break,
        }
    }
    ends.extend(last);
    Ok(ends)
}

/// Reads the records of the stretch that ends with a record; none if it was pruned meanwhile.
pub(crate) async fn segment_records(
    store: &dyn CheckpointStore,
    run: &RunKey,
    end: Seq,
) -> Result<Vec<Record>> {
    match store.load(run, At::Seq(end)).await {
        Ok(records) => records.ok_or_else(|| missing(run)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Tells whether a stretch that begins with this record goes on where the one before it ended. It does not if the run was pruned
/// between the two reads: what was read before is then gone, and the stretch begins with a base of its own.
pub(crate) fn goes_on(before: Option<HeadRef>, first: &RecordHeader) -> bool {
    before.is_none_or(|last| first.seq == last.seq.next() && first.prev == Some(last.id))
}

/// Reads and decodes the stretch that ends with a record.
pub(crate) async fn segment(
    store: &dyn CheckpointStore,
    run: &RunKey,
    end: Seq,
) -> Result<Vec<(RecordHeader, Body)>> {
    let records = segment_records(store, run, end).await?;
    let decode = |record: Record| {
        record.verify(run)?;
        let body = codec::decode(run, &record)?;
        Ok((record.header, body))
    };
    records.into_iter().map(decode).collect::<Result<_, Error>>()
}
