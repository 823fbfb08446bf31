//! The committer: gathers the appends of all runs of a process and sends them to the store as batches.
//!
//! No delay is ever added: where nothing is under way, a submission leaves at once, with whatever else is there. Beside batches
//! that are under way, up to four of them, a further one leaves as soon as it is as large as they are on the average:
//! so batches become as large as the load and no larger, and no crowd waits for a commit of one. A batch that is slow is no
//! measure: no submission waits for it longer than [`STALL`](lane). The driver of a run has at most one submission under way, so the order of
//! its records is kept.
//!
//! A batch of many is sent by a task, a *lane*. What has nothing to be sent with, where nothing is under way and the last batch was
//! no larger, is sent by whoever waits for it ([`AppendHandle`]): a run by itself wakes no task for its records, and is woken by none.
//!
//! Each [part](CheckpointStore::part) of the store has a queue and lanes of its own: a batch is as slow as the slowest shard that it
//! goes to, so one that hangs takes the lanes of its own runs and no others.

mod lane;
mod queue;
mod sending;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use self::lane::CommitLane;
use self::queue::{AppendQueue, PendingAppend};
pub(crate) use self::sending::AppendHandle;
use super::fleet::heartbeat::HeartbeatMonitor;
use super::tasks::spawn;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey};
use crate::store::{At, CheckpointStore, RunAppend};
use crate::telemetry::{CommitterMeter, spans};

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

/// Sends appends to one store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Committer(Arc<Parts>);

struct Parts {
    store: Arc<dyn CheckpointStore>,
    clock: Arc<dyn Clock>,
    heartbeat: Arc<HeartbeatMonitor>,
    budget: RetryBudget,
    /// By part of the store: as many as it has, so none is ever removed.
    queues: Mutex<HashMap<u64, Arc<Mutex<AppendQueue>>>>,
    meter: CommitterMeter,
}

impl Committer {
    pub(crate) fn new(
        store: Arc<dyn CheckpointStore>,
        clock: Arc<dyn Clock>,
        heartbeat: Arc<HeartbeatMonitor>,
        budget: RetryBudget,
    ) -> Self {
        let (queues, meter) = (Mutex::default(), CommitterMeter::new());
        Self(Arc::new(Parts { store, clock, heartbeat, budget, queues, meter }))
    }

    /// Hands over the records of one run. The answer comes when they are durable, refused, or the retries are used up.
    ///
    /// Those of an owner name the term in which it took the run: they are not sent once others may have taken it.
    pub(crate) fn begin(&self, append: RunAppend, term: Option<u64>) -> AppendHandle {
        let lane = self.lane(&append.run);
        self.0.meter.queued();
        if lane.opens_alone() {
            self.0.meter.batched(1);
            return AppendHandle::here(lane.alone(append, term));
        }
        let (submission, answer) = PendingAppend::new(append, term, spans::origin());
        lane.enqueue(submission);
        AppendHandle::there(answer)
    }

    /// Appends the records of one run, as [`begin`](Self::begin), and waits for what came of it.
    ///
    /// # Errors
    ///
    /// As [`CheckpointStore::append`], after all tries; [`ErrorKind::Fenced`] if the term is over.
    pub(crate) async fn append(&self, append: RunAppend, term: Option<u64>) -> Result<HeadRef> {
        self.begin(append, term).answer().await
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
                Err(error) if error.is_retryable() && failed + 1 < self.0.budget.attempts => {
                    let delay = self.0.budget.delay(failed);
                    tracing::debug!(%error, ?delay, "the store could not be read, trying again");
                    failed += 1;
                    self.0.clock.sleep(delay).await;
                }
                result => return result,
            }
        }
    }

    fn lane(&self, run: &RunKey) -> CommitLane {
        let part = self.0.store.part(run);
        let mut queues = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        CommitLane::new(self.clone(), Arc::clone(queues.entry(part).or_default()))
    }

    fn enqueue(&self, submission: PendingAppend) {
        let lane = self.lane(&submission.append.run);
        self.0.meter.queued();
        lane.enqueue(submission);
    }

    /// Replies, or tries again later with the same records: their ids make the repetition safe.
    fn answer(&self, mut submission: PendingAppend, result: Result<HeadRef>) {
        match result {
            Err(error) if error.is_retryable() && submission.failed + 1 < self.0.budget.attempts => {
                let delay = self.0.budget.delay(submission.failed);
                tracing::debug!(run = %submission.append.run, %error, ?delay, "store.append failed, trying again");
                self.0.meter.retried(error.kind());
                submission.failed += 1;
                submission.in_doubt |= error.kind() == ErrorKind::Indeterminate;
                let committer = self.clone();
                spawn(async move {
                    committer.0.clock.sleep(delay).await;
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
        let last = last.header.head();
        if self.is_on_record(&append.run, last).await? { Ok(last) } else { Err(refused) }
    }

    /// Looks whether a record is in the log whose writer has not heard what became of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Indeterminate`]: the store cannot read the log, or another caller has cut it behind the place of the record, and the
    /// store does not keep what was there.
    pub(crate) async fn is_on_record(&self, run: &RunKey, record: HeadRef) -> Result<bool> {
        let in_doubt = |message: &str| Error::new(ErrorKind::Indeterminate, message.to_owned()).with_run(run);
        let unread = |error: Error| {
            in_doubt(
                "the reply of a write was lost, and whether it was done cannot be looked up; resume the run",
            )
            .with_source(error)
        };
        match self.read(|| self.0.store.load(run, At::Record(record.id))).await {
            Ok(Some(_)) => return Ok(true),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(unread(error)),
            _ => {}
        }
        // The first record that is kept only ever moves on: if the place is kept now, it was kept at the look.
        match self.read(|| self.0.store.head(run)).await {
            Ok(Some(head)) if head.first > record.seq => Err(in_doubt(
                "the reply of a write was lost, and the log was cut behind its place since: it may be done or not; look at the \
                 run before you do it again",
            )),
            Ok(_) => Ok(false),
            Err(error) => Err(unread(error)),
        }
    }
}

#[cfg(test)]
mod tests;
