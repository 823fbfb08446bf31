//! The memory store: the simplest store, for tests and for work that may be lost.

mod log;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use self::log::MemoryLog;
use super::contract::{
    Capabilities, CheckpointStore, Notice, Notices, PruneCut, Removed, RunAppend, check_append,
};
use super::query::{At, Order, Page, Paged, RunHead, RunQuery};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::Result;
use crate::headers::{HeaderRange, Headers};
use crate::id::{ExecutorId, HeadRef, RunKey};
use crate::listing::{Listing, RunPlace};
use crate::record::{Record, RecordHeader};
use crate::refusal;
use crate::relay::{Relay, RelayTexts, check_texts};
use crate::resealing::{Resealing, check_reseal};

/// Maximum number of undelivered notices of a subscriber. A slower subscriber loses notices and learns that it lost some.
///
/// A notice is about 32 bytes, so this costs 32 KiB. A subscriber with more undelivered notices does better with one listing.
const NOTICES: usize = 1_024;

/// A store in the memory of this process.
///
/// The data is lost when the process ends, and other processes cannot access it. A clone is another instance of the same store, like a second
/// connection to one database.
///
/// ```
/// use ferrata_store::{CheckpointStore, MemoryStore, Page, RunQuery};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = MemoryStore::new();
/// store.setup().await?;
/// assert!(store.runs(&RunQuery::default(), Page::default()).await?.items.is_empty());
/// assert!(!store.capabilities().durable);
/// # Ok::<(), ferrata_store::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<MemoryShared>,
}

struct MemoryShared {
    clock: Arc<dyn Clock>,
    // The lock is held for a few map lookups and moves of records, never across an await.
    content: Mutex<Content>,
    notices: broadcast::Sender<Notice>,
    /// Created with the first listener: most memory stores have no listener.
    said: OnceLock<broadcast::Sender<Arc<str>>>,
}

#[derive(Default)]
struct Content {
    runs: HashMap<RunKey, MemoryLog>,
    /// The runs in the order of listings.
    order: BTreeSet<RunPlace>,
    /// The time on the monotonic clock until which each executor is alive.
    alive: HashMap<ExecutorId, Duration>,
    /// The number of batches so far.
    batches: u64,
}

impl MemoryStore {
    /// Creates an empty store that uses the system clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// Creates an empty store that uses `clock`. Heartbeats expire by its monotonic time. Wake-ups become due by its wall time.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let (notices, said) = (broadcast::Sender::new(NOTICES), OnceLock::new());
        Self { shared: Arc::new(MemoryShared { clock, content: Mutex::default(), notices, said }) }
    }

    /// Changes the stored records of a run like a failing disk would, without any check. Returns whether the run exists.
    ///
    /// For tests of code that uses a store: change a body, remove a record or give it a newer format. Reads then fail as in any other store.
    #[doc(hidden)]
    pub fn tamper(&self, run: &RunKey, change: impl FnOnce(&mut Vec<Record>)) -> bool {
        self.content().runs.get_mut(run).map(|log| log.tamper(change)).is_some()
    }

    /// Returns the executors whose heartbeats have not expired, in order. Tests use it to find out which executors could still write.
    #[doc(hidden)]
    pub fn executors(&self) -> Vec<ExecutorId> {
        let now = self.shared.clock.monotonic();
        let mut alive: Vec<_> =
            self.content().alive.iter().filter(|(_, until)| now < **until).map(|(id, _)| *id).collect();
        alive.sort_unstable();
        alive
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        // After a panic in a caller's `tamper` or in the allocator, the records are valid or damaged; each read checks them anyway.
        self.shared.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(
        &self,
        run: &RunKey,
        read: impl FnOnce(&Content, &MemoryLog) -> Result<T>,
    ) -> Result<Option<T>> {
        let content = self.content();
        content.runs.get(run).map(|log| read(&content, log)).transpose()
    }

    fn is_alive(&self, content: &Content, header: &RecordHeader) -> bool {
        let now = self.shared.clock.monotonic();
        header.owner.is_some_and(|owner| content.alive.get(&owner).is_some_and(|until| now < *until))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("runs", &self.content().runs.len()).finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory").with_notices(true)
    }

    async fn setup(&self) -> Result<()> {
        Ok(())
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        // Compute checksums before the lock, so that writers of large bodies do not block each other.
        let checks: Vec<_> = batch.iter().map(check_append).collect();
        let is_heard = self.shared.notices.receiver_count() > 0;
        let mut changed = Vec::new();
        let results = {
            let mut content = self.content();
            let mut round = content.start_batch();
            let mut append = |(append, check): (RunAppend, Result<()>)| {
                let run = is_heard.then(|| append.run.clone());
                let head = content.append(&mut round, check, append)?;
                changed.extend(run.map(|run| Notice::new(run).with_head(head)));
                Ok(head)
            };
            batch.into_iter().zip(checks).map(&mut append).collect()
        };
        for notice in changed {
            // Fails if the last subscriber was just dropped: then no receiver is left.
            let _ = self.shared.notices.send(notice);
        }
        results
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.read(run, |_, log| log.load(run, at))
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.read(run, |_, log| log.load_since(run, known))
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.read(run, |_, log| log.range(run, range))?.ok_or_else(|| refusal::no_run("store.headers", run))
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.read(run, |content, log| log.run_head(run, |header| self.is_alive(content, header)))
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let listing = Listing::of_runs(query, page.order);
        let after = listing.after(&page)?;
        let now = self.shared.clock.now();
        let content = self.content();
        let meets = |place: &RunPlace| {
            let key = &place.run;
            let log = content.runs.get(key)?;
            match log.run_head(key, |header| self.is_alive(&content, header)) {
                Ok(head) => query.matches(&head, now).then_some(Ok(head)),
                Err(error) if query.fails_without(key) => Some(Err(error)),
                Err(error) => {
                    tracing::warn!(run = %key, %error, "skipped an unreadable run in a listing");
                    None
                }
            }
        };
        let wanted = page.max_items();
        let from = |place| match place {
            Some(place) => Bound::Excluded(place),
            None => Bound::Unbounded,
        };
        // Take one more run than requested: it shows whether another page follows.
        let items = match page.order {
            Order::OldestFirst | Order::Any => content
                .order
                .range((from(after), Bound::Unbounded))
                .filter_map(meets)
                .take(wanted + 1)
                .collect::<Result<_>>()?,
            Order::NewestFirst => content
                .order
                .range((Bound::Unbounded, from(after)))
                .rev()
                .filter_map(meets)
                .take(wanted + 1)
                .collect::<Result<_>>()?,
        };
        Ok(listing.cut(&page, items))
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let gone = match self.content().runs.get_mut(run) {
            Some(log) => log.prune(run, cut)?,
            None => return Err(refusal::no_run("store.prune", run)),
        };
        self.notify(run);
        // Release the lock before many records are freed, because that takes a while.
        Ok(log::count(&gone))
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        let gone = {
            let mut content = self.content();
            if let (Some(expected), Some(log)) = (expected, content.runs.get(run)) {
                let actual = log.head(run)?.head();
                if actual != expected {
                    return Err(
                        refusal::conflict(run, Some(expected), Some(actual)).with_operation("store.purge")
                    );
                }
            }
            let Some(log) = content.runs.remove(run) else { return Ok(Removed::default()) };
            content.order.remove(&place(run, log.facts.created));
            log.into_records()
        };
        self.notify(run);
        Ok(log::count(&gone))
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let now = self.shared.clock.monotonic();
        let mut content = self.content();
        content.alive.insert(*executor, now.saturating_add(ttl));
        // Ids of ended executors are never used again, so remove them. Otherwise the map would grow with every restart.
        content.alive.retain(|_, until| now < *until);
        Ok(())
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let now = self.shared.clock.monotonic();
        Ok(self.content().alive.get(executor).is_some_and(|until| now < *until))
    }

    fn transactions(&self) -> Option<&dyn crate::Transactions> {
        None
    }

    fn part(&self, _run: &RunKey) -> u64 {
        0
    }

    fn resealing(&self) -> Option<&dyn Resealing> {
        Some(self)
    }

    fn relay(&self) -> Option<&dyn Relay> {
        Some(self)
    }

    fn subscribe(&self) -> Option<Notices> {
        Some(Notices::new(self.shared.notices.subscribe()))
    }
}

