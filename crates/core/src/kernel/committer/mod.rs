//! The committer: collects the appends of all runs of a process and sends them to the store in batches.
//!
//! The committer never waits to make a batch larger. If no batch is pending, it sends a new append at once, together with all appends that wait. At
//! most four batches are pending at the same time. While batches are pending, the committer sends another batch as soon as this batch reaches their
//! average size. So batches grow only with the load, and a burst of appends does not wait until a small batch is committed. No append waits longer
//! than [`STALL`](lane) for a slow batch. The driver of a run has at most one pending append, so the order of its records is preserved.
//!
//! A task, called the *lane*, sends a batch of several appends. If no batch is pending and the last batch was not larger, the waiter itself sends a
//! single append ([`AppendHandle`]). So if only one run is active, no task wakes up for its records, and no task must wake the run.
//!
//! Each [part](CheckpointStore::part) (shard) of the store has its own queue and lanes. A batch is as slow as its slowest shard, so a shard that does
//! not answer blocks only the lanes of its own runs.

mod append_handle;
mod lane;
mod queue;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use self::append_handle::AppendHandle;
use self::lane::CommitLane;
use self::queue::{AppendQueue, PendingAppend};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey};
use crate::kernel::heartbeat::HeartbeatMonitor;
use crate::kernel::tasks::spawn;
use crate::store::{At, CheckpointStore, RunAppend};
use crate::telemetry::{CommitterMeter, spans};

/// The retry policy of failed appends. After the last attempt, the run stops with the error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBudget {
    pub(crate) attempts: u32,
    pub(crate) first_delay: Duration,
}

impl RetryBudget {
    /// Returns the delay after `failed` failed attempts.
    fn delay(self, failed: u32) -> Duration {
        self.first_delay.saturating_mul(2u32.saturating_pow(failed.min(10)))
    }
}

/// Sends appends to one store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Committer(Arc<CommitterInner>);

struct CommitterInner {
    store: Arc<dyn CheckpointStore>,
    clock: Arc<dyn Clock>,
    heartbeat: Arc<HeartbeatMonitor>,
    budget: RetryBudget,
    /// The queues, by part of the store. The number of parts is fixed, so no entry is ever removed.
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
        Self(Arc::new(CommitterInner { store, clock, heartbeat, budget, queues, meter }))
    }

    /// Submits the records of one run. The answer arrives when the records are durable or refused, or after the last retry has failed.
    ///
    /// If the writer is the owner of the run, `term` is the heartbeat term of its claim. The records are then not sent any more after this term,
    /// because another process may have claimed the run.
    pub(crate) fn begin(&self, append: RunAppend, term: Option<u64>) -> AppendHandle {
        let lane = self.lane(&append.run);
        self.0.meter.queued();
        if lane.opens_alone() {
            self.0.meter.batched(1);
            return AppendHandle::inline(lane.send_alone(append, term));
        }
        let (submission, answer) = PendingAppend::new(append, term, spans::origin());
        lane.enqueue(submission);
        AppendHandle::submitted(answer)
    }

    /// Submits the records of one run, like [`begin`](Self::begin), and waits for the answer.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`CheckpointStore::append`] after all retries. Returns [`ErrorKind::Fenced`] if the term is over.
    pub(crate) async fn append(&self, append: RunAppend, term: Option<u64>) -> Result<HeadRef> {
        self.begin(append, term).answer().await
    }

    /// Reads from the store, with as many retries as an append.
    ///
    /// # Errors
    ///
    /// Returns the errors of `read` after all retries.
    pub(crate) async fn read<T, F: Future<Output = Result<T>>>(&self, read: impl Fn() -> F) -> Result<T> {
        let mut failed = 0;
        loop {
            match read().await {
                Err(error) if error.is_retryable() && failed + 1 < self.0.budget.attempts => {
                    let delay = self.0.budget.delay(failed);
                    tracing::debug!(%error, ?delay, "cannot read the store; will retry");
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

    /// Replies to the writer, or schedules a retry with the same records. The retry is safe, because the records keep their ids.
    fn answer(&self, mut submission: PendingAppend, result: Result<HeadRef>) {
        match result {
            Err(error) if error.is_retryable() && submission.failed + 1 < self.0.budget.attempts => {
                let delay = self.0.budget.delay(submission.failed);
                tracing::debug!(run = %submission.append.run, %error, ?delay, "append failed; will retry");
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
                let message = "the reply to an append was lost and the append could not be repeated, so its outcome is unknown; read the run before \
                     you write again";
                let error = Error::new(ErrorKind::Indeterminate, message).with_source(error);
                drop(submission.reply.send(Err(error.with_run(&submission.append.run))));
            }
            // The driver may be gone.
            result => drop(submission.reply.send(result)),
        }
    }

    /// Checks whether an earlier attempt, whose reply was lost, has written the refused records.
    ///
    /// Without this check, a caller would send its signal a second time.
    async fn done_before(&self, append: &RunAppend, refused: Error) -> Result<HeadRef> {
        let Some(last) = append.records.last() else { return Err(refused) };
        let last = last.header.head();
        if self.is_on_record(&append.run, last).await? { Ok(last) } else { Err(refused) }
    }

    /// Checks whether the log contains a record of an append with unknown outcome.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`] if the log cannot be loaded, or if the log was pruned beyond the position of the record, so that the
    /// answer is lost.
    pub(crate) async fn is_on_record(&self, run: &RunKey, record: HeadRef) -> Result<bool> {
        let in_doubt = |message: &str| Error::new(ErrorKind::Indeterminate, message.to_owned()).with_run(run);
        let unread = |error: Error| {
            in_doubt(
                "the reply to a write was lost and the store cannot be read, so its outcome is unknown; resume the run",
            )
            .with_source(error)
        };
        match self.read(|| self.0.store.load(run, At::Record(record.id))).await {
            Ok(Some(_)) => return Ok(true),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(unread(error)),
            _ => {}
        }
        // The first stored record only moves forward: if the position is stored now, it was stored at the check.
        match self.read(|| self.0.store.head(run)).await {
            Ok(Some(head)) if head.first > record.seq => Err(in_doubt(
                "the reply to a write was lost and its position was pruned from the log, so its outcome is unknown; read the run before you \
                 write again",
            )),
            Ok(_) => Ok(false),
            Err(error) => Err(unread(error)),
        }
    }
}

#[cfg(test)]
mod tests;
