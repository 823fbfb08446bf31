//! Stops an active run when its deadline passes, when it is cancelled, or when its runtime shuts down.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::compact::once_channel::{OnceReceiver, OnceSender, once};
use crate::error::Error;

/// The times after which no activation may start, and at which running ones must have ended.
pub(super) struct StopDeadlines {
    clock: Arc<dyn Clock>,
    /// Tells running nodes to stop.
    stop_signal: OnceSender<()>,
    /// Deadline of the run, by the monotonic clock.
    deadline: Option<Duration>,
    /// The same deadline by the wall clock, for other processes.
    deadline_at: Option<Timestamp>,
    /// End of the grace of a cancellation or a shutdown, by the monotonic clock.
    grace: Option<Duration>,
    /// Whether the driver has acted on the end of that grace.
    has_ended_grace: bool,
    /// Whether the runtime ends.
    is_ending: bool,
    /// Whether the run is about to fail by its deadline.
    is_exceeding: bool,
    /// Why the run is lost, if the store refused a record that a signaller waited for.
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

    /// Makes the next turn stop the driver with this error.
    pub(super) fn set_stop_error(&mut self, why: Error) {
        self.stop_error = Some(why);
    }

    pub(super) fn take_stop_error(&mut self) -> Option<Error> {
        self.stop_error.take()
    }

    /// Tells running nodes to stop.
    pub(super) fn notify_nodes(&self) {
        self.stop_signal.send(());
    }

    pub(super) fn has_notified(&self) -> bool {
        self.stop_signal.is_sent()
    }

    /// Returns a new stop signal for nodes. Earlier nodes got one when the run failed, and the run was retried since.
    pub(super) fn renew_stop_signal(&mut self) -> OnceReceiver<()> {
        let (sender, cancelled) = once();
        self.stop_signal = sender;
        cancelled
    }

    /// Gives running nodes this grace. Never extends an earlier one.
    pub(super) fn end_within(&mut self, grace: Duration) {
        if !std::mem::replace(&mut self.is_ending, true) {
            let end = self.clock.monotonic().saturating_add(grace);
            self.grace = Some(self.grace.map_or(end, |before| before.min(end)));
            self.has_ended_grace = false;
            self.notify_nodes();
        }
    }

    /// Gives the running nodes of a cancelled run this grace, unless they have one.
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

    /// Returns whether the grace is over. If so, it no longer counts as a wakeup time.
    pub(super) fn end_grace(&mut self) -> bool {
        self.has_ended_grace = self.is_grace_over();
        self.has_ended_grace
    }

    /// Returns whether the runtime ends.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Returns whether the grace of an ending runtime is over.
    pub(super) fn is_shutdown_over(&self) -> bool {
        self.is_ending && self.is_grace_over()
    }

    /// Starts to fail the run by its deadline: no activation starts from now on.
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

    /// Ends the monotonic deadline of a waiting run if its wall-clock deadline has passed: the wall clock may have jumped.
    pub(super) fn meet_deadline(&mut self) {
        if self.deadline_at.is_some_and(|at| at <= self.clock.now()) {
            self.deadline = Some(self.clock.monotonic());
        }
    }

    /// Returns the next wakeup by the monotonic clock: the end of the grace, unless the driver has acted on it, or the deadline of an active run.
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
        assert_eq!(taken_up.next_wake(true), None, "a run that stops has no deadline to look at");
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
