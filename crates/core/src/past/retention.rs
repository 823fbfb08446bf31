//! Keeping logs small: what is kept of a run, and for how long.

use std::time::Duration;

use super::walk::folded_at;
use crate::clock::Timestamp;
use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::error::{ErrorKind, Result};
use crate::id::{RecordId, RunKey, Seq};
use crate::record::body::Base;
use crate::record::{Record, RecordHeader, RecordKind, RunStatus, codec};
use crate::store::{At, CheckpointStore, HeaderRange, PruneCut, RunHead};

/// What is kept of runs.
///
/// Whatever is dropped, a run can always go on: the oldest record that is kept holds the full state, with open questions,
/// messages, timers and steps. A record is kept if any of the limits keeps it; with no limit set, everything is kept.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use ferrata_core::record::RunStatus;
/// use ferrata_core::runtime::RetentionPolicy;
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// let policy = RetentionPolicy::keep_all()
///     .keep_last(100)
///     .purge_after(RunStatus::Completed, 30 * DAY)
///     .purge_after(RunStatus::Cancelled, 7 * DAY);
/// # let _ = policy;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct RetentionPolicy {
    last: Option<u32>,
    age: Option<Duration>,
    bytes: Option<u64>,
    statuses: Vec<RunStatus>,
    purge: Vec<(RunStatus, Duration)>,
}

impl RetentionPolicy {
    /// Keeps everything.
    pub fn keep_all() -> Self {
        Self::default()
    }

    /// Keeps the last `records` of each run, at least 1.
    pub fn keep_last(mut self, records: u32) -> Self {
        self.last = Some(records.max(1));
        self
    }

    /// Keeps records that are younger than this.
    pub fn keep_for(mut self, age: Duration) -> Self {
        self.age = Some(age);
        self
    }

    /// Keeps the last records of each run whose bodies take this many bytes together. The oldest one that is kept is not
    /// counted: a cut makes it a base, which holds the full state.
    pub fn keep_bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Cuts only runs in these statuses; all unless set. [`purge_after`](Self::purge_after) names its own.
    pub fn only(mut self, statuses: impl IntoIterator<Item = RunStatus>) -> Self {
        self.statuses = statuses.into_iter().collect();
        self
    }

    /// Removes whole runs that have been in this status for so long. Only runs that have ended can be removed, and none in which
    /// a record is pinned, that has [children](https://docs.rs/ferrata) which go on, or whose parent has not noted what came of it. Signals to a run that has ended, such as a pin, do not count; a retry does. [`only`](Self::only) does
    /// not limit it. Ages are reckoned by the clock of the process that sweeps: one that is ahead removes sooner.
    pub fn purge_after(mut self, status: RunStatus, age: Duration) -> Self {
        self.purge.push((status, age));
        self
    }

    /// Prune a live run again after this many new records; equal to the number kept.
    pub(crate) fn stride(&self) -> Option<u64> {
        let limited = self.last.is_some() || self.age.is_some() || self.bytes.is_some();
        limited.then(|| self.last.map_or(1_000, |last| u64::from(last.max(16))))
    }

    /// How many records it keeps of each run, if that is all that it goes by.
    fn only_last(&self) -> Option<u32> {
        self.last.filter(|_| self.age.is_none() && self.bytes.is_none())
    }

    fn prunes(&self, status: RunStatus) -> bool {
        self.stride().is_some() && (self.statuses.is_empty() || self.statuses.contains(&status))
    }

    /// For how long a run in this status stays before it is removed, if it ever is.
    pub(super) fn stays(&self, status: RunStatus) -> Option<Duration> {
        let ages = self.purge.iter().filter(|(purged, _)| *purged == status).map(|(_, age)| *age);
        ages.min().filter(|_| status.is_finished())
    }

    /// Whether a record is kept that has so many newer ones, with so many bytes up to it.
    fn keeps(&self, header: &RecordHeader, newer: u64, bytes: u64, now: Timestamp) -> bool {
        self.last.is_some_and(|last| newer < u64::from(last))
            || self.age.is_some_and(|age| now.since(header.at) < age)
            || self.bytes.is_some_and(|most| bytes <= most)
    }
}

