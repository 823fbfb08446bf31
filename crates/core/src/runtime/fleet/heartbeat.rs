//! Whether this process may believe that others count it as alive: what is known of its own heartbeat, on its own clock.
//!
//! Others may act on this process's runs once its heartbeat has expired by the store's clock. So this process counts from the
//! moment at which it *sent* the last heartbeat that succeeded, on the monotonic clock, and stops well before that
//! ([`HeartbeatMonitor::trust`]). The monotonic clock stands still while the machine sleeps, so a wall clock that has moved on as far is a
//! doubt as well: the next heartbeat settles it. No wall clock has runs lost.
//!
//! The heartbeats are sent by a task of the application's own tokio runtime, for the connections of a store are driven by the runtime
//! they were made on, and a thread of our own could not use them. A node that keeps a thread busy can therefore starve them. So the
//! time is looked at again where it matters: before a record is sent, and before an attempt starts that must not be repeated. Who finds
//! it too late there waits until one more heartbeat has succeeded, and asks the log who owns the run; if that heartbeat fails, too, the
//! process has lost its runs.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ExecutorId;
use crate::store::CheckpointStore;
pub(crate) use crate::telemetry::HeartbeatResult;

/// What is known of the heartbeats that were sent.
#[derive(Debug)]
struct HeartbeatState {
    /// When the last one that succeeded was sent, on the monotonic clock.
    sent: Duration,
    /// The same by the wall clock, which goes on while the machine sleeps.
    sent_at: Timestamp,
    /// When the last one was sent that a driver asked for.
    asked: Option<Duration>,
    /// Whether it was in doubt since then that others count this process as alive: a heartbeat settles it, and no second look at the clock.
    is_doubted: bool,
    /// How often they were lost: what was taken before a loss is not to be acted on after it.
    term: u64,
    /// How often one succeeded only when it had been in doubt whether this process counts as alive: who owned a run before asks
    /// the log whether it still does.
    gaps: u64,
    /// Why the last one failed, if there is time for another.
    failed: Option<Error>,
    /// Why they are lost, until one succeeds.
    lost: Option<Error>,
}

/// What a process knows of its own heartbeat.
#[derive(Debug)]
pub(crate) struct HeartbeatMonitor {
    clock: Arc<dyn Clock>,
    ttl: Duration,
    // Held for the time of a few assignments.
    beat: Mutex<HeartbeatState>,
    /// Tells those who wait, in the order in which they began to.
    changed: Notify,
    /// Tells the task that sends heartbeats that one is wanted now.
    wanted: Notify,
    /// Held while a heartbeat is under way; whether it was said that this process has ended.
    sending: tokio::sync::Mutex<bool>,
}

impl HeartbeatMonitor {
    /// Begins with a heartbeat that was sent at `sent` and has succeeded.
    pub(crate) fn new(clock: Arc<dyn Clock>, ttl: Duration, sent: Duration) -> Self {
        let beat = HeartbeatState {
            sent,
            sent_at: clock.now(),
            asked: None,
            is_doubted: false,
            term: 0,
            gaps: 0,
            failed: None,
            lost: None,
        };
        Self {
            clock,
            ttl,
            beat: Mutex::new(beat),
            changed: Notify::new(),
            wanted: Notify::new(),
            sending: Default::default(),
        }
    }

