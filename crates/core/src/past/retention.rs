//! Keeping logs small: what is kept of a run, and for how long.

use std::time::Duration;

use super::family::check_removal;
use super::walk::folded_at;
use crate::clock::Timestamp;
use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{RunKey, Seq};
use crate::record::body::Base;
use crate::record::{Record, RecordHeader, RecordKind, RunStatus, codec};
use crate::store::{At, CheckpointStore, Cursor, HeaderRange, Order, Page, PruneCut, RunHead, RunQuery};

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

    fn prunes(&self, status: RunStatus) -> bool {
        self.stride().is_some() && (self.statuses.is_empty() || self.statuses.contains(&status))
    }

    /// For how long a run in this status stays before it is removed, if it ever is.
    fn stays(&self, status: RunStatus) -> Option<Duration> {
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

/// How much one call of [`sweep`](crate::runtime::Runtime::sweep) does at most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepLimits {
    /// How many runs it looks at.
    pub runs: u32,
    /// Where to go on, from the report before.
    pub cursor: Option<Cursor>,
}

impl Default for SweepLimits {
    /// A thousand runs, from the first.
    fn default() -> Self {
        Self { runs: 1_000, cursor: None }
    }
}

impl SweepLimits {
    /// Looks at most at so many runs.
    #[must_use]
    pub fn with_runs(mut self, runs: u32) -> Self {
        self.runs = runs;
        self
    }

    /// Goes on where a report said.
    #[must_use]
    pub fn with_cursor(mut self, cursor: Cursor) -> Self {
        self.cursor = Some(cursor);
        self
    }
}

/// What a sweep did; of a dry run, what it would have done.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SweepReport {
    /// How many runs were looked at.
    pub runs: u64,
    /// How many of them lost records.
    pub pruned: u64,
    /// How many were removed whole.
    pub purged: u64,
    /// How many records were dropped.
    pub records: u64,
    /// How many bytes of bodies were dropped.
    pub bytes: u64,
    /// The runs that could not be dealt with, each with the reason.
    pub failed: Vec<(RunKey, Error)>,
    /// Where the next sweep goes on; none if this was the last part.
    pub next: Option<Cursor>,
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
    if !policy.prunes(head.status) {
        return Ok((0, 0));
    }
    let Some(mut cut) = cut(store, run, head.first, policy, now).await? else { return Ok((0, 0)) };
    let machine = folded_at(store, run, At::Latest, None).await?.machine;
    if let Some(pin) = machine.pins().first() {
        cut = cut.min((*pin).max(head.first));
    }
    if cut <= head.first {
        return Ok((0, 0));
    }
    if dry {
        let (records, bytes) = weigh(store, run, cut).await?;
        return Ok((records, bytes));
    }
    let base = base_at(store, run, cut).await?;
    let pruned = store.prune(run, PruneCut { at: cut, base }).await?;
    Ok((pruned.records, pruned.bytes))
}

/// Finds the oldest record that is kept; none if all are.
async fn cut(
    store: &dyn CheckpointStore,
    run: &RunKey,
    first: Seq,
    policy: &RetentionPolicy,
    now: Timestamp,
) -> Result<Option<Seq>> {
    let (mut newer, mut bytes) = (0, 0);
    let mut oldest = None;
    let mut range = Some(HeaderRange::newest(HeaderRange::MAX));
    while let Some(asked) = range {
        let found = store.headers(run, asked).await?;
        range = asked.after(&found);
        for header in found.items.into_iter().rev() {
            // The oldest is a base, perhaps by an earlier cut: counting its state would drop a record with every look.
            if header.seq > first {
                bytes += u64::from(header.body_len);
            }
            // The head is kept whatever the policy says: it is what a resume goes on from.
            if newer > 0 && !policy.keeps(&header, newer, bytes, now) {
                return Ok(oldest);
            }
            oldest = Some(header.seq);
            newer += 1;
        }
    }
    Ok(None)
}

/// Counts what a prune would drop.
async fn weigh(store: &dyn CheckpointStore, run: &RunKey, cut: Seq) -> Result<(u64, u64)> {
    let (mut records, mut bytes) = (0, 0);
    let mut range = Some(HeaderRange::oldest(HeaderRange::MAX));
    while let Some(asked) = range {
        let found = store.headers(run, asked).await?;
        range = asked.after(&found);
        for header in found.items {
            if header.seq >= cut {
                return Ok((records, bytes));
            }
            records += 1;
            bytes += u64::from(header.body_len);
        }
    }
    Ok((records, bytes))
}