/// Drops what a policy does not keep of one run. Returns how many records and bytes.
///
/// # Errors
///
/// As [`CheckpointStore::prune`]. What was dropped before stays dropped; the run can go on in any case.
pub(crate) async fn prune(
    store: &dyn CheckpointStore,
    run: &RunKey,
    policy: &RetentionPolicy,
    now: Timestamp,
    dry: bool,
) -> Result<(u64, u64)> {
    let head = store.head(run).await?.ok_or_else(|| missing(run))?;
    prune_found(store, &head, policy, now, dry).await
}

async fn first_of(store: &dyn CheckpointStore, run: &RunKey) -> Result<Seq> {
    Ok(store.head(run).await?.ok_or_else(|| missing(run))?.first)
}

/// As [`prune`], of a run whose head was just read.
pub(super) async fn prune_found(
    store: &dyn CheckpointStore,
    head: &RunHead,
    policy: &RetentionPolicy,
    now: Timestamp,
    dry: bool,
) -> Result<(u64, u64)> {
    let run = &head.run;
    if !policy.prunes(head.status) {
        return Ok((0, 0));
    }
    // All that there are, so that none need be looked at.
    let records = head.seq.get().saturating_sub(head.first.get()).saturating_add(1);
    if policy.last.is_some_and(|last| records <= u64::from(last)) {
        return Ok((0, 0));
    }
    if let (Some(last), false) = (policy.only_last(), dry)
        && let Some((kept, cut)) = plan_at_once(store, run, last).await?
    {
        return carry_out(store, run, kept, cut).await;
    }
    let Some(PrunePoint { at, whole }) = cut(store, run, head.first, policy, now).await? else {
        return Ok((0, 0));
    };
    // Only a start that is still there has no pins in its base: a pin of a record to come outlives its signal in the base of a cut.
    let may_have_pins = |headers: &Vec<RecordHeader>| {
        headers.first().is_none_or(|first| first.kind != RecordKind::Start)
            || headers.iter().any(|header| header.kind == RecordKind::Signal)
    };
    let first_pin = match whole.as_ref().is_none_or(may_have_pins) {
        true => folded_at(store, run, At::Latest, None).await?.machine.pins().first().copied(),
        false => None,
    };
    let at = first_pin.map_or(at, |pin| at.min(pin.max(head.first)));
    if at <= head.first {
        return Ok((0, 0));
    }
    if dry {
        return match whole {
            Some(headers) => Ok(weigh_these(&headers, at)),
            None => weigh(store, run, at).await,
        };
    }
    let (kept, base) = match base_at(store, run, at).await {
        // Another caller who keeps this run small has dropped the record and more.
        Err(error) if error.kind() == ErrorKind::NotFound && first_of(store, run).await? > at => {
            return Ok((0, 0));
        }
        base => base?,
    };
    carry_out(store, run, kept, PruneCut { at, base }).await
}

/// Plans a cut that leaves so many records, from one load, and names the record at it; none if a base lies behind it, or a pin holds what is before it.
async fn plan_at_once(
    store: &dyn CheckpointStore,
    run: &RunKey,
    last: u32,
) -> Result<Option<(RecordId, PruneCut)>> {
    let records = store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
    let Some((kept, newer)) = records.len().checked_sub(last as usize).map(|at| records.split_at(at + 1))
    else {
        return Ok(None);
    };
    let mut folded = fold(run, kept, None)?;
    let (at, id) = (folded.last.seq, folded.last.id);
    let base = kept.last().map_or(Ok(None), |record| base_of(run, record, &folded))?;
    folded.follow(run, newer)?;
    Ok((!folded.machine.pins().iter().any(|pin| *pin < at)).then_some((id, PruneCut { at, base })))
}

