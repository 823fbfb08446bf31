//! Looking for runs without a driver: orphans of processes that ended, runs that were answered, and runs whose time has come.
//!
//! An idle process asks one question each time, for orphans and for due runs in turn. One that finds something, or is told that there
//! may be something, asks both, and goes on page by page. Of each page the runs are tried in an order of this process's own. Where others
//! are at work on the same page, a process goes on some pages ahead, as many as chance says, and comes back in the end: so several
//! processes share the work without speaking to each other. There is no page ahead of the last one: how much of that a process tries
//! follows from how much of the one before it got. A fleet of a thousand would otherwise try each run a thousand times.
//!
//! No run waits for one in another [part](crate::store::CheckpointStore::part) of the store: what cannot be taken up in time goes on
//! beside the next page.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::admission::RunPermit;
use super::recovery::{ClaimOutcome, Claimer};
use super::sightings::OrphanTracker;
use crate::clock::within;
use crate::error::Result;
use crate::runtime::post::take_listed;
use crate::runtime::requests::resume::ClaimTarget;
use crate::runtime::shared::{RuntimeInner, RuntimePhase};
use crate::runtime::tasks::{caught, spawn};
use crate::store::{Cursor, Order, Page, RunFilter, RunHead, RunQuery};

/// How many runs one page holds: enough for several processes to find different ones in it, little enough to be answered at once.
const PAGE: u32 = 500;

/// How many pages one look goes on for: what cannot be taken up must not keep this process from starting over.
const PAGES: u32 = 40;

/// How many runs of a page others may take first before it is left to them.
const LATE: u32 = 16;

/// How many pages ahead a process goes at the most when others are at work on the same one: at first, and when it happens again and again.
/// Four processes want few, so that none reads pages in vain; sixty-four want many, so that they do not meet again.
const LEAST_REACH: u64 = 8;
const MOST_REACH: u64 = 32;

/// How long the runs of one part of the store may hold up the others. Less than a look's usual pause would leave what is only slow.
const PATIENCE: Duration = Duration::from_secs(5);

/// The least part of the last page that a process tries, one run at least: a fleet of so many times its size tries each run about once.
const LEAST_SHARE: f64 = 1.0 / 512.0;

/// How many runs may stand in line here that recovery found: others may have room for the rest.
const LINE: usize = 2_000;

/// The longest pause after looks that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

const FILTERS: [RunFilter; 2] = [RunFilter::Orphaned, RunFilter::Due];

/// Looks for runs to take up, as long as there is a runtime.
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
                tracing::warn!(%error, failed, "cannot look for runs to take up; trying again");
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
            // In this order, so that a simulation takes the same course each time.
            biased;
            () = recovery.bell.notified(), if failed == 0 => wide = true,
            _ = stop.wait_for(|stop| stop.phase != RuntimePhase::Open) => return,
            () = clock.sleep(wait) => {}
        }
    }
}

/// Delivers the letters of a run that has ended, if this process delivers any.
fn deliver(shared: &Arc<RuntimeInner>, head: RunHead, filter: RunFilter) {
    let (part, at_once) = (shared.store.part(&head.run), shared.limits.recovered_at_once);
    if !shared.post().has_outlets()
        || shared.recovery.rests(&head.run, filter, shared.clock.now())
        || shared.recovery.is_claiming(part, &head.run, at_once)
    {
        return;
    }
    let claiming = shared.recovery.begin_claim(part, &head.run);
    let shared = Arc::clone(shared);
    spawn(async move {
        let _claiming = claiming;
        let taken = caught(&head.run, Box::pin(take_listed(&shared, &head))).await.flatten();
        shared.recovery.tried(head.run, taken, filter, shared.clock.now());
    });
}

/// Spreads a pause by a quarter to both sides, for a chance between 0 and 1.
fn spread(pause: Duration, chance: f64) -> Duration {
    // `mul_f64` panics where the result is beyond the longest duration.
    Duration::try_from_secs_f64(pause.as_secs_f64() * (0.75 + 0.5 * chance)).unwrap_or(Duration::MAX)
}

/// What one look after another knows.
struct RecoverySweeper {
    dice: u64,
    /// For each filter: where a look that went on for too long ended, and since which round the list of all is gone through.
    left_off: [(Option<Cursor>, u64); 2],
    /// Which part of the last page it tries: all while it is alone, half as much each time when others got more of the last than it.
    share: f64,
    /// How many pages ahead it goes at the most.
    reach: u64,
    /// How long the oldest run of the listing has waited.
    oldest: Duration,
    orphans: OrphanTracker,
    /// The look that it is at.
    round: u64,
}

