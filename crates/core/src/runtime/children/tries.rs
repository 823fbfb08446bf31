//! Another try where the store fails: that is no failure of the node that waits for a child, nor of the run.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::runtime::shared::RuntimeInner;

/// How much rarer a child is looked at each time, at most, beside the notification: as many times as a busy run.
const RAREST: u32 = 8;

/// The tries of something that is asked of a child, ever less often.
pub(super) struct ChildBackoff<'a> {
    shared: &'a RuntimeInner,
    run: &'a RunKey,
    pause: Duration,
}

impl<'a> ChildBackoff<'a> {
    pub(super) fn of(shared: &'a RuntimeInner, run: &'a RunKey) -> Self {
        Self { shared, run, pause: shared.limits.poll }
    }

    /// Waits before the next try.
    ///
    /// # Errors
    ///
    /// Why the last one failed, if another cannot mend that.
    pub(super) async fn failed(&mut self, error: Error) -> Result<()> {
        if !(error.is_retryable() || error.kind() == ErrorKind::Indeterminate) {
            return Err(error);
        }
        tracing::debug!(run = %self.run, %error, "cannot reach a child; trying again");
        self.wait().await;
        Ok(())
    }

    pub(super) async fn wait(&mut self) {
        self.shared.clock.sleep(self.pause).await;
        self.pause = next(self.pause, self.shared);
    }
}

/// Returns the pause after this one.
pub(super) fn next(pause: Duration, shared: &RuntimeInner) -> Duration {
    (pause * 2).min(rarest(shared))
}

/// Returns the longest pause.
pub(super) fn rarest(shared: &RuntimeInner) -> Duration {
    shared.limits.poll.saturating_mul(RAREST)
}
