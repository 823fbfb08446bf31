//! Retention policies, which decide which records of a run are stored and for how long.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::error::{ErrorKind, Result};
use crate::id::{RecordId, RunKey, Seq};
use crate::log_reader::folded_at;
use crate::record::body::RecordBase;
use crate::record::{Record, RecordHeader, RecordKind, RunStatus, codec};
use crate::store::{At, CheckpointStore, HeaderRange, PruneCut, RunHead};

/// A retention policy: the rules by which old records and ended runs are removed.
///
/// A run can always continue after old records were removed, because the oldest remaining record then contains the full state, with open questions,
/// messages, timers and steps. If a policy has several limits, a record is retained if at least one limit keeps it. A policy without limits keeps
/// every record.
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
    /// Creates a policy that keeps every record.
    pub fn keep_all() -> Self {
        Self::default()
    }

    /// Keeps the last `records` records of each run, at least 1.
    pub fn keep_last(mut self, records: u32) -> Self {
        self.last = Some(records.max(1));
        self
    }

    /// Keeps the records of each run that are younger than `age`.
    pub fn keep_for(mut self, age: Duration) -> Self {
        self.age = Some(age);
        self
    }

    /// Keeps the last records of each run whose bodies have together at most `bytes` bytes. The oldest kept record does not count, because it is
    /// rewritten with the full state.
    pub fn keep_bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Restricts the removal of old records to runs with these statuses. By default it applies to all runs. The restriction does not apply to
    /// [`purge_after`](Self::purge_after), which names its own status.
    pub fn only(mut self, statuses: impl IntoIterator<Item = RunStatus>) -> Self {
        self.statuses = statuses.into_iter().collect();
        self
    }

    /// Removes whole runs that have had this status for longer than `age`. Only ended runs are removed. A run is skipped if it has a pinned record or
    /// active [children](https://docs.rs/ferrata), or if its parent has not recorded its result. The age counts from the end of the run. A signal to
    /// an ended run, such as a pin, does not change this, but a retry does. [`only`](Self::only) does not limit this rule. The age is measured by the
    /// clock of the sweeping process. If this clock is ahead, runs are removed too early.
    pub fn purge_after(mut self, status: RunStatus, age: Duration) -> Self {
        self.purge.push((status, age));
        self
    }

    /// Returns the number of new records after which an active run is pruned again. It equals the number of records that the policy keeps, but is at
    /// least 16.
    #[doc(hidden)]
    pub fn stride(&self) -> Option<u64> {
        let limited = self.last.is_some() || self.age.is_some() || self.bytes.is_some();
        limited.then(|| self.last.map_or(1_000, |last| u64::from(last.max(16))))
    }

    /// Returns the number of records to keep, if the policy has no other limit.
    fn only_last(&self) -> Option<u32> {
        self.last.filter(|_| self.age.is_none() && self.bytes.is_none())
    }

    fn prunes(&self, status: RunStatus) -> bool {
        self.stride().is_some() && (self.statuses.is_empty() || self.statuses.contains(&status))
    }

    /// Returns how long a run in this status stays before its removal, if the policy removes it.
    pub(crate) fn stays(&self, status: RunStatus) -> Option<Duration> {
        let ages = self.purge.iter().filter(|(purged, _)| *purged == status).map(|(_, age)| *age);
        ages.min().filter(|_| status.is_finished())
    }

    /// Returns whether the policy keeps a record. `newer` is the number of newer records, and `bytes` is the size of all bodies from this record to
    /// the newest.
    fn keeps_record(&self, header: &RecordHeader, newer: u64, bytes: u64, now: Timestamp) -> bool {
        self.last.is_some_and(|last| newer < u64::from(last))
            || self.age.is_some_and(|age| now.since(header.at) < age)
            || self.bytes.is_some_and(|most| bytes <= most)
    }
}

/// Removes the records of one run that the policy does not keep. Returns the numbers of removed records and bytes.
///
/// # Errors
///
/// Returns the errors of [`CheckpointStore::prune`]. After an error, dropped records stay dropped, and the run can continue.
pub async fn prune(
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

/// Removes records like [`prune`], for a run whose head the caller has just read.
pub(crate) async fn prune_found(
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
    // The count covers all records, so there is no need to read them.
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
    // Only a stored start guarantees a base without pins: the base of a cut contains pins of later records whose signals are gone.
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
            Some(headers) => Ok(count_before(&headers, at)),
            None => count_prunable(store, run, at).await,
        };
    }
    let (kept, base) = match base_at(store, run, at).await {
        // Another caller pruned this run concurrently and dropped at least as much.
        Err(error) if error.kind() == ErrorKind::NotFound && first_of(store, run).await? > at => {
            return Ok((0, 0));
        }
        base => base?,
    };
    carry_out(store, run, kept, PruneCut { at, base }).await
}

