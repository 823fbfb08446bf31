//! Several futures at the same time, within a bound, in one task.

use std::future::{Future, poll_fn};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// One of them.
pub(super) type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A task that was begun.
struct Begun<'a, T> {
    place: usize,
    task: Task<'a, T>,
    call: Arc<Call>,
    waker: Waker,
}

/// Whether a task is to be polled, and whom to wake for it.
struct Call {
    is_due: AtomicBool,
    caller: Arc<Mutex<Waker>>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        self.caller.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
}

impl<'a, T> Begun<'a, T> {
    fn new((place, task): (usize, Task<'a, T>), caller: &Arc<Mutex<Waker>>) -> Self {
        let call = Arc::new(Call { is_due: AtomicBool::new(true), caller: Arc::clone(caller) });
        Self { place, task, waker: Waker::from(Arc::clone(&call)), call }
    }

    /// Polls the task if it was woken.
    fn poll(&mut self) -> Poll<T> {
        match self.call.is_due.swap(false, Ordering::Acquire) {
            true => self.task.as_mut().poll(&mut Context::from_waker(&self.waker)),
            false => Poll::Pending,
        }
    }
}

/// Waits for all tasks, of which at most `bound` are begun at a time; their outputs come in their order.
///
/// A wake polls the tasks that were woken and no other.
pub(super) async fn at_once<T>(bound: NonZeroUsize, tasks: Vec<Task<'_, T>>) -> Vec<T> {
    let mut coming = tasks.into_iter().enumerate();
    let mut going: Vec<Begun<'_, T>> = Vec::new();
    let mut outputs = Vec::new();
    let caller = Arc::new(Mutex::new(Waker::noop().clone()));
    poll_fn(|context| {
        caller.lock().unwrap_or_else(PoisonError::into_inner).clone_from(context.waker());
        loop {
            let room = bound.get() - going.len();
            going.extend(coming.by_ref().take(room).map(|task| Begun::new(task, &caller)));
            let begun = going.len();
            going.retain_mut(|begun| match begun.poll() {
                Poll::Ready(output) => {
                    outputs.push((begun.place, output));
                    false
                }
                Poll::Pending => true,
            });
            match going.len() {
                0 if begun == 0 => return Poll::Ready(()),
                left if left == begun => return Poll::Pending,
                _ => {}
            }
        }
    })
    .await;
    outputs.sort_unstable_by_key(|(place, _)| *place);
    outputs.into_iter().map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn never_more_than_the_bound_go_on_and_outputs_keep_their_order() {
        for (count, bound) in [(0, 1), (1, 4), (9, 1), (9, 3), (9, 9), (9, 40), (200, 16)] {
            let (going, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let task = |place: usize| -> Task<'_, usize> {
                let (going, most) = (&going, &most);
                Box::pin(async move {
                    most.fetch_max(going.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    // Some are ready at once, and they end in another order than they began.
                    for _ in 0..place * 7 % 5 {
                        tokio::task::yield_now().await;
                    }
                    going.fetch_sub(1, Ordering::Relaxed);
                    place
                })
            };
            let outputs = at_once(NonZeroUsize::new(bound).unwrap(), (0..count).map(task).collect()).await;
            assert_eq!(outputs, (0..count).collect::<Vec<_>>());
            let most = most.into_inner();
            assert!(most <= bound && most >= bound.min(count) / 2, "{most} of {bound}");
        }
    }
}
