//! The committer: gathers the appends of all runs of a process and sends them to the store as batches.
//!
//! No delay is ever added: where nothing is under way, a submission leaves at once, with whatever else is there. Beside batches
//! that are under way, up to [`LANES`] of them, a further one leaves as soon as it is as large as they are on the average:
//! so batches become as large as the load and no larger, and no crowd waits for a commit of one. A batch that is slow is no
//! measure: no submission waits for it longer than [`STALL`]. The driver of a run has at most one submission under way, so the order of
//! its records is kept.
//!
//! Each [part](CheckpointStore::part) of the store has a queue and lanes of its own: a batch is as slow as the slowest shard that it
//! goes to, so one that hangs takes the lanes of its own runs and no others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{Instrument as _, Span};

use super::fleet::heartbeat::HeartbeatMonitor;
use super::tasks::spawn;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::id::HeadRef;
use crate::panics::panic_text;
use crate::store::{At, CheckpointStore, RunAppend};
use crate::telemetry::{CommitterMeter, spans};

/// How many batches of one part of the store are under way at once: enough to keep a store busy while replies travel, few enough for batches to grow.
const LANES: usize = 4;

/// How long an append may take for others to gather beside it: about what the slowest healthy disk takes to sync.
const STALL: Duration = Duration::from_millis(20);

/// The most runs in one batch: bounds the store's statement and the harm of a lost reply.
const MAX_RUNS: usize = 256;

/// The most bytes of bodies in one batch, unless one run alone has more.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// How long a failed append is tried again before the run stops with its error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBudget {
    pub(crate) attempts: u32,
    pub(crate) first_delay: Duration,
}

impl RetryBudget {
    /// How long to wait after so many tries that failed before.
    fn delay(self, failed: u32) -> Duration {
        self.first_delay.saturating_mul(2u32.saturating_pow(failed.min(10)))
    }
}

struct Submission {
    append: RunAppend,
    bytes: usize,
    failed: u32,
    /// Whether a try before may have been done after all.
    in_doubt: bool,
    /// The term of heartbeats in which the run was taken; nothing is sent for it once that is over. Absent for signallers.
    term: Option<u64>,
    reply: oneshot::Sender<Result<HeadRef>>,
    /// What it is a part of.
    origin: Span,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Submission>,
    lanes: usize,
    /// Whether a lane is about to take what waits.
    taking: bool,
    /// How many submissions are under way.
    sent: usize,
    /// How large the last batch was.
    last: usize,
}

impl Queue {
    /// Whether what waits is to leave beside what is under way; if so, a lane must come and take it.
    fn opens(&mut self) -> bool {
        let enough = self.waiting.len() * self.lanes >= self.sent;
        let opens = enough && !self.taking && self.lanes < LANES;
        if opens {
            self.lanes += 1;
            self.taking = true;
        }
        opens
    }
}

/// Sends appends to one store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Committer {
    store: Arc<dyn CheckpointStore>,
    clock: Arc<dyn Clock>,
    heartbeat: Arc<HeartbeatMonitor>,
    budget: RetryBudget,
    /// By part of the store: as many as it has, so none is ever removed.
    queues: Arc<Mutex<HashMap<u64, Arc<Mutex<Queue>>>>>,
    meter: CommitterMeter,
}

impl Committer {
    pub(crate) fn new(
        store: Arc<dyn CheckpointStore>,
        clock: Arc<dyn Clock>,
        heartbeat: Arc<HeartbeatMonitor>,
        budget: RetryBudget,
    ) -> Self {
        Self { store, clock, heartbeat, budget, queues: Arc::default(), meter: CommitterMeter::new() }
    }

    /// Hands over the records of one run. The reply comes when they are durable, refused, or the retries are used up.
    ///
    /// Those of an owner name the term in which it took the run: they are not sent once others may have taken it.
    pub(crate) fn submit(&self, append: RunAppend, term: Option<u64>) -> oneshot::Receiver<Result<HeadRef>> {
        let (reply, answer) = oneshot::channel();
        let bytes = append.records.iter().map(|record| record.body.len()).sum();
        let origin = spans::origin();
        self.enqueue(Submission { append, bytes, failed: 0, in_doubt: false, term, reply, origin });
        answer
    }

    /// Appends the records of one run, as [`submit`](Self::submit), and waits for what came of it.
    ///
    /// # Errors
    ///
    /// As [`CheckpointStore::append`], after all tries; [`ErrorKind::Fenced`] if the term is over.
    pub(crate) async fn append(&self, append: RunAppend, term: Option<u64>) -> Result<HeadRef> {
        let dropped =
            |_| Err(Error::new(ErrorKind::Indeterminate, "the append was dropped before its answer"));
        self.submit(append, term).await.unwrap_or_else(dropped)
    }

