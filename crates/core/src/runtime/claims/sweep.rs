//! Finds runs without a driver in the store and claims them: orphans (runs of dead processes), idle runs that were answered, and idle runs whose
//! timer has expired.
//!
//! A process without work sends one query in each interval. One query is for orphans, the next for due runs, and so on. If a query finds a run, or a
//! signal reports work, the process sends both queries and continues page by page. It tries to claim the runs of each page in a random order. If
//! other processes work on the same page, the process skips a random number of pages, and returns to the skipped pages at the end. So several
//! processes share the work without communication. On the last page no page can be skipped. There the process tries only a share of the runs, which
//! depends on its success with the previous last page. Without this rule, each of a thousand processes would try to claim each run.
//!
//! A run never waits for the claim of a run in another [part](crate::store::CheckpointStore::part) (shard) of the store: slow claims continue while
//! the next page is processed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::clock::within;
use crate::error::Result;
use crate::kernel::admission::RunPermit;
use crate::kernel::commands::RuntimePhase;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::recovery::ClaimTarget;
use crate::kernel::recovery::{ClaimOutcome, Claimer};
use crate::kernel::tasks::{caught, spawn};
use crate::runtime::claims::orphan_ages::OrphanTracker;
use crate::runtime::outbox::take_listed;
use crate::store::{Cursor, Order, Page, RunFilter, RunHead, RunQuery};

/// The number of runs in a page. It is large enough for several processes to find different runs, and small enough for a quick answer.
const PAGE: u32 = 500;

/// The maximum number of pages of one sweep. Without it, many runs that cannot be claimed would keep this process from starting again at the first
/// page.
const PAGES: u32 = 40;

/// The number of runs on a page that other processes claimed first, after which this process leaves the page to them.
const LATE: u32 = 16;

/// The smallest and the largest number of pages from which the process chooses how many pages it skips when other processes work on the same page. A
/// few processes need to skip few pages, to avoid useless reads. Many processes need to skip many pages, to avoid meeting again.
const LEAST_REACH: u64 = 8;
const MOST_REACH: u64 = 32;

/// The time for which the runs in one part of the store may delay the runs in other parts. If it were shorter than the usual sweep interval, claims
/// would be abandoned that are only slow.
const PATIENCE: Duration = Duration::from_secs(5);

/// The smallest share of the last page that a process tries. At least one run is tried. In a fleet of 512 processes, each run is then tried about
/// once.
const LEAST_SHARE: f64 = 1.0 / 512.0;

/// The maximum number of recovered runs that wait in line in this process. Other processes may have capacity for further runs.
const LINE: usize = 2_000;

/// The longest pause after failed sweeps.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

const FILTERS: [RunFilter; 2] = [RunFilter::Orphaned, RunFilter::Due];

/// Sweeps for runs to claim, repeatedly until the runtime ends.
pub(crate) async fn sweep(shared: Weak<RuntimeInner>) {
    let Some(mut sweeper) = shared.upgrade().map(|shared| RecoverySweeper::new(&shared)) else { return };
    let (mut turn, mut failed, mut wide) = (0, 0u32, true);
    loop {
        let Some(strong) = shared.upgrade() else { return };
        if strong.is_closing() {
            return;
        }
        turn += 1;
        let filters = if wide { &FILTERS[..] } else { &FILTERS[turn % 2..=turn % 2] };
        match sweeper.claim_listed(&strong, filters).await {
            Ok(found) => (failed, wide) = (0, found),
            Err(error) => {
                failed += 1;
                tracing::warn!(%error, failed, "cannot list runs to claim; will retry");
            }
        }
        strong.telemetry().stalled(|| strong.recovery.count());
        let longest = LONGEST_PAUSE.max(strong.limits.sweep);
        let pause = strong.limits.sweep.saturating_mul(1 << failed.min(10)).min(longest);
        let wait = spread(pause, sweeper.chance());
        let (clock, mut stop) = (Arc::clone(&strong.clock), strong.registry.watch_stop());
        let recovery = Arc::clone(&strong.recovery);
        drop(strong);
        tokio::select! {
            // Biased, because simulations must be deterministic.
            biased;
            () = recovery.bell.notified(), if failed == 0 => wide = true,
            _ = stop.wait_for(|stop| stop.phase != RuntimePhase::Open) => return,
            () = clock.sleep(wait) => {}
        }
    }
}