#[async_trait]
impl Resealing for MemoryStore {
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        check_reseal(run, records)?;
        match self.content().runs.get_mut(run) {
            Some(log) => Ok(log.reseal(records)),
            None => Err(refusal::no_run("store.reseal", run)),
        }
    }
}

#[async_trait]
impl Relay for MemoryStore {
    async fn publish(&self, texts: Vec<String>) -> Result<()> {
        check_texts(&texts)?;
        if let Some(said) = self.shared.said.get() {
            for text in texts {
                // Fails if there is no listener: then no receiver is left.
                let _ = said.send(text.into());
            }
        }
        Ok(())
    }

    async fn listen(&self) -> Result<RelayTexts> {
        Ok(RelayTexts::new(self.shared.said.get_or_init(|| broadcast::Sender::new(NOTICES)).subscribe()))
    }
}

impl MemoryStore {
    fn notify(&self, run: &RunKey) {
        // Fails if there is no subscriber: then no receiver is left.
        let _ = self.shared.notices.send(Notice::new(run.clone()));
    }
}

/// A batch in progress: its number, and the runs in it that do not exist yet.
struct AppendRound {
    batch: u64,
    absent: Vec<RunKey>,
}

impl Content {
    fn start_batch(&mut self) -> AppendRound {
        self.batches += 1;
        AppendRound { batch: self.batches, absent: Vec::new() }
    }

    fn append(
        &mut self,
        round: &mut AppendRound,
        check: Result<()>,
        mut append: RunAppend,
    ) -> Result<HeadRef> {
        if let Some(log) = self.runs.get_mut(&append.run) {
            if std::mem::replace(&mut log.batch, round.batch) == round.batch {
                return Err(refusal::doubled(&append.run));
            }
            check?;
            return log.append(append);
        }
        if round.absent.contains(&append.run) {
            return Err(refusal::doubled(&append.run));
        }
        let facts = match (check, append.facts.take()) {
            (Ok(()), Some(facts)) => facts,
            (check, _) => {
                let conflict = refusal::conflict(&append.run, append.expected, None);
                round.absent.push(append.run);
                return check.and(Err(conflict));
            }
        };
        let run = append.run.clone();
        self.order.insert(place(&run, facts.created));
        self.runs.entry(run).or_insert(MemoryLog::new(facts, round.batch)).extend(append)
    }
}

fn place(run: &RunKey, created: Timestamp) -> RunPlace {
    RunPlace { created, run: run.clone() }
}
