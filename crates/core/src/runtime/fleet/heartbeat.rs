//! Tracks the heartbeat of this process by its own clock, to decide whether other processes still count this process as alive.
//!
//! Other processes may claim this process's runs once its heartbeat has expired by the store's clock. So this process counts from the time when it
//! *sent* the last successful heartbeat, on the monotonic clock, and stops well before the expiry ([`HeartbeatMonitor::trust_period`]). The monotonic
//! clock stops while the machine sleeps. If the wall clock has advanced by this period, the process therefore also doubts its ownership, until the
//! next heartbeat succeeds or fails. The wall clock alone never makes the process give up its runs.
//!
//! A task of the application's tokio runtime sends the heartbeats, because that runtime drives the store's connections and a separate thread could
//! not use them. A node that blocks a thread can therefore delay the heartbeats. So the code checks the time again before it sends a record, and
//! before it starts an attempt that must not be repeated. If too much time has passed, it waits for one more successful heartbeat, and reads the
//! owner of the run from the log. If this heartbeat fails too, the process gives up its runs.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ExecutorId;
use crate::store::CheckpointStore;
pub(crate) use crate::telemetry::HeartbeatResult;

/// The state of sent heartbeats.
#[derive(Debug)]
struct HeartbeatState {
    /// The send time of the last successful one, on the monotonic clock.
    sent: Duration,
    /// The same by the wall clock, which continues while the machine sleeps.
    sent_at: Timestamp,
    /// The send time of the last one that a driver requested.
    requested_at: Option<Duration>,
    /// Whether there has been doubt since then that other processes count this one as alive. Only a heartbeat settles it, never a second check
    /// of the clock.
    is_doubted: bool,
    /// The number of losses: claims from before a loss are void after it.
    term: u64,
    /// The number of heartbeats that succeeded only after a doubt: earlier owners of runs must check the log for a new owner.
    late_count: u64,
    /// The error of the last one, if there is time for another.
    failed: Option<Error>,
    /// The reason for the loss, until one succeeds.
    lost: Option<Error>,
}

/// The state of this process's heartbeat.
#[derive(Debug)]
pub(crate) struct HeartbeatMonitor {
    clock: Arc<dyn Clock>,
    ttl: Duration,
    // Locked only for a few assignments.
    beat: Mutex<HeartbeatState>,
    /// Notifies waiters, in order.
    changed: Notify,
    /// Requests a heartbeat now from the sending task.
    wanted: Notify,
    /// Locked during a heartbeat. True once the store knows the end of this process.
    sending: tokio::sync::Mutex<bool>,
}

impl HeartbeatMonitor {
    /// Creates a monitor after a successful heartbeat that was sent at `sent`.
    pub(crate) fn new(clock: Arc<dyn Clock>, ttl: Duration, sent: Duration) -> Self {
        let beat = HeartbeatState {
            sent,
            sent_at: clock.now(),
            requested_at: None,
            is_doubted: false,
            term: 0,
            late_count: 0,
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
        // No code panics under this lock.
        self.beat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut HeartbeatState)) {
        change(&mut self.beat());
        self.changed.notify_waiters();
    }

    /// Returns how long this process relies on a heartbeat: three quarters of its TTL. The last quarter allows for messages in flight, and for
    /// clocks that drift apart.
    fn trust_period(&self) -> Duration {
        self.ttl / 4 * 3
    }

    /// Returns whether other processes may count this one as dead, by its clocks.
    fn is_doubtful(&self, beat: &mut HeartbeatState) -> bool {
        beat.is_doubted |= self.clock.monotonic() >= beat.sent.saturating_add(self.trust_period())
            || self.clock.now().since(beat.sent_at) >= self.trust_period();
        beat.is_doubted
    }

    /// Waits until a driver needs a heartbeat to continue. If the last one had the same reason, adds a delay: with a wall clock that jumps again
    /// and again, no heartbeat settles the doubt.
    pub(crate) async fn wait_until_wanted(&self) {
        self.wanted.notified().await;
        let asked = self.beat().requested_at;
        if let Some(asked) = asked {
            let left = asked.saturating_add(self.ttl / 16).saturating_sub(self.clock.monotonic());
            if !left.is_zero() {
                self.clock.sleep(left).await;
            }
        }
        self.beat().requested_at = Some(self.clock.monotonic());
    }

    /// Returns the time limit of one heartbeat: a silent store must leave time for a retry.
    fn patience(&self) -> Duration {
        self.ttl / 4
    }

    /// Returns the pause before the next heartbeat: a third of the TTL after the last, less after a failure.
    pub(crate) fn pause(&self, last: HeartbeatResult) -> Duration {
        match last {
            HeartbeatResult::Alive => {
                self.beat().sent.saturating_add(self.ttl / 3).saturating_sub(self.clock.monotonic())
            }
            HeartbeatResult::Failed => {
                let deadline = self.beat().sent.saturating_add(self.trust_period());
                (self.ttl / 16).min(deadline.saturating_sub(self.clock.monotonic()))
            }
            HeartbeatResult::Lost | HeartbeatResult::StillLost => self.ttl / 8,
        }
    }

