//! How many bytes of logs may be read at the same time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// What a log is taken to weigh before any was weighed.
const FIRST_GUESS: u64 = 64 * 1024;

/// Bounds what is in memory of logs that are being read, though nobody knows what a log weighs before it is read: each counts for
/// about as much as the heaviest of the last ones until it is weighed.
pub(crate) struct Scales {
    most: u64,
    pan: Mutex<Pan>,
    freed: Notify,
}

struct Pan {
    bytes: u64,
    logs: usize,
    guess: u64,
}

/// One log on the scales.
pub(crate) struct Weight {
    scales: Arc<Scales>,
    bytes: u64,
}

impl Scales {
    pub(crate) fn new(most: u64) -> Arc<Self> {
        let pan = Pan { bytes: 0, logs: 0, guess: FIRST_GUESS };
        Arc::new(Self { most, pan: Mutex::new(pan), freed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Pan> {
        self.pan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more log may be read. One alone always may, whatever it weighs.
    pub(crate) async fn put(self: &Arc<Self>) -> Weight {
        loop {
            {
                let mut pan = self.lock();
                let bytes = pan.guess;
                if pan.logs == 0 || pan.bytes.saturating_add(bytes) <= self.most {
                    (pan.logs, pan.bytes) = (pan.logs + 1, pan.bytes.saturating_add(bytes));
                    return Weight { scales: Arc::clone(self), bytes };
                }
            }
            self.freed.notified().await;
        }
    }
}

impl Weight {
    /// Says what the log weighs.
    pub(crate) fn is(&mut self, bytes: u64) {
        let mut pan = self.scales.lock();
        pan.bytes = pan.bytes.saturating_sub(self.bytes).saturating_add(bytes);
        self.bytes = bytes;
        // Falls slowly after a heavy one, for they come in groups.
        pan.guess = bytes.max(pan.guess - pan.guess / 8).max(1);
        drop(pan);
        self.scales.freed.notify_one();
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        let mut pan = self.scales.lock();
        (pan.logs, pan.bytes) = (pan.logs.saturating_sub(1), pan.bytes.saturating_sub(self.bytes));
        drop(pan);
        // Passed on by whoever finds that there is room for more than itself: each weight that is taken off rings once.
        self.scales.freed.notify_one();
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
    fn what_is_read_at_once_is_bounded_and_one_alone_is_always_read() {
        let scales = Scales::new(1_000_000);
        let mut heavy = poll(scales.put()).unwrap();
        heavy.is(5_000_000);
        assert!(poll(scales.put()).is_none(), "the pan is full");
        drop(heavy);
        let alone = poll(scales.put()).expect("one alone may weigh anything");
        assert!(poll(scales.put()).is_none(), "the next is taken to be as heavy");
        drop(alone);
        for _ in 0..64 {
            poll(scales.put()).unwrap().is(1_000);
        }
        let light: Vec<_> = std::iter::from_fn(|| poll(scales.put())).take(2_000).collect();
        assert!(light.len() > 100 && light.len() <= 1_000, "{} light ones at once", light.len());
        drop(light);
        let pan = scales.lock();
        assert_eq!((pan.bytes, pan.logs), (0, 0));
    }

    #[tokio::test]
    async fn whoever_waits_goes_on_when_something_is_taken_off() {
        let scales = Scales::new(10);
        let first = scales.put().await;
        let waiting = {
            let scales = Arc::clone(&scales);
            crate::runtime::tasks::spawn(async move { drop(scales.put().await) })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
    }
}
