//! A queue from many senders to one receiver that uses memory only for its items. Each run has two such queues, and they are mostly empty.
//!
//! The queue exists for the benchmark rows `memory/in-progress` and `memory/peak`. A tokio channel allocates room for 32 items, which is 4 kB for
//! each of the two queues of a run.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Creates a queue without a limit on the number of items.
pub(crate) fn queue<T>() -> (Sender<T>, Receiver<T>) {
    let lane = Lane { items: VecDeque::new(), waker: None, closed: false };
    let lane = Arc::new(Mutex::new(lane));
    (Sender(Arc::clone(&lane)), Receiver(lane))
}

struct Lane<T> {
    items: VecDeque<T>,
    /// Wakes the receiver that waits for an item.
    waker: Option<Waker>,
    /// Whether the receiver was dropped.
    closed: bool,
}

fn lock<T>(lane: &Mutex<Lane<T>>) -> MutexGuard<'_, Lane<T>> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a send to a queue whose receiver was dropped. The items that were not received are dropped too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueClosed;

/// The sending end of the queue. A queue may have many senders.
pub(crate) struct Sender<T>(Arc<Mutex<Lane<T>>>);

/// The receiving end of the queue. If it is dropped, the items in the queue are dropped too.
pub(crate) struct Receiver<T>(Arc<Mutex<Lane<T>>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Sender<T> {
    /// Returns whether both senders send to the same receiver.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Appends an item.
    ///
    /// # Errors
    ///
    /// Returns [`QueueClosed`] if the receiver was dropped.
    pub(crate) fn send(&self, item: T) -> Result<(), QueueClosed> {
        self.send_unless(item, |_| false)
    }

    /// Appends an item, like [`send`](Self::send), but appends nothing if `is_said` returns true for the last item of the queue. `is_said` may change
    /// that last item.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`send`](Self::send).
    pub(crate) fn send_unless(
        &self,
        item: T,
        is_said: impl FnOnce(&mut T) -> bool,
    ) -> Result<(), QueueClosed> {
        let mut lane = lock(&self.0);
        if lane.items.back_mut().is_some_and(is_said) {
            return Ok(());
        }
        if lane.closed {
            drop(lane);
            // Dropping the item may call back into this queue.
            drop(item);
            return Err(QueueClosed);
        }
        if lane.items.capacity() == 0 {
            // An active run gets single items: room for four would stay allocated.
            lane.items.reserve_exact(1);
        }
        lane.items.push_back(item);
        let waker = lane.waker.take();
        drop(lane);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Returns whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).items.is_empty()
    }

    /// Takes the next item without waiting.
    pub(crate) fn try_recv(&mut self) -> Option<T> {
        lock(&self.0).items.pop_front()
    }

    /// Waits for the next item and takes it.
    ///
    /// Cancel safe: an item that was not returned stays in the queue.
    pub(crate) async fn recv(&mut self) -> T {
        poll_fn(|cx| {
            let mut lane = lock(&self.0);
            if let Some(item) = lane.items.pop_front() {
                return Poll::Ready(item);
            }
            match &mut lane.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut lane = lock(&self.0);
        lane.closed = true;
        let left = std::mem::take(&mut lane.items);
        let waker = lane.waker.take();
        drop(lane);
        drop((left, waker));
    }
}

impl<T> fmt::Debug for Sender<T> {
    /// Formats the queue without its items.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
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
        // Not `timeout`, whose final check after the timeout would find items without a wakeup.
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("the receiver was not woken"),
            output = future => output,
        }
    }

    #[tokio::test]
    async fn queue_returns_items_in_send_order() {
        let (sender, mut receiver) = queue();
        assert!(receiver.is_empty());
        (0..100).for_each(|item| sender.send(item).unwrap());
        assert!(!receiver.is_empty());
        for item in 0..100 {
            assert_eq!(receiver.recv().await, item);
        }
        assert_eq!(receiver.try_recv(), None);
    }

    /// Many threads send, and each wait must be woken: an item without a wakeup would stop a run forever.
    #[tokio::test]
    async fn a_receiver_that_waits_is_woken() {
        let (sender, mut receiver) = queue();
        let (senders, heard): (Vec<_>, Vec<_>) = (0..4_usize)
            .map(|from| {
                let sender = sender.clone();
                let (heard, hears) = std::sync::mpsc::channel();
                // Each thread sends after its last item was received, so that the receiver mostly waits.
                let sends = std::thread::spawn(move || {
                    for item in 0..500_usize {
                        sender.send((from, item)).unwrap();
                        hears.recv().unwrap();
                    }
                });
                (sends, heard)
            })
            .unzip();
        let mut next = [0; 4];
        for _ in 0..2_000 {
            let (from, item) = in_time(receiver.recv()).await;
            assert_eq!(item, next[from]);
            next[from] += 1;
            heard[from].send(()).unwrap();
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    }

    /// A cancelled wait takes no item and does not block the wakeup of the next wait.
    #[tokio::test]
    async fn a_wait_that_was_given_up_takes_nothing() {
        let (sender, mut receiver) = queue();
        tokio::select! {
            biased;
            item = receiver.recv() => panic!("nothing was sent, but {item} arrived"),
            () = std::future::ready(()) => {}
        }
        let waits = tokio::spawn(async move { receiver.recv().await });
        tokio::task::yield_now().await;
        sender.send(1).unwrap();
        assert_eq!(in_time(waits).await.unwrap(), 1);
    }

    /// A sender that waits for a reply learns that there is none when the receiver is dropped.
    #[tokio::test]
    async fn dropping_receiver_drops_unreceived_items() {
        let (sender, receiver) = queue();
        let (reply, answer) = tokio::sync::oneshot::channel::<()>();
        sender.send(reply).unwrap();
        drop(receiver);
        assert!(in_time(answer).await.is_err());
        let (reply, answer) = tokio::sync::oneshot::channel::<()>();
        assert_eq!(sender.send(reply), Err(QueueClosed));
        assert!(in_time(answer).await.is_err());
    }

    /// Without this, a notice for each of thousands of records would cause one read of the store each.
    #[test]
    fn queue_skips_repeat_of_last_item() {
        let (sender, mut receiver) = queue();
        let say = |item: u8| sender.send_unless(item, |last| *last == item).unwrap();
        [1, 1, 2, 2, 1].into_iter().for_each(say);
        assert_eq!((receiver.try_recv(), receiver.try_recv()), (Some(1), Some(2)));
        say(1);
        assert_eq!(receiver.try_recv(), Some(1));
        say(1);
        assert_eq!((receiver.try_recv(), receiver.try_recv()), (Some(1), None));
        drop(receiver);
        assert_eq!(sender.send_unless(1, |_| true), Err(QueueClosed));
    }

    #[test]
    fn queue_capacity_matches_its_items() {
        let (sender, mut receiver) = queue::<[u8; 1_000]>();
        assert_eq!(lock(&receiver.0).items.capacity(), 0);
        for _ in 0..10 {
            sender.send([0; 1_000]).unwrap();
            receiver.try_recv().unwrap();
        }
        assert_eq!(lock(&receiver.0).items.capacity(), 1);
    }
}