    /// Sends one heartbeat and records its result.
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
            (beat.sent.saturating_add(self.trust_period()), beat.lost.is_some(), beat.failed.clone())
        };
        if let Some(error) = failed.filter(|_| sent >= deadline) {
            return self.record_loss(executor, error);
        }
        // A heartbeat that is late only because it was sent late has its usual time limit, and decides.
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
                    beat.late_count += u64::from(late || self.is_doubtful(beat));
                    (beat.sent, beat.sent_at) = (sent, sent_at);
                    (beat.is_doubted, beat.failed, beat.lost) = (false, None, None);
                });
                if was_lost {
                    tracing::info!(%executor, "heartbeats succeed again; this process claims runs again");
                }
                HeartbeatResult::Alive
            }
            Err(error) if was_lost => {
                tracing::debug!(%executor, %error, "heartbeat failed again");
                self.change(|beat| beat.lost = Some(error));
                HeartbeatResult::StillLost
            }
            Err(error) if self.clock.monotonic() < deadline => {
                tracing::warn!(%executor, %error, "heartbeat failed; will retry");
                self.change(|beat| beat.failed = Some(error));
                HeartbeatResult::Failed
            }
            Err(error) => self.record_loss(executor, error),
        }
    }

    /// Tells the store that this process has ended. Waits for a heartbeat in flight, which could arrive later and revive it.
    ///
    /// # Errors
    ///
    /// The errors of [`CheckpointStore::heartbeat`], after two failures.
    pub(crate) async fn end(&self, store: &dyn CheckpointStore, executor: &ExecutorId) -> Result<()> {
        let mut is_said = self.sending.lock().await;
        if !*is_said {
            match store.heartbeat(executor, Duration::ZERO).await {
                // A connection that broke while idle fails on its next use.
                Err(error) if error.is_retryable() => store.heartbeat(executor, Duration::ZERO).await?,
                told => told?,
            }
            *is_said = true;
        }
        Ok(())
    }

    fn record_loss(&self, executor: &ExecutorId, error: Error) -> HeartbeatResult {
        tracing::error!(%executor, %error, "heartbeats are lost; stopping the runs of this process before other processes claim them");
        self.change(|beat| {
            beat.term += 1;
            beat.failed = None;
            beat.lost = Some(error);
        });
        HeartbeatResult::Lost
    }

    /// Returns the numbers of lost and late heartbeats, or the reason why nothing can be claimed now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] while heartbeats are lost.
    pub(crate) fn check_alive(&self) -> Result<(u64, u64)> {
        let beat = self.beat();
        match &beat.lost {
            None => Ok((beat.term, beat.late_count)),
            Some(error) => {
                let message = "the heartbeat of this process fails, so it claims no runs; retry";
                Err(Error::new(ErrorKind::Unavailable, message).with_source(error.clone()))
            }
        }
    }

    /// Returns the number of late heartbeats, or `None` if there is doubt now or the claims of this term are lost.
    pub(crate) fn late_count_if_certain(&self, term: u64) -> Option<u64> {
        let mut beat = self.beat();
        let certain = beat.term == term && beat.lost.is_none() && !self.is_doubtful(&mut beat);
        certain.then_some(beat.late_count)
    }

    /// Waits until there is no doubt, and returns the number of late heartbeats.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Fenced`] if the claims of this term are lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub(crate) async fn wait_until_certain(&self, term: u64) -> Result<u64> {
        // The sending task is gone if its tokio runtime is.
        let mut longest = self.clock.sleep(self.ttl);
        loop {
            // Register first, to miss no change.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(gaps) = self.late_count_if_certain(term) {
                return Ok(gaps);
            }
            let is_lost = {
                let beat = self.beat();
                beat.term != term || beat.lost.is_some()
            };
            if is_lost {
                return Err(self.fenced());
            }
            // Do so only if the next one is not due soon: the machine has slept, or an operator has set its clock.
            self.wanted.notify_one();
            tokio::select! {
                biased;
                () = changed => {}
                () = &mut longest => return Err(self.fenced()),
            }
        }
    }

    /// Returns the error for claims from before the loss of heartbeats.
    pub(crate) fn fenced(&self) -> Error {
        let beat = self.beat();
        let message = format!(
            "heartbeats failed for {:?} of their lifetime of {:?}, so this process stopped its runs before other processes claim them; the \
             next owner continues from the last record",
            self.trust_period(),
            self.ttl
        );
        let error = Error::new(ErrorKind::Fenced, message).with_operation("store.heartbeat");
        match &beat.lost {
            Some(cause) => error.with_source(cause.clone()),
            None => error,
        }
    }
}
