//! Reads the log of a run from its oldest record, in segments. A segment begins with a base (a record with the full state). Only one segment is in
//! memory at a time.

use std::sync::Arc;

use serde_json::Value;

use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::error::{ErrorKind, Result};
use crate::graph::plan::GraphPlan;
use crate::id::{HeadRef, RunKey, Seq};
use crate::record::body::RecordBody;
use crate::record::{Record, RecordHeader, codec};
use crate::state::Secrets;
use crate::store::{At, CheckpointStore, HeaderRange, Listing, Order, Page, Paged};

/// Lists a page of the headers of a run's records. The cursor is the number of the last header.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] for a cursor of another run or order. Also returns the errors of [`CheckpointStore::headers`].
pub async fn page(store: &dyn CheckpointStore, run: &RunKey, page: &Page) -> Result<Paged<RecordHeader>> {
    let oldest_first = page.order == Order::OldestFirst;
    let order = if oldest_first { Order::OldestFirst } else { Order::NewestFirst };
    let listing = Listing::of_history(run, order);
    let after = page.cursor.as_ref().map(|cursor| {
        let number: Option<u64> = listing.place(cursor)?.parse().ok();
        number.map(Seq::new).ok_or_else(Listing::foreign)
    });
    let limit = page.limit.get();
    let range = match (after.transpose()?, oldest_first) {
        (None, true) => HeaderRange::oldest(limit),
        (None, false) => HeaderRange::newest(limit),
        (Some(after), true) => HeaderRange::from(after.next(), limit),
        // No listing continues after record 0. A cursor that names it returns only that record.
        (Some(after), false) => HeaderRange::up_to(Seq::new(after.get().saturating_sub(1)), limit),
    };
    let found = store.headers(run, range).await?;
    let more = range.after(&found).is_some();
    let mut items = found.items;
    if !oldest_first {
        items.reverse();
    }
    let next = items.last().filter(|_| more).map(|last| listing.cursor(last.seq));
    Ok(Paged { items, next })
}

/// Replays a run up to a position.
///
/// # Errors
///
/// Returns [`ErrorKind::NotFound`] if there is no such run or position. Also returns the errors of [`fold`].
pub async fn folded_at(
    store: &dyn CheckpointStore,
    run: &RunKey,
    at: At,
    plan: Option<&Arc<GraphPlan>>,
) -> Result<ReplayedRun> {
    let records = store.load(run, at).await?.ok_or_else(|| missing(run))?;
    fold(run, &records, plan)
}

/// Returns the secret channels of a run after its newest record. Earlier records never have more secret channels.
///
/// # Errors
///
/// Returns the errors of [`folded_at`].
pub async fn secrets(store: &dyn CheckpointStore, run: &RunKey) -> Result<Secrets> {
    Ok(folded_at(store, run, At::Latest, None).await?.machine.secrets().clone())
}

/// Returns the state of a run for views, with [`HIDDEN`](crate::state::HIDDEN) in place of secret values.
///
/// # Errors
///
/// Returns the errors of [`folded_at`].
pub async fn shown_at(store: &dyn CheckpointStore, run: &RunKey, at: At) -> Result<Value> {
    let folded = folded_at(store, run, at, None).await?;
    let secrets = match at {
        At::Latest => folded.machine.secrets().clone(),
        _ => secrets(store, run).await?,
    };
    let mut state = Value::from(folded.channels);
    secrets.hide(&mut state);
    Ok(state)
}

/// Returns the last record of each segment up to `at`, the oldest first. A segment starts at a base and ends before the next base.
pub async fn segment_ends(store: &dyn CheckpointStore, run: &RunKey, at: At) -> Result<Vec<Seq>> {
    let mut ends = Vec::new();
    let mut last: Option<Seq> = None;
    let mut range = Some(HeaderRange::oldest(HeaderRange::MAX));
    'answers: while let Some(asked) = range {
        let found = store.headers(run, asked).await?;
        range = asked.after(&found);
        for header in found.items {
            if matches!(at, At::Seq(to) if header.seq > to) {
                break 'answers;
            }
            if header.base {
                ends.extend(last);
            }
            last = Some(header.seq);
            if matches!(at, At::Record(id) if header.id == id) {
                break 'answers;
            }
        }
    }
    ends.extend(last);
    Ok(ends)
}

/// Reads the records of the segment that ends with a record. Returns `None` if the segment was pruned during the read.
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

/// Returns whether a segment follows directly after the end of the previous segment. It does not if the run was pruned between the two reads. The
/// earlier records are then removed, and the segment starts with a base of its own.
pub fn is_continuous(before: Option<HeadRef>, first: &RecordHeader) -> bool {
    before.is_none_or(|last| first.seq == last.seq.next() && first.prev == Some(last.id))
}

/// Reads and decodes the segment that ends with a record.
pub async fn segment(
    store: &dyn CheckpointStore,
    run: &RunKey,
    end: Seq,
) -> Result<Vec<(RecordHeader, RecordBody)>> {
    segment_records(store, run, end).await?.into_iter().map(|record| decode(run, record)).collect()
}

/// Reads and decodes the records after `seen`, in order. Without `seen`, reads from the oldest record, which is a base.
///
/// # Errors
///
/// Returns [`ErrorKind::NotFound`] if the run does not exist, the errors of [`CheckpointStore::load`] and [`CheckpointStore::headers`], and those of
/// [`codec::decode`].
pub async fn records_after(
    store: &dyn CheckpointStore,
    run: &RunKey,
    seen: Option<Seq>,
) -> Result<Vec<(RecordHeader, RecordBody)>> {
    let is_new = |seq: Seq| seen.is_none_or(|seen| seq > seen);
    let last = store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
    let mut records = Vec::new();
    // If the last segment contains all new records, skip the headers.
    if let Some(before) = last.first().and_then(|base| base.header.seq.get().checked_sub(1).map(Seq::new))
        && is_new(before)
    {
        for end in segment_ends(store, run, At::Seq(before)).await?.into_iter().filter(|end| is_new(*end)) {
            records.extend(segment_records(store, run, end).await?);
        }
    }
    records.extend(last);
    records.retain(|record| is_new(record.header.seq));
    records.into_iter().map(|record| decode(run, record)).collect()
}

fn decode(run: &RunKey, record: Record) -> Result<(RecordHeader, RecordBody)> {
    record.verify(run)?;
    let body = codec::decode(run, &record)?;
    Ok((record.header, body))
}

#[cfg(test)]
mod tests {
    use ferrata_store::{MemoryStore, RecordKind, RunId};
    use ferrata_testing::Log;

    use super::*;

    #[tokio::test]
    async fn records_after_crosses_segments() {
        let store = MemoryStore::new();
        let mut log = Log::new(RunId::new("r").unwrap()).with_bases_every(4);
        let append = log.next_as(10, r#"{"base":{"state":{},"machine":{}}}"#, |header| {
            header.kind = RecordKind::Base;
        });
        log.note_append(&append);
        store.append(vec![append]).await.remove(0).unwrap();
        for seen in std::iter::once(None).chain((0..10).map(|seq| Some(Seq::new(seq)))) {
            let found = records_after(&store, &log.key, seen).await.unwrap();
            let found: Vec<_> = found.into_iter().map(|(header, _)| header).collect();
            let expected =
                log.headers().split_off(seen.map_or(0, |seen| usize::try_from(seen.get()).unwrap() + 1));
            assert_eq!(found, expected, "after {seen:?}");
        }
    }
}