    /// Reads from the store, again as often as a failed append is made.
    ///
    /// # Errors
    ///
    /// As what reads, after all tries.
    pub(crate) async fn read<T, F: Future<Output = Result<T>>>(&self, read: impl Fn() -> F) -> Result<T> {
        let mut failed = 0;
        loop {
            match read().await {
                Err(error) if error.is_retryable() && failed + 1 < self.budget.attempts => {
                    let delay = self.budget.delay(failed);
                    tracing::debug!(%error, ?delay, "the store could not be read, trying again");
                    failed += 1;
                    self.clock.sleep(delay).await;
                }
                result => return result,
            }
        }
    }

    fn enqueue(&self, submission: Submission) {
        let part = self.store.part(&submission.append.run);
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = Arc::clone(queues.entry(part).or_default());
        drop(queues);
        self.meter.queued();
        Lane { committer: self.clone(), queue }.enqueue(submission);
    }

    /// Replies, or tries again later with the same records: their ids make the repetition safe.
    fn answer(&self, mut submission: Submission, result: Result<HeadRef>) {
        match result {
            Err(error) if error.is_retryable() && submission.failed + 1 < self.budget.attempts => {
                let delay = self.budget.delay(submission.failed);
                tracing::debug!(run = %submission.append.run, %error, ?delay, "store.append failed, trying again");
                self.meter.retried(error.kind());
                submission.failed += 1;
                submission.in_doubt |= error.kind() == ErrorKind::Indeterminate;
                let committer = self.clone();
                spawn(async move {
                    committer.clock.sleep(delay).await;
                    committer.enqueue(submission);
                });
            }
            Err(error) if error.kind() == ErrorKind::Conflict && submission.in_doubt => {
                let committer = self.clone();
                spawn(async move {
                    let result = committer.done_before(&submission.append, error).await;
                    drop(submission.reply.send(result));
                });
            }
            Err(error) if error.kind() == ErrorKind::Unavailable && submission.in_doubt => {
                let message =
                    "the reply of an append was lost, and it could not be made again: it may be done or not";
                let error = Error::new(ErrorKind::Indeterminate, message).with_source(error);
                drop(submission.reply.send(Err(error.with_run(&submission.append.run))));
            }
            // A driver that is gone does not need the answer.
            result => drop(submission.reply.send(result)),
        }
    }

    /// Looks whether records that were refused had been written by a try whose reply was lost, before others wrote after them.
    ///
    /// A signaller would send its signal twice otherwise.
    async fn done_before(&self, append: &RunAppend, refused: Error) -> Result<HeadRef> {
        let Some(last) = append.records.last() else { return Err(refused) };
        match self.store.load(&append.run, At::Record(last.header.id)).await {
            Ok(Some(_)) => Ok(last.header.head()),
            Ok(None) => Err(refused),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(refused),
            Err(error) => {
                let message = "the reply of an append was lost, and whether it was done cannot be looked up; resume the run";
                Err(Error::new(ErrorKind::Indeterminate, message).with_run(&append.run).with_source(error))
            }
        }
    }
}

/// Sends the batches of one part of the store; a clone of it is a further lane.
#[derive(Clone)]
struct Lane {
    committer: Committer,
    queue: Arc<Mutex<Queue>>,
}

impl Lane {
    fn enqueue(self, submission: Submission) {
        let mut queue = self.lock();
        queue.waiting.push_back(submission);
        let opens = queue.opens();
        drop(queue);
        self.begin_lane_if(opens);
    }

    fn begin_lane_if(&self, opens: bool) {
        if opens {
            spawn(self.clone().run());
        }
    }

    /// Sends batches until nothing waits.
    async fn run(self) {
        loop {
            // In a crowd, those who were told by the last batch come along with the next.
            if self.lock().last > 1 {
                tokio::task::yield_now().await;
            }
            let Some(batch) = self.next_batch() else { return };
            let batch = self.hold_back(batch);
            if batch.is_empty() {
                continue;
            }
            let (appends, rest): (Vec<_>, Vec<_>) = batch.into_iter().map(|s| (s.append.clone(), s)).unzip();
            let span = spans::batch(rest.iter().map(|submission| &submission.origin));
            let appended = match span {
                None => self.append(appends).await,
                Some(span) => Box::pin(self.append(appends).instrument(span)).await,
            };
            let results = match appended {
                Ok(results) if results.len() == rest.len() => results,
                Ok(_) => {
                    let message =
                        "the store did not answer for every run of a batch; report this to its author";
                    rest.iter().map(|_| Err(Error::new(ErrorKind::Unsupported, message))).collect()
                }
                Err(error) => rest.iter().map(|s| Err(error.clone().with_run(&s.append.run))).collect(),
            };
            for (submission, result) in rest.into_iter().zip(results) {
                self.committer.answer(submission, result);
            }
        }
    }

