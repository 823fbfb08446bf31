//! The network between processes and the store: requests and replies are delayed, reordered or lost, even after their process has died.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::record::Record;
use ferrata_core::store::{
    At, Capabilities, CheckpointStore, HeaderRange, Headers, MemoryStore, Notices, Page, Paged, PruneCut,
    Removed, Resealing, RunAppend, RunHead, RunQuery,
};
use ferrata_core::{Clock, Error, ErrorKind, ExecutorId, HeadRef, Result, RunKey};
use ferrata_testing::ManualClock;
use tokio::sync::oneshot;

use super::nodes::Seat;
use super::rules::Rules;
use crate::support::dice::Dice;

/// The fate of a call.
enum Fate {
    Done,
    /// The call is not executed, and the caller gets an error.
    Refused,
    /// The call is executed, and the caller gets an unknown outcome.
    ReplyLost,
    /// The caller gets an unknown outcome, and then the call runs.
    Late,
    /// The caller never gets a reply. The call is executed or not.
    Silent,
}

struct Envelope {
    from: u64,
    not_before: Duration,
    open: Box<dyn FnOnce() + Send>,
}

pub(crate) struct Net {
    pub(crate) store: MemoryStore,
    pub(crate) rules: Arc<Rules>,
    clock: ManualClock,
    dice: Arc<Dice>,
    under_way: Mutex<Vec<Envelope>>,
    /// Number of faulty calls per thousand.
    faults: Mutex<u64>,
    /// Whether the store sends notices.
    tells: bool,
}

impl Net {
    pub(crate) fn new(store: MemoryStore, rules: Arc<Rules>, clock: ManualClock, dice: Arc<Dice>) -> Self {
        let (faults, tells) = (*dice.pick(&[0, 20, 80, 200]), dice.below(3) > 0);
        let (under_way, faults) = (Mutex::default(), Mutex::new(faults));
        Self { store, rules, clock, dice, under_way, faults, tells }
    }

    /// Turns off all faults.
    pub(crate) fn calm(&self) {
        *self.faults.lock().unwrap() = 0;
    }

    fn fate(&self) -> Fate {
        if self.dice.below(1_000) >= *self.faults.lock().unwrap() {
            return Fate::Done;
        }
        match self.dice.below(7) {
            0 | 1 => Fate::Refused,
            2 | 3 => Fate::ReplyLost,
            4 | 5 => Fate::Late,
            _ => Fate::Silent,
        }
    }

    fn post(&self, from: u64, delay: Duration, open: impl FnOnce() + Send + 'static) {
        let not_before = self.clock.monotonic() + delay;
        self.under_way.lock().unwrap().push(Envelope { from, not_before, open: Box::new(open) });
    }

    /// Delivers one of the messages that are due. Returns whether there was one.
    pub(crate) fn deliver(&self) -> bool {
        let now = self.clock.monotonic();
        let envelope = {
            let mut under_way = self.under_way.lock().unwrap();
            let may = under_way.iter().enumerate().filter(|(_, letter)| letter.not_before <= now);
            let may: Vec<usize> = may.map(|(at, _)| at).collect();
            if may.is_empty() {
                return false;
            }
            under_way.remove(*self.dice.pick(&may))
        };
        (envelope.open)();
        true
    }

    /// Time until the next message is due, or none if none is in flight.
    pub(crate) fn next(&self) -> Option<Duration> {
        let under_way = self.under_way.lock().unwrap();
        let next = under_way.iter().map(|letter| letter.not_before).min()?;
        Some(next.saturating_sub(self.clock.monotonic()))
    }

    /// Loses some of the messages that a dead process had sent.
    pub(crate) fn forget(&self, process: u64) {
        let mut under_way = self.under_way.lock().unwrap();
        under_way.retain(|letter| letter.from != process || self.dice.below(2) == 0);
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(*self.dice.pick(&[0, 0, 0, 0, 1, 5, 30]))
    }
}

/// The store as one process sees it.
pub(crate) struct Remote {
    net: Arc<Net>,
    seat: Arc<Seat>,
}

