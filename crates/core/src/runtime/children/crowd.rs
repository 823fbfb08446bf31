//! Futures beside each other in one task. Only those that were woken are polled: with as many as go on at once, each would be polled in vain
//! for every wake of another.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Futures beside each other, in the order in which they came.
pub(super) struct Crowd<T> {
    /// Who polls them.
    task: Arc<Mutex<Waker>>,
    all: Vec<One<T>>,
}

struct One<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    woken: Arc<Woken>,
    waker: Waker,
}

struct Woken {
    /// Whether it was woken since it was polled last.
    is: AtomicBool,
    task: Arc<Mutex<Waker>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is.store(true, Ordering::SeqCst);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        task.wake();
    }
}

impl<T> Default for Crowd<T> {
    fn default() -> Self {
        Self { task: Arc::new(Mutex::new(Waker::noop().clone())), all: Vec::new() }
    }
}

impl<T> Crowd<T> {
    /// Adds a future, which the next poll polls.
    pub(super) fn push(&mut self, future: impl Future<Output = T> + Send + 'static) {
        let woken = Arc::new(Woken { is: AtomicBool::new(true), task: Arc::clone(&self.task) });
        let waker = Waker::from(Arc::clone(&woken));
        self.all.push(One { future: Box::pin(future), woken, waker });
    }

    /// Polls those that were woken, in their order, and has `take` take in what is ready. Returns whether anything was.
    pub(super) fn poll(&mut self, task: &Context<'_>, mut take: impl FnMut(T)) -> bool {
        // Before any flag is looked at: who wakes one from here on wakes this task.
        self.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(task.waker());
        let before = self.all.len();
        self.all.retain_mut(|one| {
            if !one.woken.is.swap(false, Ordering::SeqCst) {
                return true;
            }
            match one.future.as_mut().poll(&mut Context::from_waker(&one.waker)) {
                Poll::Pending => true,
                Poll::Ready(output) => {
                    take(output);
                    false
                }
            }
        });
        self.all.len() < before
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::oneshot;

    use super::*;

    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn wakes() -> (Arc<Counted>, Waker) {
        let counted = Arc::new(Counted(AtomicUsize::new(0)));
        (Arc::clone(&counted), Waker::from(counted))
    }

    /// A future that gives others a turn wakes itself while it is polled.
    #[test]
    fn what_is_woken_while_it_is_polled_is_polled_again() {
        let mut crowd = Crowd::default();
        let mut turns = 0;
        crowd.push(std::future::poll_fn(move |cx| {
            turns += 1;
            cx.waker().wake_by_ref();
            if turns == 2 { Poll::Ready(turns) } else { Poll::Pending }
        }));
        let (woken, waker) = wakes();
        let mut came = Vec::new();
        assert!(!crowd.poll(&Context::from_waker(&waker), |turns| came.push(turns)));
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "who polls it is told");
        assert!(crowd.poll(&Context::from_waker(&waker), |turns| came.push(turns)));
        assert_eq!(came, [2]);
    }

    #[test]
    fn only_those_that_were_woken_are_polled_and_they_in_their_order() {
        let polls = Arc::new(AtomicUsize::new(0));
        let mut crowd = Crowd::default();
        let mut senders = Vec::new();
        for at in 0..3 {
            let (sender, mut answer) = oneshot::channel::<()>();
            let polls = Arc::clone(&polls);
            senders.push(Some(sender));
            crowd.push(std::future::poll_fn(move |cx| {
                polls.fetch_add(1, Ordering::SeqCst);
                Pin::new(&mut answer).poll(cx).map(|_| at)
            }));
        }
        let (_, first) = wakes();
        let mut came = Vec::new();
        assert!(!crowd.poll(&Context::from_waker(&first), |at| came.push(at)));
        assert_eq!(polls.load(Ordering::SeqCst), 3);
        // The task that polls them may be another by then.
        let (woken, second) = wakes();
        assert!(!crowd.poll(&Context::from_waker(&second), |at| came.push(at)));
        assert_eq!(polls.load(Ordering::SeqCst), 3, "none was woken");
        for at in [2, 0] {
            senders[at].take().map(|sender| sender.send(()));
        }
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        assert!(crowd.poll(&Context::from_waker(&second), |at| came.push(at)));
        assert_eq!((polls.load(Ordering::SeqCst), came), (5, vec![0, 2]));
    }
}
