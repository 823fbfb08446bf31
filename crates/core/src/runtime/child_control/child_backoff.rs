//! Retries the reads and starts of children after errors of the store. Such an error fails neither the node that waits for the child nor the run.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::kernel::inner::RuntimeInner;

/// The maximum interval between polls of a child, as a multiple of the poll interval of an active run. Notifications usually arrive earlier.
const RAREST: u32 = 8;

/// The state of the retries of an operation on a child. The delays grow.
pub(crate) struct ChildBackoff<'a> {
    shared: &'a RuntimeInner,
    run: &'a RunKey,
    pause: Duration,
}

impl<'a> ChildBackoff<'a> {
    pub(crate) fn of(shared: &'a RuntimeInner, run: &'a RunKey) -> Self {
        Self { shared, run, pause: shared.limits.poll }
    }

    /// Waits for the current delay before the next retry.
    ///
    /// # Errors
    ///
    /// Returns the error if a retry cannot succeed.
    pub(crate) async fn failed(&mut self, error: Error) -> Result<()> {
        if !(error.is_retryable() || error.kind() == ErrorKind::Indeterminate) {
            return Err(error);
        }
        tracing::debug!(run = %self.run, %error, "cannot reach a child; will retry");
        self.wait().await;
        Ok(())
    }

    pub(crate) async fn wait(&mut self) {
        self.shared.clock.sleep(self.pause).await;
        self.pause = next(self.pause, self.shared);
    }
}

/// Returns the delay that follows the delay `pause`.
pub(crate) fn next(pause: Duration, shared: &RuntimeInner) -> Duration {
    (pause * 2).min(rarest(shared))
}

/// Returns the longest delay.
pub(crate) fn rarest(shared: &RuntimeInner) -> Duration {
    shared.limits.poll.saturating_mul(RAREST)
}
