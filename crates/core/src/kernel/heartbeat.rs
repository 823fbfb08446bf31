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
    /// The time at which the last successful heartbeat was sent, by the monotonic clock.
    sent: Duration,
    /// The same time, measured by the wall clock. The wall clock continues while the machine sleeps.
    sent_at: Timestamp,
    /// The time at which the last heartbeat was sent that a driver had requested.
    requested_at: Option<Duration>,
    /// Whether, since the last successful heartbeat, other processes may have counted this process as dead. Only a successful heartbeat clears this
    /// doubt, and never a second check of the clock.
    is_doubted: bool,
    /// The heartbeat term: the number of times that this process has lost its claims. Claims of an earlier term are void.
    term: u64,
    /// The number of heartbeats that succeeded after a doubt. After such a heartbeat, drivers must check in the log whether they still own their
    /// runs.
    late_count: u64,
    /// The error of the last heartbeat, if there is time for another heartbeat.
    failed: Option<Error>,
    /// The reason why the claims were lost, until a heartbeat succeeds.
    lost: Option<Error>,
}

/// The state of this process's heartbeat.
#[derive(Debug)]
pub(crate) struct HeartbeatMonitor {
    clock: Arc<dyn Clock>,
    ttl: Duration,
    // Locked only for a few assignments.
    beat: Mutex<HeartbeatState>,
    /// Notifies waiters when the state changes.
    changed: Notify,
    /// Asks the task that sends heartbeats to send one at once.
    wanted: Notify,
    /// Locked while a heartbeat is sent. The value is true after the store has recorded the end of this process.
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

    /// Returns how long this process relies on a heartbeat, which is three quarters of the TTL. The last quarter is a reserve for messages that are
    /// on the network, and for clocks with different speeds.
    fn trust_period(&self) -> Duration {
        self.ttl / 4 * 3
    }

    /// Returns whether other processes may count this process as dead, according to the clocks of this process.
    fn is_doubtful(&self, beat: &mut HeartbeatState) -> bool {
        beat.is_doubted |= self.clock.monotonic() >= beat.sent.saturating_add(self.trust_period())
            || self.clock.now().since(beat.sent_at) >= self.trust_period();
        beat.is_doubted
    }

    /// Waits until a driver needs a heartbeat to continue. If the previous heartbeat was sent for the same reason, a delay is added. Without it,
    /// heartbeats would be sent without pause if the wall clock jumps repeatedly.
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

    /// Returns the time limit of one heartbeat. If the store does not answer, there must be time for a retry.
    fn patience(&self) -> Duration {
        self.ttl / 4
    }

    /// Returns the pause before the next heartbeat. It is a third of the TTL, and shorter after a failure.
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

    /// Records in the store that this process has ended. It first waits for a heartbeat that is being sent, because this heartbeat could arrive later
    /// and make the process look alive again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`CheckpointStore::heartbeat`] after two failures.
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

    /// Returns the heartbeat term and the number of late heartbeats, or the reason why this process cannot claim runs now.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] while heartbeats are lost.
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

    /// Returns the number of late heartbeats. Returns `None` if other processes may count this process as dead, or if the claims of this term are
    /// lost.
    pub(crate) fn late_count_if_certain(&self, term: u64) -> Option<u64> {
        let mut beat = self.beat();
        let certain = beat.term == term && beat.lost.is_none() && !self.is_doubtful(&mut beat);
        certain.then_some(beat.late_count)
    }

    /// Waits until other processes certainly count this process as alive, and returns the number of late heartbeats.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Fenced`] if the claims of this term are lost.
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
