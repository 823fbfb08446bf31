//! Sweeps a store, which means that it applies a retention policy to all runs, one part of the runs at a time.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};

use crate::clock::{Clock, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::log_reader::folded_at;
use crate::record::RecordKind;
use crate::retention::{RetentionPolicy, count_prunable, prune_found};
use crate::run_tree::check_removal;
use crate::store::{At, CheckpointStore, Cursor, HeaderRange, Order, Page, Removed, RunHead, RunQuery};

type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Removes a run from the store, provided that it is unchanged since the listing.
pub type Purge = dyn Fn(&RunHead) -> Task<'static, Result<Removed>> + Sync;

type SweepTarget<'a> = (&'a dyn CheckpointStore, &'a Purge);

/// The limits of one call of `Runtime::sweep`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepLimits {
    /// The maximum number of runs that the call checks.
    pub runs: u32,
    /// The cursor of the previous report, at which the sweep continues.
    pub cursor: Option<Cursor>,
    /// The maximum number of runs that are processed at the same time. The default is 16.
    ///
    /// With a higher number, the sweep is faster but makes more concurrent calls to the store. With a lower number, the sweep is slower.
    pub at_once: NonZeroUsize,
    /// How long the sweep pauses after each page of a hundred runs, as a multiple of the time that the page took. The value is between 0, the
    /// default, and [`MAX_NICE_RATIO`](Self::MAX_NICE_RATIO).
    ///
    /// With 1, the sweep pauses as long as it works. If the store is busy, a page takes longer, so the pause is longer too. After the last page of
    /// the store there is no pause. After the last page of a call, the sweep pauses before it returns the report.
    pub nice_ratio: f64,
}

impl Default for SweepLimits {
    /// Returns limits for a thousand runs from the beginning of the store. 16 runs are processed at the same time, without pauses.
    fn default() -> Self {
        Self { runs: 1_000, cursor: None, at_once: NonZeroUsize::MIN.saturating_add(15), nice_ratio: 0.0 }
    }
}

impl SweepLimits {
    /// The highest allowed value of [`nice_ratio`](Self::nice_ratio).
    #[doc(hidden)]
    pub const MAX_NICE_RATIO: f64 = 100.0;

    /// Returns limits for the sweep of a store that has active runs at the same time. The sweep processes one run at a time. After each page of a
    /// hundred runs, it pauses for half the time that the page took.
    ///
    /// If the store is busy, its answers take longer, so the sweep calls it less often.
    #[must_use]
    pub fn gentle() -> Self {
        Self { at_once: NonZeroUsize::MIN, nice_ratio: 0.5, ..Self::default() }
    }

    /// Sets the maximum number of runs that the call checks.
    #[must_use]
    pub fn with_runs(mut self, runs: u32) -> Self {
        self.runs = runs;
        self
    }

    /// Sets the maximum number of runs that are processed at the same time.
    #[must_use]
    pub fn with_at_once(mut self, runs: NonZeroUsize) -> Self {
        self.at_once = runs;
        self
    }

    /// Sets the pause after each page of a hundred runs, as a multiple of the time that the page took.
    #[must_use]
    pub fn with_nice_ratio(mut self, ratio: f64) -> Self {
        self.nice_ratio = ratio;
        self
    }

    /// Continues the sweep at the cursor of a previous report.
    #[must_use]
    pub fn with_cursor(mut self, cursor: Cursor) -> Self {
        self.cursor = Some(cursor);
        self
    }
}

/// The report of a sweep. The report of a dry run says what a sweep would do.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SweepReport {
    /// The number of runs that were checked.
    pub runs: u64,
    /// The number of runs from which old records were removed.
    pub pruned: u64,
    /// The number of runs that were removed.
    pub purged: u64,
    /// The number of records that were removed.
    pub records: u64,
    /// The total size of the removed bodies in bytes.
    pub bytes: u64,
    /// The runs that could not be processed, each with the error.
    pub failed: Vec<(RunKey, Error)>,
    /// The cursor at which the next call continues. `None` if all runs were checked.
    pub next: Option<Cursor>,
}

/// Sweeps a part of the store's runs.
pub async fn sweep(
    swept: SweepTarget<'_>,
    policy: &RetentionPolicy,
    limits: SweepLimits,
    clock: &dyn Clock,
    dry: bool,
) -> Result<SweepReport> {
    check_ratio(limits.nice_ratio)?;
    let now = clock.now();
    let mut report = SweepReport { next: limits.cursor, ..SweepReport::default() };
    let mut left = u64::from(limits.runs.max(1));
    loop {
        let begun = clock.monotonic();
        let limit = u32::try_from(left.min(100)).unwrap_or(100);
        let mut page = Page::first(limit).with_order(Order::OldestFirst);
        if let Some(cursor) = report.next.take() {
            page = page.with_cursor(cursor);
        }
        let found = swept.0.runs(&RunQuery::default(), page).await?;
        left = left.saturating_sub(found.items.len() as u64);
        let mut deals: Vec<Task<'_, (usize, Result<SweepOutcome>)>> = Vec::with_capacity(found.items.len());
        for (place, head) in found.items.iter().enumerate() {
            deals.push(Box::pin(async move { (place, sweep_run(swept, policy, head, now, dry).await) }));
        }
        let mut dealt: Vec<_> = stream::iter(deals).buffer_unordered(limits.at_once.get()).collect().await;
        dealt.sort_unstable_by_key(|(place, _)| *place);
        for (head, (_, dealt)) in found.items.iter().zip(dealt) {
            report.record_outcome(&head.run, dealt);
        }
        report.next = found.next;
        if report.next.is_none() {
            return Ok(report);
        }
        // Rest even at the end of this part: the caller starts the next part at once.
        rest_after_work(clock, clock.monotonic().saturating_sub(begun), limits.nice_ratio).await;
        if left == 0 {
            return Ok(report);
        }
    }
}