/// Plans a prune that keeps the last `records` records, and needs only one load for it. Returns the oldest record that is retained. Returns `None` if
/// there is a later base, or if a pinned record prevents the prune.
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

/// Removes the records before the record `kept`. Returns the numbers of removed records and bytes.
async fn carry_out(
    store: &dyn CheckpointStore,
    run: &RunKey,
    kept: RecordId,
    cut: PruneCut,
) -> Result<(u64, u64)> {
    match store.prune(run, cut).await {
        // The run was purged and started again since the read: the old records are gone, and the new run was not checked.
        Err(error) if error.kind() == ErrorKind::Invalid && is_pruned(store, run, kept).await? => Ok((0, 0)),
        pruned => pruned.map(|pruned| (pruned.records, pruned.bytes)),
    }
}

async fn is_pruned(store: &dyn CheckpointStore, run: &RunKey, record: RecordId) -> Result<bool> {
    match store.load(run, At::Record(record)).await {
        Ok(found) => Ok(found.is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// The position in a log before which a policy removes the records.
struct PrunePoint {
    /// The oldest record to keep.
    at: Seq,
    /// The headers of the whole run, if one response contained them.
    whole: Option<Vec<RecordHeader>>,
}

/// Returns the oldest record to keep, or `None` to keep all.
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
            // The oldest record is a base, perhaps of an earlier cut. Counting its state would drop one more record with every check.
            if header.seq > first {
                bytes += u64::from(header.body_len);
            }
            // The head always stays: a resume continues from it.
            if newer > 0 && !policy.keeps_record(header, newer, bytes, now) {
                return Ok(oldest.map(|at| PrunePoint { at, whole: is_whole.then_some(found.items) }));
            }
            oldest = Some(header.seq);
            newer += 1;
        }
    }
    Ok(None)
}

/// Counts the records and bytes that a prune would drop.
pub(crate) async fn count_prunable(
    store: &dyn CheckpointStore,
    run: &RunKey,
    cut: Seq,
) -> Result<(u64, u64)> {
    let (mut records, mut bytes) = (0, 0);
    let mut range = Some(HeaderRange::oldest(HeaderRange::MAX));
    while let Some(asked) = range {
        let found = store.headers(run, asked).await?;
        let part = count_before(&found.items, cut);
        (records, bytes) = (records + part.0, bytes + part.1);
        range = asked.after(&found).filter(|_| part.0 == found.items.len() as u64);
    }
    Ok((records, bytes))
}

/// Counts the records before a cut, and their bytes.
fn count_before(headers: &[RecordHeader], cut: Seq) -> (u64, u64) {
    let before = headers.iter().filter(|header| header.seq < cut);
    before.fold((0, 0), |(records, bytes), header| (records + 1, bytes + u64::from(header.body_len)))
}

/// Returns the id of the oldest record that is retained. If this record is not a base, it is also returned in the form of a base.
async fn base_at(store: &dyn CheckpointStore, run: &RunKey, cut: Seq) -> Result<(RecordId, Option<Record>)> {
    let records = store.load(run, At::Seq(cut)).await?.ok_or_else(|| missing(run))?;
    let folded = fold(run, &records, None)?;
    let base = records.last().map_or(Ok(None), |record| base_of(run, record, &folded))?;
    Ok((folded.last.id, base))
}

/// Returns the record as a base with the folded run, or `None` if it is a base.
fn base_of(run: &RunKey, record: &Record, folded: &ReplayedRun) -> Result<Option<Record>> {
    if record.header.base {
        return Ok(None);
    }
    let event = codec::decode(run, record)?.event;
    let base = RecordBase {
        state: codec::to_raw(&folded.channels)?,
        machine: folded.machine.snapshot()?,
        version: folded.version,
    };
    let body = codec::encode(&event, Some(&base))?;
    let header = RecordHeader { base: true, ..record.header.clone() };
    Record::seal(header, body).map(Some)
}