    fn beat(&self) -> MutexGuard<'_, HeartbeatState> {
        // Nothing panics while it is held.
        self.beat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut HeartbeatState)) {
        change(&mut self.beat());
        self.changed.notify_waiters();
    }

    /// How long a heartbeat is relied on: three quarters of its life. The last quarter is for what was sent before to arrive or
    /// to fail, and for two clocks that do not run equally fast.
    fn trust(&self) -> Duration {
        self.ttl / 4 * 3
    }

    /// Tells whether others may count this process as dead by now, as far as its clocks tell.
    fn is_doubtful(&self, beat: &mut HeartbeatState) -> bool {
        beat.is_doubted |= self.clock.monotonic() >= beat.sent.saturating_add(self.trust())
            || self.clock.now().since(beat.sent_at) >= self.trust();
        beat.is_doubted
    }

    /// Waits until a driver cannot go on before the next heartbeat. Where the last one was sent for the same reason, some time passes first:
    /// of a wall clock that is put somewhere else again and again no heartbeat settles anything.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
        let asked = self.beat().asked;
        if let Some(asked) = asked {
            let left = asked.saturating_add(self.ttl / 16).saturating_sub(self.clock.monotonic());
            if !left.is_zero() {
                self.clock.sleep(left).await;
            }
        }
        self.beat().asked = Some(self.clock.monotonic());
    }

    /// How long one heartbeat may take: a store that does not answer must leave time to ask it again.
    fn patience(&self) -> Duration {
        self.ttl / 4
    }

    /// Returns how long to wait before the next heartbeat: a third of its life after the last, sooner if that failed.
    pub(crate) fn pause(&self, last: HeartbeatResult) -> Duration {
        match last {
            HeartbeatResult::Alive => {
                self.beat().sent.saturating_add(self.ttl / 3).saturating_sub(self.clock.monotonic())
            }
            HeartbeatResult::Failed => {
                let deadline = self.beat().sent.saturating_add(self.trust());
                (self.ttl / 16).min(deadline.saturating_sub(self.clock.monotonic()))
            }
            HeartbeatResult::Lost | HeartbeatResult::StillLost => self.ttl / 8,
        }
    }

    /// Sends one heartbeat and notes what it came to.
    pub(crate) async fn try_once(
        &self,
        store: &dyn CheckpointStore,
        executor: &ExecutorId,
    ) -> HeartbeatResult {
        let is_ended = self.sending.lock().await;
        if *is_ended {
            return HeartbeatResult::Alive;
        }
        let (sent, sent_at) = (self.clock.monotonic(), self.clock.now());
        let (deadline, was_lost, failed) = {
            let beat = self.beat();
            (beat.sent.saturating_add(self.trust()), beat.lost.is_some(), beat.failed.clone())
        };
        if let Some(error) = failed.filter(|_| sent >= deadline) {
            return self.lose(executor, error);
        }
        // A heartbeat that comes late only because it was not sent sooner has the time that it takes: it decides.
        let late = was_lost || sent >= deadline;
        let bound = if late { self.patience() } else { self.patience().min(deadline - sent) };
        let result = tokio::select! {
            biased;
            result = store.heartbeat(executor, self.ttl) => result,
            () = self.clock.sleep(bound) => {
                let message = format!("the store did not answer a heartbeat within {bound:?}");
                Err(Error::new(ErrorKind::Indeterminate, message).with_operation("store.heartbeat"))
            }
        };
        match result {
            Ok(()) => {
                self.change(|beat| {
                    beat.gaps += u64::from(late || self.is_doubtful(beat));
                    (beat.sent, beat.sent_at) = (sent, sent_at);
                    (beat.is_doubted, beat.failed, beat.lost) = (false, None, None);
                });
                if was_lost {
                    tracing::info!(%executor, "heartbeats succeed again; runs are taken up again");
                }
                HeartbeatResult::Alive
            }
            Err(error) if was_lost => {
                tracing::debug!(%executor, %error, "heartbeat failed again");
                self.change(|beat| beat.lost = Some(error));
                HeartbeatResult::StillLost
            }
            Err(error) if self.clock.monotonic() < deadline => {
                tracing::warn!(%executor, %error, "heartbeat failed; trying again");
                self.change(|beat| beat.failed = Some(error));
                HeartbeatResult::Failed
            }
            Err(error) => self.lose(executor, error),
        }
    }

    /// Says that this process has ended, once no heartbeat is under way, which could arrive later and have it count as alive.
    ///
    /// # Errors
    ///
    /// As [`CheckpointStore::heartbeat`], if the store refused it twice.
    pub(crate) async fn end(&self, store: &dyn CheckpointStore, executor: &ExecutorId) -> Result<()> {
        let mut is_said = self.sending.lock().await;
        if !*is_said {
            match store.heartbeat(executor, Duration::ZERO).await {
                // A connection that broke while it was idle says so at its next use.
                Err(error) if error.is_retryable() => store.heartbeat(executor, Duration::ZERO).await?,
                told => told?,
            }
            *is_said = true;
        }
        Ok(())
    }

    fn lose(&self, executor: &ExecutorId, error: Error) -> HeartbeatResult {
        tracing::error!(%executor, %error, "heartbeats are lost; this process stops its runs before others take them");
        self.change(|beat| {
            beat.term += 1;
            beat.failed = None;
            beat.lost = Some(error);
        });
        HeartbeatResult::Lost
    }

    /// Returns how often heartbeats were lost, and how often they came late, or why nothing can be taken now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] while heartbeats are lost.
    pub(crate) fn present(&self) -> Result<(u64, u64)> {
        let beat = self.beat();
        match &beat.lost {
            None => Ok((beat.term, beat.gaps)),
            Some(error) => {
                let message =
                    "this process cannot say that it is alive, and takes no runs until it can; try again";
                Err(Error::new(ErrorKind::Unavailable, message).with_source(error.clone()))
            }
        }
    }

    /// Returns how often heartbeats came late, if there is no doubt now; what was taken in another term is lost.
    pub(crate) fn certain(&self, term: u64) -> Option<u64> {
        let mut beat = self.beat();
        let certain = beat.term == term && beat.lost.is_none() && !self.is_doubtful(&mut beat);
        certain.then_some(beat.gaps)
    }

    /// Waits until there is no doubt, and returns how often heartbeats came late.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Fenced`] if what was taken in this term is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub(crate) async fn sure(&self, term: u64) -> Result<u64> {
        // The task that sends them is gone if its tokio runtime is.
        let mut longest = self.clock.sleep(self.ttl);
        loop {
            // Whatever changes from here on is heard of.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(gaps) = self.certain(term) {
                return Ok(gaps);
            }
            let is_lost = {
                let beat = self.beat();
                beat.term != term || beat.lost.is_some()
            };
            if is_lost {
                return Err(self.fenced());
            }
            // Not where the next one is due in a third of its life: the machine has slept, or an operator has set its clock.
            self.wanted.notify_one();
            tokio::select! {
                biased;
                () = changed => {}
                () = &mut longest => return Err(self.fenced()),
            }
        }
    }

    /// Says that what was taken before the heartbeats were lost is to be let go of.
    pub(crate) fn fenced(&self) -> Error {
        let beat = self.beat();
        let message = format!(
            "this process could not say that it is alive for {:?} of the {:?} that a heartbeat lasts, so it stops its runs before \
             others take them; what is recorded stays, and the next claimer goes on from there",
            self.trust(),
            self.ttl
        );
        let error = Error::new(ErrorKind::Fenced, message).with_operation("store.heartbeat");
        match &beat.lost {
            Some(cause) => error.with_source(cause.clone()),
            None => error,
        }
    }
}
