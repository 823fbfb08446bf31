//! Sweeping a store: what a policy drops of all runs, a part at a time.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};

use super::family::check_removal;
use super::retention::{RetentionPolicy, prune_found, weigh};
use super::walk::folded_at;
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::record::RecordKind;
use crate::store::{At, CheckpointStore, Cursor, HeaderRange, Order, Page, Removed, RunHead, RunQuery};

type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Removes a run from the store as it was listed.
pub(crate) type Purge = dyn Fn(&RunHead) -> Task<'static, Result<Removed>> + Sync;

type SweepResult<'a> = (&'a dyn CheckpointStore, &'a Purge);

/// How much one call of [`sweep`](crate::runtime::Runtime::sweep) does at most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepLimits {
    /// How many runs it looks at.
    pub runs: u32,
    /// Where to go on, from the report before.
    pub cursor: Option<Cursor>,
    /// How many runs it deals with at the same time; 16 by default.
    ///
    /// Raised: as many more calls wait in the store at once, beside those of the runs that go on. Lowered: it takes longer.
    pub at_once: NonZeroUsize,
    /// For how long it rests after each page of a hundred runs, as a multiple of the time that the page took; from 0,
    /// as by default, to [`MAX_NICE_RATIO`](Self::MAX_NICE_RATIO).
    ///
    /// With 1 it rests as long as it works. Where the store is busy a page takes longer, and so does the rest. The last
    /// page of all is followed by none; the last page of a part is, before the report is given.
    pub nice_ratio: f64,
}

impl Default for SweepLimits {
    /// A thousand runs, from the first, 16 at the same time, without a rest: as fast as it can be.
    fn default() -> Self {
        Self { runs: 1_000, cursor: None, at_once: NonZeroUsize::MIN.saturating_add(15), nice_ratio: 0.0 }
    }
}

impl SweepLimits {
    /// The highest ratio of rest to work.
    pub const MAX_NICE_RATIO: f64 = 100.0;

    /// Limits for a sweep beside runs that go on in the same store: one run at a time, and after each page of a hundred
    /// a rest of half the time that the page took.
    ///
    /// A store that is busy with those runs answers later, so that the sweep asks it less often.
    ///
    /// <!-- held by: pages::a_sweep_goes_on_after_a_rest_where_its_caller_is_gone -->
    #[must_use]
    pub fn gentle() -> Self {
        Self { at_once: NonZeroUsize::MIN, nice_ratio: 0.5, ..Self::default() }
    }

    /// Looks at most at so many runs.
    #[must_use]
    pub fn with_runs(mut self, runs: u32) -> Self {
        self.runs = runs;
        self
    }

    /// Deals with at most so many runs at the same time.
    #[must_use]
    pub fn with_at_once(mut self, runs: NonZeroUsize) -> Self {
        self.at_once = runs;
        self
    }

    /// Rests after each page of a hundred runs for so many times as long as the page took.
    #[must_use]
    pub fn with_nice_ratio(mut self, ratio: f64) -> Self {
        self.nice_ratio = ratio;
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

/// Deals with a part of the store's runs.
pub(crate) async fn sweep(
    swept: SweepResult<'_>,
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
            deals.push(Box::pin(async move { (place, deal(swept, policy, head, now, dry).await) }));
        }
        let mut dealt: Vec<_> = stream::iter(deals).buffer_unordered(limits.at_once.get()).collect().await;
        dealt.sort_unstable_by_key(|(place, _)| *place);
        for (head, (_, dealt)) in found.items.iter().zip(dealt) {
            report.note(&head.run, dealt);
        }
        report.next = found.next;
        if report.next.is_none() {
            return Ok(report);
        }
        // Also where this part ends here: its caller goes on with the next one at once.
        rest(clock, clock.monotonic().saturating_sub(begun), limits.nice_ratio).await;
        if left == 0 {
            return Ok(report);
        }
    }
}

/// Checks that a nice ratio is in range.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if it is not.
pub(crate) fn check_ratio(ratio: f64) -> Result<()> {
    let most = SweepLimits::MAX_NICE_RATIO;
    if (0.0..=most).contains(&ratio) {
        return Ok(());
    }
    let message = format!("the nice ratio of the sweep is {ratio}; give one from 0 to {most}");
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Rests after so much work.
async fn rest(clock: &dyn Clock, worked: Duration, ratio: f64) {
    let rest = Duration::try_from_secs_f64(worked.as_secs_f64() * ratio).unwrap_or(Duration::MAX);
    if !rest.is_zero() {
        clock.sleep(rest).await;
    }
}

/// What became of a run.
#[derive(Clone, Copy)]
enum SweepOutcome {
    /// Nothing was dropped, or the run is gone by another caller.
    Left,
    /// It lost so many records, of so many bytes.
    Pruned(u64, u64),
    /// It is gone, with so many records, of so many bytes.
    Purged(u64, u64),
}

impl SweepReport {
    /// Adds the report of the next part. Returns where the part after that goes on.
    pub(crate) fn add(&mut self, part: Self) -> Option<Cursor> {
        self.runs += part.runs;
        self.pruned += part.pruned;
        self.purged += part.purged;
        self.records += part.records;
        self.bytes += part.bytes;
        self.failed.extend(part.failed);
        part.next
    }

    fn note(&mut self, run: &RunKey, dealt: Result<SweepOutcome>) {
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

async fn deal(
    swept: SweepResult<'_>,
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
        // Purged or pruned by another caller meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(SweepOutcome::Left),
        dealt => dealt,
    }
}

/// Removes a run whose time has come; none if it stays.
async fn removed(
    swept: SweepResult<'_>,
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
async fn remove((store, purge): SweepResult<'_>, head: &RunHead, dry: bool) -> Result<Removal> {
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
        let (records, bytes) = weigh(store, run, head.seq.next()).await?;
        return Ok(Removal::Removed(records, bytes));
    }
    match purge(head).await {
        // Of two sweeps that are at it at once, one finds nothing left.
        Ok(purged) if purged.records == 0 => Ok(Removal::Gone),
        Ok(purged) => Ok(Removal::Removed(purged.records, purged.bytes)),
        // A signaller had it go on, or pinned a record, since it was looked at.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(Removal::Gone),
        Err(error) => Err(error),
    }
}