    /// Keeps back what is sent as an owner while it is in doubt whether this process counts as alive.
    fn hold_back(&self, mut batch: Vec<Submission>) -> Vec<Submission> {
        let in_doubt = |submission: &mut Submission| {
            submission.term.is_some_and(|term| self.committer.heartbeat.certain(term).is_none())
        };
        let held: Vec<_> = batch.extract_if(.., in_doubt).collect();
        let mut queue = self.lock();
        queue.sent -= held.len();
        // With nothing to send, the lane is about to take the next batch.
        queue.taking |= batch.is_empty();
        drop(queue);
        for submission in held {
            let committer = self.committer.clone();
            spawn(async move {
                match committer.heartbeat.sure(submission.term.unwrap_or_default()).await {
                    Ok(_) => committer.enqueue(submission),
                    Err(error) if submission.in_doubt => {
                        let message = "the reply of an append was lost, and it cannot be made again: it may be done or not";
                        let error = Error::new(ErrorKind::Indeterminate, message).with_source(error);
                        drop(submission.reply.send(Err(error.with_run(&submission.append.run))));
                    }
                    Err(error) => drop(submission.reply.send(Err(error.with_run(&submission.append.run)))),
                }
            });
        }
        batch
    }

    /// Appends a batch; the lane then is about to take the next one.
    ///
    /// A panic of the store would take the lane away for good. It is a lost reply: the same records are tried again.
    async fn append(&self, batch: Vec<RunAppend>) -> Result<Vec<Result<HeadRef>>> {
        let count = batch.len();
        let (mut batch, mut append) = (Some(batch), None);
        let (mut in_time, mut stall) = (true, None);
        let results = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| {
                append
                    .get_or_insert_with(|| self.committer.store.append(batch.take().unwrap_or_default()))
                    .as_mut()
                    .poll(cx)
            }));
            let polled = match polled {
                Ok(polled) => polled.map(Ok),
                Err(panic) => {
                    let message = format!("the store panicked in an append: {}", panic_text(&*panic));
                    Poll::Ready(Err(Error::new(ErrorKind::Indeterminate, message)))
                }
            };
            if polled.is_pending() && in_time {
                // Most stores in memory never come here, and need no timer.
                let stall = stall.get_or_insert_with(|| self.committer.clock.sleep(STALL));
                if stall.as_mut().poll(cx).is_ready() {
                    in_time = false;
                    self.count_out(count);
                }
            }
            polled
        })
        .await;
        let mut queue = self.lock();
        queue.sent -= if in_time { count } else { 0 };
        queue.taking = true;
        results
    }

    /// Lets others leave beside a batch that is slow, as if it were not there.
    fn count_out(&self, slow: usize) {
        let mut queue = self.lock();
        queue.sent -= slow;
        let opens = !queue.waiting.is_empty() && queue.opens();
        drop(queue);
        self.begin_lane_if(opens);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_batch(&self) -> Option<Vec<Submission>> {
        let mut queue = self.lock();
        let mut full = false;
        let mut batch: Vec<Submission> = Vec::new();
        let mut bytes = 0;
        let mut named = HashSet::new();
        let mut later = Vec::new();
        while let Some(next) = queue.waiting.pop_front() {
            if !batch.is_empty() && (batch.len() >= MAX_RUNS || bytes + next.bytes > MAX_BYTES) {
                queue.waiting.push_front(next);
                full = true;
                break;
            }
            // Several who speak to a run that is not driven here submit at once. A batch names a run once, so the others
            // take the next one and learn from it that they were not the first.
            if !named.insert(next.append.run.clone()) {
                later.push(next);
                continue;
            }
            bytes += next.bytes;
            batch.push(next);
        }
        later.into_iter().rev().for_each(|submission| queue.waiting.push_front(submission));
        if queue.waiting.is_empty() {
            // What a crowd took at one moment is not kept for good.
            queue.waiting.shrink_to(MAX_RUNS);
        }
        queue.taking = false;
        queue.sent += batch.len();
        queue.last = batch.len();
        if batch.is_empty() {
            queue.lanes -= 1;
            return None;
        }
        let opens = full && queue.opens();
        drop(queue);
        self.committer.meter.batched(batch.len());
        self.begin_lane_if(opens);
        Some(batch)
    }
}