/// What one page came to.
struct Read {
    found: bool,
    unserved: usize,
    /// Where the next page begins, if there is one.
    next: Option<Cursor>,
    end: End,
}

enum End {
    /// There are more.
    More(Cursor),
    Last,
    /// Others take these, too.
    Contended,
    /// There is no room for more.
    Full,
}

impl RecoverySweeper {
    fn new(shared: &RuntimeInner) -> Self {
        let (high, low) = shared.executor.as_uuid().as_u64_pair();
        Self {
            dice: (high ^ low.rotate_left(32)) | 1,
            left_off: [(None, 0), (None, 0)],
            share: 1.0,
            reach: LEAST_REACH,
            oldest: Duration::ZERO,
            orphans: OrphanTracker::default(),
            round: 0,
        }
    }

    /// The next number of a sequence that differs from process to process (xorshift64*, Vigna 2014).
    fn next(&mut self) -> u64 {
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        self.dice.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Between 0 and 1, other for each process and each time: a fleet does not look all at once.
    fn chance(&mut self) -> f64 {
        f64::from((self.next() >> 40) as u32) / f64::from(1u32 << 24)
    }

    /// Claims runs without a driver. Returns whether the listings held any.
    async fn claim_listed(&mut self, shared: &Arc<RuntimeInner>, filters: &[RunFilter]) -> Result<bool> {
        let mut found = false;
        for &filter in filters {
            let mut any = RunQuery::default();
            any.filter = filter;
            let place = usize::from(filter == RunFilter::Due);
            let (from, since) = std::mem::take(&mut self.left_off[place]);
            let round = shared.recovery.begin_round();
            let since = if from.is_some() { since } else { round };
            self.round = round;
            self.oldest = Duration::ZERO;
            let (some, unserved, end) = self.list(shared, &any, from).await?;
            found |= some;
            match end {
                End::More(cursor) if unserved => {
                    // This process serves few of them: the list of each workflow holds only what can be taken up.
                    for workflow in shared.recovery.workflows() {
                        let mut query = any.clone();
                        query.workflow = Some(workflow);
                        found |= self.list(shared, &query, None).await?.0;
                    }
                    self.left_off[place] = (Some(cursor), since);
                }
                End::More(cursor) => self.left_off[place] = (Some(cursor), since),
                End::Last => {
                    shared.recovery.forget_before(filter, since);
                    if filter == RunFilter::Orphaned {
                        self.orphans.forget_before(since);
                    }
                }
                End::Full => shared.recovery.fill(),
                End::Contended => {}
            }
            shared.telemetry().looked(filter, self.oldest);
        }
        Ok(found)
    }

    /// Goes through a listing. Returns whether there was anything to take up, and whether most of it was unserved.
    async fn list(
        &mut self,
        shared: &Arc<RuntimeInner>,
        query: &RunQuery,
        from: Option<Cursor>,
    ) -> Result<(bool, bool, End)> {
        let (mut found, mut cursor) = (false, from);
        let (mut ahead, mut has_skipped) = (0, false);
        for _ in 0..PAGES {
            // Who is capped lets in the oldest first; else a page is gone through in no order, so any will do.
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
                End::More(next) if read.unserved * 2 > PAGE as usize => {
                    return Ok((found, true, End::More(next)));
                }
                End::More(next) => cursor = Some(next),
                End::Contended if read.next.is_some() && !shared.is_closing() => {
                    (cursor, ahead, has_skipped) = (read.next, self.jump(), true);
                }
                // What was passed over comes now.
                End::Last if has_skipped => has_skipped = false,
                end => return Ok((found, false, end)),
            }
        }
        Ok((found, false, cursor.map_or(End::Contended, End::More)))
    }