impl Remote {
    pub(crate) fn new(net: &Arc<Net>, seat: &Arc<Seat>) -> Self {
        Self { net: Arc::clone(net), seat: Arc::clone(seat) }
    }

    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        fail: impl FnOnce(ErrorKind) -> T + Send + 'static,
    ) -> T {
        let (net, from) = (&self.net, self.seat.process);
        let (reply, answer) = oneshot::channel();
        let delay = net.delay();
        // The caller may be gone when the reply arrives.
        let send = move |result: T| drop(reply.send(result));
        match net.fate() {
            Fate::Done => {
                let back = Arc::clone(net);
                net.post(from, delay, move || {
                    let result = work();
                    let delay = back.delay();
                    back.post(from, delay, move || send(result));
                });
            }
            Fate::Refused => net.post(from, delay, move || send(fail(ErrorKind::Unavailable))),
            Fate::ReplyLost => {
                let back = Arc::clone(net);
                net.post(from, delay, move || {
                    drop(work());
                    back.post(from, Duration::from_millis(50), move || send(fail(ErrorKind::Indeterminate)));
                });
            }
            Fate::Late => {
                net.post(from, delay, move || send(fail(ErrorKind::Indeterminate)));
                let late = Duration::from_millis(net.dice.below(12_000));
                net.post(from, late, move || drop(work()));
            }
            Fate::Silent => {
                let is_done = net.dice.below(2) == 0;
                net.post(from, delay, move || {
                    if is_done {
                        drop(work());
                    }
                });
                // Keep the reply channel open, so that the caller waits forever.
                let _open = send;
                return std::future::pending().await;
            }
        }
        answer.await.unwrap()
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&MemoryStore) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = self.net.store.clone();
        self.call(move || work(&store), |_| Err(failed(ErrorKind::Unavailable))).await
    }
}

fn failed(kind: ErrorKind) -> Error {
    Error::new(kind, "the simulation lost it on the way")
}

/// Returns the result of a call of the memory store, which is always ready.
pub(crate) fn now<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the memory store was not ready at once"),
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("process", &self.seat.process).finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for Remote {
    fn capabilities(&self) -> Capabilities {
        self.net.store.capabilities().with_notices(self.net.tells)
    }

    async fn setup(&self) -> Result<()> {
        self.read(|store| now(store.setup())).await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let (net, runs) = (Arc::clone(&self.net), batch.len());
        let (process, executor) = (self.seat.process, self.seat.executor());
        let work = move || {
            let asked = batch.clone();
            let results = now(net.store.append(batch));
            for (append, result) in asked.into_iter().zip(&results) {
                net.rules.appended(process, executor, append, result);
            }
            results
        };
        self.call(work, move |kind| (0..runs).map(|_| Err(failed(kind))).collect()).await
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let run = run.clone();
        self.read(move |store| now(store.load(&run, at))).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        let run = run.clone();
        self.read(move |store| now(store.load_since(&run, known))).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let run = run.clone();
        self.read(move |store| now(store.headers(&run, range))).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let run = run.clone();
        self.read(move |store| now(store.head(&run))).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let query = query.clone();
        self.read(move |store| now(store.runs(&query, page))).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let (store, run) = (self.net.store.clone(), run.clone());
        self.call(move || now(store.prune(&run, cut)), |kind| Err(failed(kind))).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        let (net, run) = (Arc::clone(&self.net), run.clone());
        let work = move || {
            // A sharded store writes markers under the ids of runs in other shards.
            let is_run = |head: RunHead| !head.facts.workflow.is_reserved();
            let was_there = now(net.store.head(&run)).is_ok_and(|head| head.is_some_and(is_run));
            let purged = now(net.store.purge(&run, expected));
            if was_there && now(net.store.head(&run)).is_ok_and(|head| head.is_none()) {
                net.rules.purged(&run);
            }
            purged
        };
        self.call(work, |kind| Err(failed(kind))).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        self.seat.is_executor(*executor);
        let (store, executor) = (self.net.store.clone(), *executor);
        self.call(move || now(store.heartbeat(&executor, ttl)), |kind| Err(failed(kind))).await
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let executor = *executor;
        self.read(move |store| now(store.is_alive(&executor))).await
    }

    fn transactions(&self) -> Option<&dyn ferrata_core::store::Transactions> {
        None
    }

    fn part(&self, run: &RunKey) -> u64 {
        self.net.store.part(run)
    }

    fn resealing(&self) -> Option<&dyn Resealing> {
        None
    }

    fn relay(&self) -> Option<&dyn ferrata_core::store::Relay> {
        None
    }

    fn subscribe(&self) -> Option<Notices> {
        if self.net.tells { self.net.store.subscribe() } else { None }
    }
}
