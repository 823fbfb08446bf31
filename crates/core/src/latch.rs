//! What is said once, to whoever waits for it: how a run ended, that it is to stop.
//!
//! It is smaller than a channel that may say more: each run has two, and there may be thousands at work.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

/// Makes a latch that is open.
pub(crate) fn latch<T>() -> (Teller<T>, Told<T>) {
    let latch =
        Arc::new(Latch { value: OnceLock::new(), gone: AtomicBool::new(false), notify: Notify::new() });
    (Teller(Arc::clone(&latch)), Told(latch))
}

struct Latch<T> {
    value: OnceLock<T>,
    /// Whether nobody will say anything any more.
    gone: AtomicBool,
    notify: Notify,
}

/// Who says it. When it is dropped, whoever waits learns that nothing will be said.
pub(crate) struct Teller<T>(Arc<Latch<T>>);

/// Who hears it.
pub(crate) struct Told<T>(Arc<Latch<T>>);

impl<T> Clone for Told<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Teller<T> {
    /// Says it. What is said later is dropped.
    pub(crate) fn tell(&self, value: T) {
        if self.0.value.set(value).is_ok() {
            self.0.notify.notify_waiters();
        }
    }

    /// Whether it was said.
    pub(crate) fn has_told(&self) -> bool {
        self.0.value.get().is_some()
    }
}

impl<T> Drop for Teller<T> {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }
}

impl<T> Told<T> {
    /// Returns what was said, if it was.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.value.get()
    }

    /// Waits until it is said; `None` if it never will be.
    ///
    /// Cancel safe: it can be waited for again.
    pub(crate) async fn wait(&self) -> Option<&T> {
        loop {
            // Made before looking: it hears whatever is said from here on.
            let notified = self.0.notify.notified();
            // Before the value, for whoever goes may have said it just before.
            let gone = self.0.gone.load(Ordering::Acquire);
            match self.get() {
                None if !gone => notified.await,
                said => return said,
            }
        }
    }
}

impl<T> fmt::Debug for Told<T> {
    /// Never shows what was said.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "a test that is not woken ends by the machine's time, in tasks of its own"
)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn in_time<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), future).await.expect("whoever waits was not told")
    }

    #[tokio::test]
    async fn what_is_said_first_is_heard_before_and_after() {
        let (teller, told) = latch();
        let waits = told.clone();
        let waits = tokio::spawn(async move { waits.wait().await.copied() });
        tokio::task::yield_now().await;
        assert_eq!((told.get(), teller.has_told()), (None, false));
        teller.tell(1);
        teller.tell(2);
        assert!(teller.has_told());
        drop(teller);
        assert_eq!(in_time(waits).await.unwrap(), Some(1));
        assert_eq!(in_time(told.wait()).await, Some(&1));
    }

    #[tokio::test]
    async fn whoever_waits_learns_that_nothing_will_be_said() {
        let (teller, told) = latch::<u8>();
        let waits = told.clone();
        let waits = tokio::spawn(async move { waits.wait().await.copied() });
        tokio::task::yield_now().await;
        drop(teller);
        assert_eq!(in_time(waits).await.unwrap(), None);
        assert_eq!(in_time(told.wait()).await, None);
    }

    /// Between looking and waiting there must be no moment in which it is said and not heard.
    #[tokio::test]
    async fn nothing_is_missed_between_looking_and_waiting() {
        for round in 0..2_000 {
            let (teller, told) = latch();
            let says = std::thread::spawn(move || teller.tell(round));
            assert_eq!(in_time(told.wait()).await, Some(&round));
            says.join().unwrap();
        }
    }
}
