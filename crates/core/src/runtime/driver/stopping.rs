//! Stops an active run when its deadline passes, when it is cancelled, or when its runtime shuts down.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::compact::once_channel::{OnceReceiver, OnceSender, once};
use crate::error::Error;

/// The times at which a run must stop: after them no activation may start, or running activations must have ended.
pub(super) struct StopDeadlines {
    clock: Arc<dyn Clock>,
    /// The signal that asks running nodes to stop.
    stop_signal: OnceSender<()>,
    /// The deadline of the run, by the monotonic clock.
    deadline: Option<Duration>,
    /// The deadline of the run by the wall clock. It is recorded for other processes.
    deadline_at: Option<Timestamp>,
    /// The end of the grace period of a cancellation or a shutdown, by the monotonic clock.
    grace: Option<Duration>,
    /// Whether the driver has already handled the end of the grace period.
    has_ended_grace: bool,
    /// Whether the runtime is shutting down.
    is_ending: bool,
    /// Whether the run is about to fail because of its deadline.
    is_exceeding: bool,
    /// The error that stops the driver, if the store refused a record for which a caller waited.
    stop_error: Option<Error>,
}

impl StopDeadlines {
    /// The deadline counts from the start of the run, across all processes that drove it.
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        cancelled: OnceSender<()>,
        deadline: Option<Duration>,
        created: Timestamp,
    ) -> Self {
        let left = deadline.map(|after| after.saturating_sub(clock.now().since(created)));
        Self {
            stop_signal: cancelled,
            deadline: left.map(|left| clock.monotonic().saturating_add(left)),
            deadline_at: deadline.map(|after| created.plus(after)),
            grace: None,
            has_ended_grace: false,
            is_ending: false,
            is_exceeding: false,
            stop_error: None,
            clock,
        }
    }

    /// Makes the driver stop with this error in its next iteration.
    pub(super) fn set_stop_error(&mut self, why: Error) {
        self.stop_error = Some(why);
    }

    pub(super) fn take_stop_error(&mut self) -> Option<Error> {
        self.stop_error.take()
    }

    /// Asks running nodes to stop.
    pub(super) fn notify_nodes(&self) {
        self.stop_signal.send(());
    }

    pub(super) fn has_notified(&self) -> bool {
        self.stop_signal.is_sent()
    }

    /// Returns a new stop signal for nodes. It is used after the run failed, which stopped the earlier nodes, and was then retried.
    pub(super) fn renew_stop_signal(&mut self) -> OnceReceiver<()> {
        let (sender, cancelled) = once();
        self.stop_signal = sender;
        cancelled
    }

    /// Starts a grace period for running nodes. An earlier grace period is never extended.
    pub(super) fn end_within(&mut self, grace: Duration) {
        if !std::mem::replace(&mut self.is_ending, true) {
            let end = self.clock.monotonic().saturating_add(grace);
            self.grace = Some(self.grace.map_or(end, |before| before.min(end)));
            self.has_ended_grace = false;
            self.notify_nodes();
        }
    }

    /// Starts a grace period for the running nodes of a cancelled run, unless one has already started.
    pub(super) fn cancel_within(&mut self, grace: Duration) {
        if self.grace.is_none() {
            self.notify_nodes();
            self.grace = Some(self.clock.monotonic().saturating_add(grace));
        }
    }

    pub(super) fn has_grace(&self) -> bool {
        self.grace.is_some()
    }

    pub(super) fn is_grace_over(&self) -> bool {
        self.grace.is_some_and(|grace| grace <= self.clock.monotonic())
    }

    /// Returns whether the grace period is over. If so, its end is not a wakeup time any more.
    pub(super) fn end_grace(&mut self) -> bool {
        self.has_ended_grace = self.is_grace_over();
        self.has_ended_grace
    }

    /// Returns whether the runtime is shutting down.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Returns whether the runtime is shutting down and its grace period is over.
    pub(super) fn is_shutdown_over(&self) -> bool {
        self.is_ending && self.is_grace_over()
    }

    /// Begins to fail the run because of its deadline. After this call no activation starts.
    pub(super) fn exceed(&mut self) {
        if !std::mem::replace(&mut self.is_exceeding, true) {
            self.notify_nodes();
        }
    }

    pub(super) fn is_exceeding(&self) -> bool {
        self.is_exceeding
    }

    pub(super) fn is_deadline_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= self.clock.monotonic())
    }

    /// Returns the deadline by the wall clock.
    pub(super) fn deadline_at(&self) -> Option<Timestamp> {
        self.deadline_at
    }

    /// Makes the deadline pass by the monotonic clock if it has passed by the wall clock. The two can differ if the wall clock has jumped while the
    /// run was waiting.
    pub(super) fn meet_deadline(&mut self) {
        if self.deadline_at.is_some_and(|at| at <= self.clock.now()) {
            self.deadline = Some(self.clock.monotonic());
        }
    }

    /// Returns the next wakeup time by the monotonic clock. This is the end of the grace period, unless the driver has already handled it, or the
    /// deadline of an active run.
    pub(super) fn next_wake(&self, is_stopping: bool) -> Option<Duration> {
        let deadline = self.deadline.filter(|_| !is_stopping);
        deadline.into_iter().chain(self.grace.filter(|_| !self.has_ended_grace)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrata_testing::ManualClock;

    fn stopping(clock: &ManualClock, deadline: Option<u64>) -> StopDeadlines {
        let created = clock.now();
        StopDeadlines::new(Arc::new(clock.clone()), once().0, deadline.map(Duration::from_secs), created)
    }

    #[test]
    fn a_grace_is_never_extended() {
        let clock = ManualClock::new(Timestamp::from_unix_ms(1_000_000));
        let mut stopping = stopping(&clock, None);
        stopping.cancel_within(Duration::from_secs(5));
        assert!(stopping.has_notified() && stopping.has_grace() && !stopping.is_grace_over());
        stopping.cancel_within(Duration::from_secs(60));
        stopping.end_within(Duration::from_secs(60));
        clock.advance(Duration::from_secs(5));
        assert!(stopping.is_grace_over(), "neither a second cancellation nor a slow shutdown extends it");
    }

    #[test]
    fn a_shutdown_shortens_the_grace_once() {
        let clock = ManualClock::new(Timestamp::from_unix_ms(1_000_000));
        let mut stopping = stopping(&clock, None);
        stopping.cancel_within(Duration::from_secs(60));
        stopping.end_within(Duration::from_secs(5));
        stopping.end_within(Duration::ZERO);
        assert!(!stopping.is_grace_over(), "the first shutdown counts");
        clock.advance(Duration::from_secs(5));
        assert!(stopping.is_grace_over());
    }

    #[test]
    fn run_deadline_counts_from_run_start() {
        let clock = ManualClock::new(Timestamp::from_unix_ms(1_000_000));
        let created = clock.now();
        clock.advance(Duration::from_secs(7));
        let (shared, deadline) = (Arc::new(clock.clone()), Some(Duration::from_secs(10)));
        let taken_up = StopDeadlines::new(shared, once().0, deadline, created);
        assert_eq!(taken_up.deadline_at(), Some(created.plus(Duration::from_secs(10))));
        assert!(!taken_up.is_deadline_over());
        assert_eq!(taken_up.next_wake(true), None, "a stopping run has no deadline to check");
        clock.advance(Duration::from_secs(3));
        assert!(taken_up.is_deadline_over());
        assert_eq!(taken_up.next_wake(false), Some(clock.monotonic()));
    }

    #[test]
    fn nodes_after_a_retry_are_told_anew() {
        let clock = ManualClock::new(Timestamp::from_unix_ms(1_000_000));
        let mut stopping = stopping(&clock, None);
        stopping.notify_nodes();
        let told = stopping.renew_stop_signal();
        assert!(!stopping.has_notified() && told.get().is_none());
        stopping.notify_nodes();
        assert!(told.get().is_some());
    }
}
