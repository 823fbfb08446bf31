//! A channel that sends one value once to all receivers. A run uses it for its outcome and for its stop signal.
//!
//! The channel exists for the benchmark row `memory/peak`. Each run has two such channels of 56 bytes each, and thousands of runs may be active. A
//! tokio `watch` channel has 352 bytes. With two `watch` channels for each run, this row of the report would exceed its goal.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

/// Creates a channel for one value.
pub(crate) fn once<T>() -> (OnceSender<T>, OnceReceiver<T>) {
    let shared =
        Arc::new(OnceState { value: OnceLock::new(), closed: AtomicBool::new(false), notify: Notify::new() });
    (OnceSender(Arc::clone(&shared)), OnceReceiver(shared))
}

struct OnceState<T> {
    value: OnceLock<T>,
    /// Whether the sender was dropped.
    closed: AtomicBool,
    notify: Notify,
}

/// The sending end of the channel. If it is dropped without sending, every receiver learns that no value will arrive.
pub(crate) struct OnceSender<T>(Arc<OnceState<T>>);

/// The receiving end of the channel. All its clones receive the same value.
pub(crate) struct OnceReceiver<T>(Arc<OnceState<T>>);

impl<T> Clone for OnceReceiver<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> OnceSender<T> {
    /// Sends the value. If a value was already sent, the new value is dropped.
    pub(crate) fn send(&self, value: T) {
        if self.0.value.set(value).is_ok() {
            self.0.notify.notify_waiters();
        }
    }

    /// Returns whether a value was sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.0.value.get().is_some()
    }
}

impl<T> Drop for OnceSender<T> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }
}

impl<T> OnceReceiver<T> {
    /// Returns the value, if it was sent.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.value.get()
    }

    /// Waits for the value. Returns `None` if the sender was dropped without sending.
    ///
    /// Cancel safe: the call can be repeated.
    pub(crate) async fn recv(&self) -> Option<&T> {
        loop {
            // Registered before the check, so it notices every later value.
            let notified = self.0.notify.notified();
            // Read this flag before the value: the sender may have sent a value just before the sender was dropped.
            let closed = self.0.closed.load(Ordering::Acquire);
            match self.get() {
                None if !closed => notified.await,
                value => return value,
            }
        }
    }
}

impl<T> fmt::Debug for OnceReceiver<T> {
    /// Formats the channel without the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceReceiver").finish_non_exhaustive()
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
        tokio::time::timeout(Duration::from_secs(60), future).await.expect("the receiver was not woken")
    }

    #[tokio::test]
    async fn the_first_value_is_received_before_and_after() {
        let (sender, receiver) = once();
        let waits = receiver.clone();
        let waits = tokio::spawn(async move { waits.recv().await.copied() });
        tokio::task::yield_now().await;
        assert_eq!((receiver.get(), sender.is_sent()), (None, false));
        sender.send(1);
        sender.send(2);
        assert!(sender.is_sent());
        drop(sender);
        assert_eq!(in_time(waits).await.unwrap(), Some(1));
        assert_eq!(in_time(receiver.recv()).await, Some(&1));
    }

    #[tokio::test]
    async fn receiver_learns_that_sender_is_gone() {
        let (sender, receiver) = once::<u8>();
        let waits = receiver.clone();
        let waits = tokio::spawn(async move { waits.recv().await.copied() });
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(in_time(waits).await.unwrap(), None);
        assert_eq!(in_time(receiver.recv()).await, None);
    }

    /// A value that is sent between the check and the wait must be received.
    #[tokio::test]
    async fn nothing_is_missed_between_looking_and_waiting() {
        for round in 0..2_000 {
            let (sender, receiver) = once();
            let sends = std::thread::spawn(move || sender.send(round));
            assert_eq!(in_time(receiver.recv()).await, Some(&round));
            sends.join().unwrap();
        }
    }
}