    /// Takes up the runs of one page, and waits until they are, or until one part of the store has held up the others for long enough.
    async fn page(&mut self, shared: &Arc<RuntimeInner>, query: &RunQuery, page: Page) -> Result<Read> {
        let listed = shared.store.runs(query, page).await?;
        let at_once = shared.limits.recovered_at_once;
        let (mut rooms, mut stuck) = (HashMap::new(), HashSet::new());
        let (late, won) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let filter = query.filter;
        let is_last = listed.next.is_none();
        let mut heads = listed.items;
        let mut tries = if is_last { self.part_of(heads.len()) } else { heads.len() };
        let (next, end) = (listed.next.clone(), listed.next.map_or(End::Last, End::More));
        let mut read = Read { found: false, unserved: 0, next, end };
        if !shared.admission.is_limited() {
            self.shuffle(&mut heads);
        }
        for head in heads {
            if shared.driven() >= shared.limits.max_recovered {
                read.end = End::Full;
                break;
            }
            if late.load(Ordering::Relaxed) >= LATE {
                read.end = End::Contended;
                break;
            }
            if shared.is_closing() {
                read.end = End::Contended;
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
                shared.recovery.unserved(&head, lacking, filter, now);
                continue;
            };
            let waits_since = match filter {
                RunFilter::Due => head.wake_at.unwrap_or(head.updated),
                _ => self.orphans.since(&head, self.round, now),
            };
            self.oldest = self.oldest.max(now.since(waits_since));
            if shared.driver(&head.run).is_some()
                || shared.admission.is_waiting(&head.run)
                || shared.recovery.rests(&head.run, filter, now)
            {
                continue;
            }
            read.found = true;
            if tries == 0 {
                // Others try it.
                continue;
            }
            let part = shared.store.part(&head.run);
            if stuck.contains(&part) || shared.recovery.is_claiming(part, &head.run, at_once) {
                continue;
            }
            tries -= 1;
            let room = rooms.entry(part).or_insert_with(|| Arc::new(Semaphore::new(at_once as usize)));
            let turn = within(&*shared.clock, PATIENCE, Arc::clone(room).acquire_owned()).await;
            // Never closed.
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
                match go(shared, claimer, head.into(), permit, filter).await {
                    Some(ClaimOutcome::Late) => drop(late.fetch_add(1, Ordering::Relaxed)),
                    Some(ClaimOutcome::Done) => drop(won.fetch_add(1, Ordering::Relaxed)),
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
        // A single part holds up no other part, and the next page must not find again what is only slow.
        match rooms.len() {
            0 | 1 => all.await,
            _ => drop(within(&*shared.clock, PATIENCE, all).await),
        }
        self.learn(is_last, won.load(Ordering::Relaxed), late.load(Ordering::Relaxed));
        Ok(read)
    }

    /// Returns how many runs of a page to try.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a page")]
    fn part_of(&self, runs: usize) -> usize {
        (runs as f64 * self.share).ceil() as usize
    }

    /// Returns how many pages to pass over, where others are at work on one: further the more often they are.
    fn jump(&mut self) -> u64 {
        self.reach = (self.reach * 2).min(MOST_REACH);
        self.next() % self.reach
    }

    /// Takes in how a page went: who gets less than half of what it tries of the last one has many beside it, and tries less.
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

/// Takes up one run and notes how that ended.
pub(crate) async fn go(
    shared: Arc<RuntimeInner>,
    claimer: Claimer,
    known: ClaimTarget,
    permit: RunPermit,
    filter: RunFilter,
) -> Option<ClaimOutcome> {
    let (run, now) = (known.head.run.clone(), shared.clock.now());
    // Reading its state is the user's code: a run that panics there must not be tried again in each look.
    let result = caught(&run, claimer(Arc::clone(&shared), known, permit)).await.and_then(|took| took);
    let took = result.as_ref().ok().copied();
    shared.recovery.tried(run, result.map(drop), filter, now);
    took
}

/// Lets a run wait here for room, unless so many do that others may as well have them.
pub(crate) fn line_up(shared: &Arc<RuntimeInner>, claimer: Claimer, head: RunHead, filter: RunFilter) {
    if shared.admission.waiting() >= LINE {
        return;
    }
    let (run, facts) = (head.run.clone(), head.facts.clone());
    let line = Arc::clone(&shared.admission);
    let shared = Arc::clone(shared);
    let next: super::admission::Go = Box::new(move |permit| {
        Box::pin(async move {
            // It may have waited for long: how it stands now decides.
            match shared.store.head(&head.run).await {
                Ok(Some(head)) => drop(go(shared, claimer, head.into(), permit, filter).await),
                Ok(None) => {}
                Err(error) => shared.recovery.tried(head.run, Err(error), filter, shared.clock.now()),
            }
        })
    });
    line.line_up(&run, &facts, next);
}