/// Delivers the outbox messages of an ended run, if this process has sinks.
fn deliver(shared: &Arc<RuntimeInner>, head: RunHead, filter: RunFilter) {
    let (part, at_once) = (shared.store.part(&head.run), shared.limits.recovered_at_once);
    if !shared.post().has_outlets()
        || shared.recovery.should_skip(&head.run, filter, shared.clock.now())
        || shared.recovery.is_claiming(part, &head.run, at_once)
    {
        return;
    }
    let claiming = shared.recovery.begin_claim(part, &head.run);
    let shared = Arc::clone(shared);
    spawn(async move {
        let _claiming = claiming;
        let taken = caught(&head.run, Box::pin(take_listed(&shared, &head))).await.flatten();
        shared.recovery.record_claim(head.run, taken, filter, shared.clock.now());
    });
}

/// Makes a pause up to a quarter longer or shorter. `chance` is a random number between 0 and 1.
fn spread(pause: Duration, chance: f64) -> Duration {
    // `mul_f64` panics on overflow.
    Duration::try_from_secs_f64(pause.as_secs_f64() * (0.75 + 0.5 * chance)).unwrap_or(Duration::MAX)
}

/// The state between sweeps.
struct RecoverySweeper {
    random_state: u64,
    /// For each filter, the position where a sweep stopped because it was too long, and the round in which the current pass over the listing started.
    cursors: [(Option<Cursor>, u64); 2],
    /// The share of the last page that this process tries. It is the whole page while this process is alone, and is halved each time other processes
    /// claimed more runs of the page.
    share: f64,
    /// The maximum number of pages that are skipped when other processes work on the same page.
    reach: u64,
    /// The longest time for which a listed run has waited for a driver.
    oldest: Duration,
    orphans: OrphanTracker,
    /// The number of the current sweep.
    round: u64,
}

/// The result of one page.
struct PageResult {
    found: bool,
    unserved: usize,
    /// The start of the next page, if there is one.
    next: Option<Cursor>,
    end: PageEnd,
}

enum PageEnd {
    /// There are more pages, and the next page begins at this cursor.
    More(Cursor),
    Last,
    /// Other processes claim runs of the same page.
    Contended,
    /// This process has no capacity for more runs.
    Full,
}

impl RecoverySweeper {
    fn new(shared: &RuntimeInner) -> Self {
        let (high, low) = shared.executor.as_uuid().as_u64_pair();
        Self {
            random_state: (high ^ low.rotate_left(32)) | 1,
            cursors: [(None, 0), (None, 0)],
            share: 1.0,
            reach: LEAST_REACH,
            oldest: Duration::ZERO,
            orphans: OrphanTracker::default(),
            round: 0,
        }
    }

