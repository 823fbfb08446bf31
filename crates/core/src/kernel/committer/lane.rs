//! A lane, which is a task that sends the batches of one part of the store one after another.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tracing::{Instrument as _, Span};

use crate::error::{Error, ErrorKind, Result};
use crate::id::HeadRef;
use crate::kernel::committer::Committer;
use crate::kernel::committer::append_handle::lost_task_error;
use crate::kernel::committer::queue::{AppendQueue, PendingAppend};
use crate::kernel::tasks::spawn;
use crate::panics::panic_text;
use crate::store::RunAppend;
use crate::telemetry::spans;

/// The time after which other appends no longer wait for a pending append. It is about the time that the slowest healthy disk needs for a sync.
const STALL: Duration = Duration::from_millis(20);

/// Sends the batches of one part of the store. A clone is a further lane.
#[derive(Clone)]
pub(super) struct CommitLane {
    committer: Committer,
    queue: Arc<Mutex<AppendQueue>>,
}

impl CommitLane {
    pub(super) fn new(committer: Committer, queue: Arc<Mutex<AppendQueue>>) -> Self {
        Self { committer, queue }
    }

    pub(super) fn enqueue(self, submission: PendingAppend) {
        let opens = self.lock().push(submission);
        self.begin_lane_if(opens);
    }

    /// Reserves this lane for a single append, which [`send_alone`](Self::send_alone) then sends. Returns false if other appends are pending that
    /// could share a batch with it.
    pub(super) fn opens_alone(&self) -> bool {
        self.lock().opens_alone()
    }

    fn begin_lane_if(&self, opens: bool) {
        if opens {
            spawn(self.clone().run());
        }
    }

    /// Returns whether other processes may count this process as dead. In this case it sends no append as the owner of a run.
    fn may_be_dead(&self, term: Option<u64>) -> bool {
        term.is_some_and(|term| self.committer.0.heartbeat.late_count_if_certain(term).is_none())
    }

    /// Sends one append, and ends the lane. If the append is refused, has an unknown outcome or is delayed, it is handled like an append of a batch.
    pub(super) async fn send_alone(self, append: RunAppend, term: Option<u64>) -> Result<HeadRef> {
        let origin = spans::origin();
        let sent = match self.may_be_dead(term) {
            true => None,
            false => Some(self.send(vec![append.clone()], std::iter::once(&origin)).await),
        };
        let (results, counted) = sent.map_or((None, 1), |(results, counted)| (Some(results), counted));
        let opens = self.lock().answered_alone(counted);
        self.begin_lane_if(opens);
        let result = results.and_then(|results| split_results(results, std::iter::once(&append)).pop());
        if let Some(Ok(head)) = result {
            return Ok(head);
        }
        let (submission, answer) = PendingAppend::new(append, term, origin);
        match result {
            Some(result) => self.committer.answer(submission, result),
            None => self.committer.enqueue(submission),
        }
        drop(self);
        answer.await.unwrap_or_else(|_| Err(lost_task_error()))
    }

    /// Sends batches until no append waits.
    async fn run(self) {
        loop {
            // In a burst, callers that the last batch notified join the next batch.
            if self.lock().has_crowd() {
                tokio::task::yield_now().await;
            }
            let (batch, opens) = self.lock().take();
            if batch.is_empty() {
                return;
            }
            self.committer.0.meter.batched(batch.len());
            self.begin_lane_if(opens);
            let batch = self.hold_back(batch);
            if batch.is_empty() {
                continue;
            }
            let appends = batch.iter().map(|submission| submission.append.clone()).collect();
            let (results, counted) =
                self.send(appends, batch.iter().map(|submission| &submission.origin)).await;
            self.lock().count_answered(counted);
            let results = split_results(results, batch.iter().map(|submission| &submission.append));
            for (submission, result) in batch.into_iter().zip(results) {
                self.committer.answer(submission, result);
            }
        }
    }

    /// Removes from a batch the appends of owners, which must wait while other processes may count this process as dead.
    fn hold_back(&self, mut batch: Vec<PendingAppend>) -> Vec<PendingAppend> {
        let held: Vec<_> = batch.extract_if(.., |submission| self.may_be_dead(submission.term)).collect();
        // With nothing to send, the lane takes the next batch.
        self.lock().hold_back(held.len(), batch.is_empty());
        for submission in held {
            let committer = self.committer.clone();
            spawn(async move {
                match committer.0.heartbeat.wait_until_certain(submission.term.unwrap_or_default()).await {
                    Ok(_) => committer.enqueue(submission),
                    Err(error) if submission.in_doubt => {
                        let message = "the reply to an append was lost and the append cannot be repeated, so its outcome is unknown; read \
                            the run before you write again";
                        let error = Error::new(ErrorKind::Indeterminate, message).with_source(error);
                        drop(submission.reply.send(Err(error.with_run(&submission.append.run))));
                    }
                    Err(error) => drop(submission.reply.send(Err(error.with_run(&submission.append.run)))),
                }
            });
        }
        batch
    }

    /// Sends a batch. Returns how many of its appends still count as pending. If the batch was slow, this is 0, because slow batches are not counted.
    async fn send<'a>(
        &self,
        batch: Vec<RunAppend>,
        origins: impl ExactSizeIterator<Item = &'a Span>,
    ) -> (Result<Vec<Result<HeadRef>>>, usize) {
        match spans::batch(origins) {
            None => self.append(batch).await,
            Some(span) => Box::pin(self.append(batch).instrument(span)).await,
        }
    }

    /// Appends a batch to the store. A panic of the store is treated like a lost reply, so that the same records are retried and the lane continues.
    async fn append(&self, batch: Vec<RunAppend>) -> (Result<Vec<Result<HeadRef>>>, usize) {
        let count = batch.len();
        let (mut batch, mut append) = (Some(batch), None);
        let (mut counted, mut stall) = (count, None);
        let results = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| {
                append
                    .get_or_insert_with(|| self.committer.0.store.append(batch.take().unwrap_or_default()))
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
            if polled.is_pending() && counted > 0 {
                // Most in-memory stores never get here, and need no timer.
                let stall = stall.get_or_insert_with(|| self.committer.0.clock.sleep(STALL));
                if stall.as_mut().poll(cx).is_ready() {
                    counted = 0;
                    let opens = self.lock().count_out(count);
                    self.begin_lane_if(opens);
                }
            }
            polled
        })
        .await;
        (results, counted)
    }

    fn lock(&self) -> MutexGuard<'_, AppendQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the result of each run of a batch.
fn split_results<'a>(
    results: Result<Vec<Result<HeadRef>>>,
    batch: impl ExactSizeIterator<Item = &'a RunAppend>,
) -> Vec<Result<HeadRef>> {
    match results {
        Ok(results) if results.len() == batch.len() => results,
        Ok(_) => {
            let message = "the store did not return a result for every run of a batch; report this to the author of the store";
            batch.map(|_| Err(Error::new(ErrorKind::Unsupported, message))).collect()
        }
        Err(error) => batch.map(|append| Err(error.clone().with_run(&append.run))).collect(),
    }
}