/// Makes a base of the record at the cut; none if it is one.
async fn base_at(store: &dyn CheckpointStore, run: &RunKey, cut: Seq) -> Result<Option<Record>> {
    let records = store.load(run, At::Seq(cut)).await?.ok_or_else(|| missing(run))?;
    let folded = crate::engine::fold::fold(run, &records, None)?;
    let Some(record) = records.last().filter(|record| !record.header.base) else { return Ok(None) };
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

/// Deals with a part of the store's runs.
pub(crate) async fn sweep(
    store: &dyn CheckpointStore,
    policy: &RetentionPolicy,
    limits: SweepLimits,
    now: Timestamp,
    dry: bool,
) -> Result<SweepReport> {
    let mut report = SweepReport { next: limits.cursor, ..SweepReport::default() };
    let mut left = u64::from(limits.runs.max(1));
    loop {
        let limit = u32::try_from(left.min(100)).unwrap_or(100);
        let mut page = Page::first(limit).with_order(Order::OldestFirst);
        if let Some(cursor) = report.next.take() {
            page = page.with_cursor(cursor);
        }
        let found = store.runs(&RunQuery::default(), page).await?;
        left = left.saturating_sub(found.items.len() as u64);
        for head in found.items {
            report.runs += 1;
            if let Err(error) = deal(store, policy, &head, now, dry, &mut report).await {
                report.failed.push((head.run, error));
            }
        }
        report.next = found.next;
        if report.next.is_none() || left == 0 {
            return Ok(report);
        }
    }
}

async fn deal(
    store: &dyn CheckpointStore,
    policy: &RetentionPolicy,
    head: &RunHead,
    now: Timestamp,
    dry: bool,
    report: &mut SweepReport,
) -> Result<()> {
    let run = &head.run;
    if let Some(age) = policy.stays(head.status)
        && now.since(ended_at(store, head, now, age).await?) >= age
    {
        match remove(store, head, dry).await {
            Ok(Removal::Removed(records, bytes)) => {
                report.purged += 1;
                report.records += records;
                report.bytes += bytes;
                return Ok(());
            }
            Ok(Removal::Gone) => return Ok(()),
            Ok(Removal::Held) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    match prune(store, run, policy, now, dry).await {
        Ok((0, _)) => Ok(()),
        Ok((records, bytes)) => {
            report.pruned += 1;
            report.records += records;
            report.bytes += bytes;
            Ok(())
        }
        // Purged or pruned by another caller meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns when a run came into the status in which it has ended. Reads headers only if the last record does not tell.
async fn ended_at(
    store: &dyn CheckpointStore,
    head: &RunHead,
    now: Timestamp,
    age: Duration,
) -> Result<Timestamp> {
    let mut ended = head.updated;
    if head.kind != RecordKind::Signal || now.since(ended) >= age {
        return Ok(ended);
    }
    let mut range = Some(HeaderRange::newest(100));
    while let Some(asked) = range {
        let found = match store.headers(&head.run, asked).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ended),
            found => found?,
        };
        range = asked.after(&found);
        for header in found.items.into_iter().rev() {
            if header.status != head.status {
                return Ok(ended);
            }
            ended = header.at;
        }
    }
    Ok(ended)
}

/// What became of a run that was to be removed.
enum Removal {
    /// It is gone, with so many records and bytes.
    Removed(u64, u64),
    /// Another caller removed it, or had it go on, since it was listed.
    Gone,
    /// It stays: a pin holds whatever the policy says, also against the removal of the whole run, and so does its family.
    Held,
}

/// Removes a run as it was listed.
async fn remove(store: &dyn CheckpointStore, head: &RunHead, dry: bool) -> Result<Removal> {
    let run = &head.run;
    let folded = folded_at(store, run, At::Latest, None).await?;
    if folded.last.id != head.id {
        return Ok(Removal::Gone);
    }
    if !folded.machine.pins().is_empty() {
        return Ok(Removal::Held);
    }
    match check_removal(store, head, Some(&folded)).await {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::WrongStatus => return Ok(Removal::Held),
        Err(error) => return Err(error),
    }
    if dry {
        let (records, bytes) = weigh(store, run, head.seq.next()).await?;
        return Ok(Removal::Removed(records, bytes));
    }
    match store.purge(run, Some(head.head())).await {
        // Of two sweeps that are at it at once, one finds nothing left.
        Ok(purged) if purged.records == 0 => Ok(Removal::Gone),
        Ok(purged) => Ok(Removal::Removed(purged.records, purged.bytes)),
        // A signaller had it go on, or pinned a record, since it was looked at.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(Removal::Gone),
        Err(error) => Err(error),
    }
}
