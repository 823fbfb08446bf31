//! Hearing at once of the end of a run that goes on in the same process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::id::RunKey;

/// The runs whose end somebody in this process waits for.
#[derive(Debug, Default)]
pub(crate) struct EndWaiters(Mutex<HashMap<RunKey, Arc<Notify>>>);

/// A wait for the end of a run. It hears of what happened since it was made.
pub(crate) struct EndWaiter<'a> {
    all: &'a EndWaiters,
    run: RunKey,
    notify: Arc<Notify>,
}

impl EndWaiters {
    /// Begins to wait for the end of a run.
    pub(crate) fn wait_for(&self, run: &RunKey) -> EndWaiter<'_> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let notify = Arc::clone(all.entry(run.clone()).or_default());
        EndWaiter { all: self, run: run.clone(), notify }
    }

    /// Says that a run has ended. Returns whether somebody waits for that.
    pub(crate) fn notify(&self, run: &RunKey) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One of those that wait: another parent has no business with the run.
        all.get(run).inspect(|notify| notify.notify_one()).is_some()
    }
}

impl EndWaiter<'_> {
    /// Waits until the run may have ended.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }
}

impl Drop for EndWaiter<'_> {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        // This one's, and the list's own.
        if all.get(&self.run).is_some_and(|notify| Arc::strong_count(notify) <= 2) {
            all.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_end_between_two_looks_is_heard() {
        let (waiters, run) = (EndWaiters::default(), RunKey::try_from("c").unwrap());
        assert!(!waiters.notify(&run), "nobody waits");
        let waiter = waiters.wait_for(&run);
        assert!(waiters.notify(&run));
        waiter.notified().await;
        drop(waiter);
        assert!(!waiters.notify(&run), "nobody waits any more");
        assert!(waiters.0.lock().unwrap().is_empty());
    }
}