/// Checks that a nice ratio is in range.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] if the ratio is out of range.
pub fn check_ratio(ratio: f64) -> Result<()> {
    let most = SweepLimits::MAX_NICE_RATIO;
    if (0.0..=most).contains(&ratio) {
        return Ok(());
    }
    let message = format!("the nice ratio of the sweep is {ratio}; use 0 to {most}");
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Pauses for a time in proportion to the time that the sweep has worked.
async fn rest_after_work(clock: &dyn Clock, worked: Duration, ratio: f64) {
    let rest = Duration::try_from_secs_f64(worked.as_secs_f64() * ratio).unwrap_or(Duration::MAX);
    if !rest.is_zero() {
        clock.sleep(rest).await;
    }
}

/// The result for one run.
#[derive(Clone, Copy)]
enum SweepOutcome {
    /// No record was removed, or another caller removed the run.
    Left,
    /// Old records of the run were removed, with these numbers of records and bytes.
    Pruned(u64, u64),
    /// The run was removed, with these numbers of records and bytes.
    Purged(u64, u64),
}

impl SweepReport {
    /// Adds the report of the next part. Returns the cursor at which the part after it begins.
    #[doc(hidden)]
    pub fn add(&mut self, part: Self) -> Option<Cursor> {
        self.runs += part.runs;
        self.pruned += part.pruned;
        self.purged += part.purged;
        self.records += part.records;
        self.bytes += part.bytes;
        self.failed.extend(part.failed);
        part.next
    }

    fn record_outcome(&mut self, run: &RunKey, dealt: Result<SweepOutcome>) {
        self.runs += 1;
        let (records, bytes) = match dealt {
            Ok(SweepOutcome::Left) => return,
            Ok(SweepOutcome::Pruned(records, bytes)) => {
                self.pruned += 1;
                (records, bytes)
            }
            Ok(SweepOutcome::Purged(records, bytes)) => {
                self.purged += 1;
                (records, bytes)
            }
            Err(error) => return self.failed.push((run.clone(), error)),
        };
        self.records += records;
        self.bytes += bytes;
    }
}

async fn sweep_run(
    swept: SweepTarget<'_>,
    policy: &RetentionPolicy,
    head: &RunHead,
    now: Timestamp,
    dry: bool,
) -> Result<SweepOutcome> {
    let dealt = match removed(swept, policy, head, now, dry).await {
        Ok(Some(dealt)) => Ok(dealt),
        Ok(None) => match prune_found(swept.0, head, policy, now, dry).await {
            Ok((0, _)) => Ok(SweepOutcome::Left),
            Ok((records, bytes)) => Ok(SweepOutcome::Pruned(records, bytes)),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    match dealt {
        // Another caller purged or pruned the run concurrently.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(SweepOutcome::Left),
        dealt => dealt,
    }
}

/// Removes a run whose retention time expired. Returns `None` if the run stays.
async fn removed(
    swept: SweepTarget<'_>,
    policy: &RetentionPolicy,
    head: &RunHead,
    now: Timestamp,
    dry: bool,
) -> Result<Option<SweepOutcome>> {
    let Some(age) = policy.stays(head.status) else { return Ok(None) };
    if now.since(ended_at(swept.0, head, now, age).await?) < age {
        return Ok(None);
    }
    Ok(match remove(swept, head, dry).await? {
        Removal::Removed(records, bytes) => Some(SweepOutcome::Purged(records, bytes)),
        Removal::Gone => Some(SweepOutcome::Left),
        Removal::Held => None,
    })
}

/// Returns when the run ended. Reads headers only if the last record does not show the time.
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

/// The result of a removal.
enum Removal {
    /// The run was removed, with these numbers of records and bytes.
    Removed(u64, u64),
    /// After the listing, another caller removed the run, or a signal made it active again.
    Gone,
    /// The run was not removed, because it has a pinned record or an active child, or its parent still waits for it.
    Held,
}

/// Removes a run, provided that it is unchanged since the listing.
async fn remove((store, purge): SweepTarget<'_>, head: &RunHead, dry: bool) -> Result<Removal> {
    let run = &head.run;
    let folded = folded_at(store, run, At::Latest, None).await?;
    if folded.last.id != head.id {
        return Ok(Removal::Gone);
    }
    if !folded.machine.pins().is_empty() {
        return Ok(Removal::Held);
    }
    match check_removal(store, head, Some(&folded), &BTreeSet::new()).await {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::WrongStatus => return Ok(Removal::Held),
        Err(error) => return Err(error),
    }
    if dry {
        let (records, bytes) = count_prunable(store, run, head.seq.next()).await?;
        return Ok(Removal::Removed(records, bytes));
    }
    match purge(head).await {
        // If two sweeps run concurrently, the second one finds an empty run.
        Ok(purged) if purged.records == 0 => Ok(Removal::Gone),
        Ok(purged) => Ok(Removal::Removed(purged.records, purged.bytes)),
        // Since the check, a signal restarted the run or pinned a record.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(Removal::Gone),
        Err(error) => Err(error),
    }
}
