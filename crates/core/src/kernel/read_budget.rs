//! Limits how many bytes of logs are loaded at the same time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The size that is assumed for the first log.
const FIRST_GUESS: u64 = 64 * 1024;

/// Limits how many bytes of logs are loaded at the same time. The size of a log is unknown until it is loaded. Until then, the log counts with about
/// the size of the largest log that was loaded recently.
pub(crate) struct ReadBudget {
    most: u64,
    reserved: Mutex<ReservedReads>,
    freed: Notify,
}

struct ReservedReads {
    bytes: u64,
    logs: usize,
    guess: u64,
}

/// The part of the budget that one log uses.
pub(crate) struct ReadReservation {
    budget: Arc<ReadBudget>,
    bytes: u64,
}

impl ReadBudget {
    pub(crate) fn new(most: u64) -> Arc<Self> {
        let reserved = ReservedReads { bytes: 0, logs: 0, guess: FIRST_GUESS };
        Arc::new(Self { most, reserved: Mutex::new(reserved), freed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, ReservedReads> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another log may be loaded. If no other log is being loaded, a log of any size may be loaded.
    pub(crate) async fn reserve(self: &Arc<Self>) -> ReadReservation {
        loop {
            {
                let mut reserved = self.lock();
                let bytes = reserved.guess;
                if reserved.logs == 0 || reserved.bytes.saturating_add(bytes) <= self.most {
                    (reserved.logs, reserved.bytes) =
                        (reserved.logs + 1, reserved.bytes.saturating_add(bytes));
                    return ReadReservation { budget: Arc::clone(self), bytes };
                }
            }
            self.freed.notified().await;
        }
    }
}

impl ReadReservation {
    /// Sets the actual size of the log after it was loaded.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let mut reserved = self.budget.lock();
        reserved.bytes = reserved.bytes.saturating_sub(self.bytes).saturating_add(bytes);
        self.bytes = bytes;
        // Decays slowly after a large log, because large logs come in groups.
        reserved.guess = bytes.max(reserved.guess - reserved.guess / 8).max(1);
        drop(reserved);
        self.budget.freed.notify_one();
    }
}

impl Drop for ReadReservation {
    fn drop(&mut self) {
        let mut reserved = self.budget.lock();
        (reserved.logs, reserved.bytes) =
            (reserved.logs.saturating_sub(1), reserved.bytes.saturating_sub(self.bytes));
        drop(reserved);
        // Each freed reservation wakes one reader; a reader that finds further capacity wakes the next.
        self.budget.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn read_budget_bounds_concurrent_reads_admits_one() {
        let read_budget = ReadBudget::new(1_000_000);
        let mut heavy = poll(read_budget.reserve()).unwrap();
        heavy.resize(5_000_000);
        assert!(poll(read_budget.reserve()).is_none(), "the budget is used up");
        drop(heavy);
        let alone = poll(read_budget.reserve()).expect("a single read may have any size");
        assert!(poll(read_budget.reserve()).is_none(), "the next read is assumed to be as large");
        drop(alone);
        for _ in 0..64 {
            poll(read_budget.reserve()).unwrap().resize(1_000);
        }
        let light: Vec<_> = std::iter::from_fn(|| poll(read_budget.reserve())).take(2_000).collect();
        assert!(light.len() > 100 && light.len() <= 1_000, "{} small reads at once", light.len());
        drop(light);
        let reserved = read_budget.lock();
        assert_eq!((reserved.bytes, reserved.logs), (0, 0));
    }

    #[tokio::test]
    async fn freed_read_budget_wakes_waiter() {
        let read_budget = ReadBudget::new(10);
        let first = read_budget.reserve().await;
        let waiting = {
            let read_budget = Arc::clone(&read_budget);
            crate::kernel::tasks::spawn(async move { drop(read_budget.reserve().await) })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
    }
}