    /// Returns the next number of a process-specific random sequence (xorshift64*, Vigna 2014).
    fn next(&mut self) -> u64 {
        self.random_state ^= self.random_state >> 12;
        self.random_state ^= self.random_state << 25;
        self.random_state ^= self.random_state >> 27;
        self.random_state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a random number between 0 and 1, different in each process, so that a fleet does not sweep in unison.
    fn chance(&mut self) -> f64 {
        f64::from((self.next() >> 40) as u32) / f64::from(1u32 << 24)
    }

    /// Claims runs that have no driver. Returns whether the listings contained any runs.
    async fn claim_listed(&mut self, shared: &Arc<RuntimeInner>, filters: &[RunFilter]) -> Result<bool> {
        let mut found = false;
        for &filter in filters {
            let mut any = RunQuery::default();
            any.filter = filter;
            let place = usize::from(filter == RunFilter::Due);
            let (from, since) = std::mem::take(&mut self.cursors[place]);
            let round = shared.recovery.begin_round();
            let since = if from.is_some() { since } else { round };
            self.round = round;
            self.oldest = Duration::ZERO;
            let (some, unserved, end) = self.list(shared, &any, from).await?;
            found |= some;
            match end {
                PageEnd::More(cursor) if unserved => {
                    // This process serves few of them: list each workflow separately, to get only claimable runs.
                    for workflow in shared.recovery.workflows() {
                        let mut query = any.clone();
                        query.workflow = Some(workflow);
                        found |= self.list(shared, &query, None).await?.0;
                    }
                    self.cursors[place] = (Some(cursor), since);
                }
                PageEnd::More(cursor) => self.cursors[place] = (Some(cursor), since),
                PageEnd::Last => {
                    shared.recovery.drop_unseen(filter, since);
                    if filter == RunFilter::Orphaned {
                        self.orphans.drop_unseen(since);
                    }
                }
                PageEnd::Full => shared.recovery.fill(),
                PageEnd::Contended => {}
            }
            shared.telemetry().looked(filter, self.oldest);
        }
        Ok(found)
    }

    /// Claims the runs of a listing. Returns whether there were runs to claim, and whether this process does not serve most of them.
    async fn list(
        &mut self,
        shared: &Arc<RuntimeInner>,
        query: &RunQuery,
        from: Option<Cursor>,
    ) -> Result<(bool, bool, PageEnd)> {
        let (mut found, mut cursor) = (false, from);
        let (mut ahead, mut has_skipped) = (0, false);
        for _ in 0..PAGES {
            // With limits, the oldest must come first. Otherwise the order within a page is random, so any order will do.
            let order = if shared.admission.is_limited() { Order::OldestFirst } else { Order::Any };
            let mut page = Page::first(PAGE).with_order(order);
            page.cursor = cursor.take();
            if ahead > 0 {
                cursor = shared.store.runs(query, page).await?.next;
                // There is no further page, so the first comes next.
                ahead = if cursor.is_some() { ahead - 1 } else { 0 };
                continue;
            }
            let read = self.page(shared, query, page).await?;
            found |= read.found;
            match read.end {
                PageEnd::More(next) if read.unserved * 2 > PAGE as usize => {
                    return Ok((found, true, PageEnd::More(next)));
                }
                PageEnd::More(next) => cursor = Some(next),
                PageEnd::Contended if read.next.is_some() && !shared.is_closing() => {
                    (cursor, ahead, has_skipped) = (read.next, self.jump(), true);
                }
                // Return to the skipped pages.
                PageEnd::Last if has_skipped => has_skipped = false,
                end => return Ok((found, false, end)),
            }
        }
        Ok((found, false, cursor.map_or(PageEnd::Contended, PageEnd::More)))
    }

    /// Claims the runs of one page, and waits for the claims. It stops waiting if one part of the store has delayed the other parts for too long.
    async fn page(&mut self, shared: &Arc<RuntimeInner>, query: &RunQuery, page: Page) -> Result<PageResult> {
        let listed = shared.store.runs(query, page).await?;
        let at_once = shared.limits.recovered_at_once;
        let (mut rooms, mut stuck) = (HashMap::new(), HashSet::new());
        let (late, won) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let filter = query.filter;
        let is_last = listed.next.is_none();
        let mut heads = listed.items;
        let mut tries = if is_last { self.part_of(heads.len()) } else { heads.len() };
        let (next, end) = (listed.next.clone(), listed.next.map_or(PageEnd::Last, PageEnd::More));
        let mut read = PageResult { found: false, unserved: 0, next, end };
        if !shared.admission.is_limited() {
            self.shuffle(&mut heads);
        }
        for head in heads {
            if shared.driven() >= shared.limits.max_recovered {
                read.end = PageEnd::Full;
                break;
            }
            if late.load(Ordering::Relaxed) >= LATE {
                read.end = PageEnd::Contended;
                break;
            }
            if shared.is_closing() {
                read.end = PageEnd::Contended;
                break;
            }
            let now = shared.clock.now();
            if head.is_delivering() {
                deliver(shared, head, filter);
                continue;
            }
            let lacking = shared.services.tags.lacking(&head.facts);
            let claimer = shared.recovery.claimer(&head.facts.workflow).filter(|_| lacking.is_none());
            let Some(claimer) = claimer else {
                read.unserved += 1;
                shared.recovery.note_unserved(&head, lacking, filter, now);
                continue;
            };
            let waits_since = match filter {
                RunFilter::Due => head.wake_at.unwrap_or(head.updated),
                _ => self.orphans.since(&head, self.round, now),
            };
            self.oldest = self.oldest.max(now.since(waits_since));
            if shared.driver(&head.run).is_some()
                || shared.admission.is_waiting(&head.run)
                || shared.recovery.should_skip(&head.run, filter, now)
            {
                continue;
            }
            read.found = true;
            if tries == 0 {
                // Another process tries it.
                continue;
            }
            let part = shared.store.part(&head.run);
            if stuck.contains(&part) || shared.recovery.is_claiming(part, &head.run, at_once) {
                continue;
            }
            tries -= 1;
            let room = rooms.entry(part).or_insert_with(|| Arc::new(Semaphore::new(at_once as usize)));
            let turn = within(&*shared.clock, PATIENCE, Arc::clone(room).acquire_owned()).await;
            // The semaphore is never closed.
            let Some(Ok(turn)) = turn else {
                stuck.insert(part);
                continue;
            };
            let Some(permit) = shared.admission.try_admit(&head.run, &head.facts) else {
                line_up(shared, claimer, head, filter);
                continue;
            };
            let claiming = shared.recovery.begin_claim(part, &head.run);
            let (shared, late, won) = (Arc::clone(shared), Arc::clone(&late), Arc::clone(&won));
            spawn(async move {
                let _claiming = claiming;
                match claim_one(shared, claimer, head.into(), permit, filter).await {
                    Some(ClaimOutcome::Late) => {
                        late.fetch_add(1, Ordering::Relaxed);
                    }
                    Some(ClaimOutcome::Driven | ClaimOutcome::Done) => {
                        won.fetch_add(1, Ordering::Relaxed);
                    }
                    None => {}
                }
                drop(turn);
            });
        }
        let all = async {
            for room in rooms.values() {
                let _ = room.acquire_many(at_once).await;
            }
        };
        // A single part delays no other part, and the next page must not list slow claims again.
        match rooms.len() {
            0 | 1 => all.await,
            _ => drop(within(&*shared.clock, PATIENCE, all).await),
        }
        self.learn(is_last, won.load(Ordering::Relaxed), late.load(Ordering::Relaxed));
        Ok(read)
    }

    /// Returns how many runs of the last page this process tries.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a page")]
    fn part_of(&self, runs: usize) -> usize {
        (runs as f64 * self.share).ceil() as usize
    }

    /// Returns how many pages to skip because other processes work on the same page. The number grows with each repetition.
    fn jump(&mut self) -> u64 {
        self.reach = (self.reach * 2).min(MOST_REACH);
        self.next() % self.reach
    }

    /// Adapts to the result of a page. If this process claimed fewer than half of the runs that it tried on the last page, it has many competitors,
    /// and tries a smaller share next time.
    fn learn(&mut self, is_last: bool, won: u32, late: u32) {
        if !is_last {
            if late < LATE {
                self.reach = (self.reach / 2).max(LEAST_REACH);
            }
        } else if late > won {
            self.share = (self.share / 2.0).max(LEAST_SHARE);
        } else if won > 0 {
            self.share = (self.share * 2.0).min(1.0);
        }
    }

    fn shuffle(&mut self, heads: &mut [RunHead]) {
        for last in (1..heads.len()).rev() {
            let other = usize::try_from(self.next() % (last as u64 + 1));
            heads.swap(last, other.unwrap_or(last));
        }
    }
}

/// Claims one run and records the result.
pub(crate) async fn claim_one(
    shared: Arc<RuntimeInner>,
    claimer: Claimer,
    known: ClaimTarget,
    permit: RunPermit,
    filter: RunFilter,
) -> Option<ClaimOutcome> {
    let (run, now) = (known.head.run.clone(), shared.clock.now());
    // Loading the state runs user code: after a panic, later sweeps must not retry at once.
    let result = caught(&run, claimer(known, permit)).await.and_then(|took| took);
    let took = result.as_ref().ok().copied();
    shared.recovery.record_claim(run, result.map(drop), filter, now);
    took
}

/// Puts a run in line for capacity, unless the line is so long that other processes should claim the run.
pub(crate) fn line_up(shared: &Arc<RuntimeInner>, claimer: Claimer, head: RunHead, filter: RunFilter) {
    if shared.admission.waiting() >= LINE {
        return;
    }
    let (run, facts) = (head.run.clone(), head.facts.clone());
    let line = Arc::clone(&shared.admission);
    let shared = Arc::clone(shared);
    let next: crate::kernel::admission::RunStarter = Box::new(move |permit| {
        Box::pin(async move {
            // It may have waited for long: its current head decides.
            match shared.store.head(&head.run).await {
                Ok(Some(head)) => drop(claim_one(shared, claimer, head.into(), permit, filter).await),
                Ok(None) => {}
                Err(error) => shared.recovery.record_claim(head.run, Err(error), filter, shared.clock.now()),
            }
        })
    });
    line.line_up(&run, &facts, next);
}