/// Drops what is before a cut, at which stands the record `kept`. Returns how many records and bytes.
async fn carry_out(
    store: &dyn CheckpointStore,
    run: &RunKey,
    kept: RecordId,
    cut: PruneCut,
) -> Result<(u64, u64)> {
    match store.prune(run, cut).await {
        // Purged and started anew since it was read: what was to be dropped is gone, and the run that has its name now was not looked at.
        Err(error) if error.kind() == ErrorKind::Invalid && is_gone(store, run, kept).await? => Ok((0, 0)),
        pruned => pruned.map(|pruned| (pruned.records, pruned.bytes)),
    }
}

async fn is_gone(store: &dyn CheckpointStore, run: &RunKey, record: RecordId) -> Result<bool> {
    match store.load(run, At::Record(record)).await {
        Ok(found) => Ok(found.is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Where a policy cuts a run.
struct PrunePoint {
    /// The oldest record that is kept.
    at: Seq,
    /// The headers of the whole run, if one answer held them.
    whole: Option<Vec<RecordHeader>>,
}

/// Finds the oldest record that is kept; none if all are.
async fn cut(
    store: &dyn CheckpointStore,
    run: &RunKey,
    first: Seq,
    policy: &RetentionPolicy,
    now: Timestamp,
) -> Result<Option<PrunePoint>> {
    let (mut newer, mut bytes) = (0, 0);
    let mut oldest = None;
    let mut range = Some(HeaderRange::newest(HeaderRange::MAX));
    while let Some(asked) = range {
        let found = store.headers(run, asked).await?;
        range = asked.after(&found);
        let is_whole = newer == 0 && range.is_none();
        for header in found.items.iter().rev() {
            // The oldest is a base, perhaps by an earlier cut: counting its state would drop a record with every look.
            if header.seq > first {
                bytes += u64::from(header.body_len);
            }
            // The head is kept whatever the policy says: it is what a resume goes on from.
            if newer > 0 && !policy.keeps(header, newer, bytes, now) {
                return Ok(oldest.map(|at| PrunePoint { at, whole: is_whole.then_some(found.items) }));
            }
            oldest = Some(header.seq);
            newer += 1;
        }
    }
    Ok(None)
}

/// Counts what a prune would drop.
pub(super) async fn weigh(store: &dyn CheckpointStore, run: &RunKey, cut: Seq) -> Result<(u64, u64)> {
    let (mut records, mut bytes) = (0, 0);
    let mut range = Some(HeaderRange::oldest(HeaderRange::MAX));
    while let Some(asked) = range {
        let found = store.headers(run, asked).await?;
        let part = weigh_these(&found.items, cut);
        (records, bytes) = (records + part.0, bytes + part.1);
        range = asked.after(&found).filter(|_| part.0 == found.items.len() as u64);
    }
    Ok((records, bytes))
}

/// Counts the records before a cut, and their bytes.
fn weigh_these(headers: &[RecordHeader], cut: Seq) -> (u64, u64) {
    let before = headers.iter().filter(|header| header.seq < cut);
    before.fold((0, 0), |(records, bytes), header| (records + 1, bytes + u64::from(header.body_len)))
}

/// Names the record at the cut, and makes a base of it; none if it is one.
async fn base_at(store: &dyn CheckpointStore, run: &RunKey, cut: Seq) -> Result<(RecordId, Option<Record>)> {
    let records = store.load(run, At::Seq(cut)).await?.ok_or_else(|| missing(run))?;
    let folded = fold(run, &records, None)?;
    let base = records.last().map_or(Ok(None), |record| base_of(run, record, &folded))?;
    Ok((folded.last.id, base))
}

/// Makes a base of a record and the run as of it; none if it is one.
fn base_of(run: &RunKey, record: &Record, folded: &ReplayedRun) -> Result<Option<Record>> {
    if record.header.base {
        return Ok(None);
    }
    let event = codec::decode(run, record)?.event;
    let base = Base {
        state: codec::to_raw(&folded.channels)?,
        machine: folded.machine.snapshot()?,
        version: folded.version,
    };
    let body = codec::encode(&event, Some(&base))?;
    let header = RecordHeader { base: true, ..record.header.clone() };
    Record::seal(header, body).map(Some)
}
