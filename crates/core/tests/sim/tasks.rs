//! The tasks of one process. The scheduler polls them, and a kill ends all of them at once.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// Each process has its own executor. So tasks of other processes do not poll its tasks, and dropping the executor drops all of them.
pub(crate) struct Tasks {
    runtime: tokio::runtime::Runtime,
    idle: Arc<Idle>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        let idle = Arc::new(Idle::default());
        let notice = Arc::clone(&idle);
        let runtime = tokio::runtime::Builder::new_current_thread()
            // Poll one task at a time, so that a slice can have any length.
            .event_interval(1)
            .on_thread_park(move || notice.notice())
            .build()
            .unwrap();
        Self { runtime, idle }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    /// Polls at most `most` tasks, or fewer if no more are ready.
    pub(crate) fn slice(&self, most: u32) {
        let mut turns = 0;
        self.runtime.block_on(poll_fn(|cx| {
            if turns == most {
                return Poll::Ready(());
            }
            turns += 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
    }

    /// Polls the tasks until none is ready.
    pub(crate) fn settle(&self) {
        self.idle.is_so.store(false, Ordering::Relaxed);
        self.runtime.block_on(poll_fn(|cx| {
            if self.idle.is_so.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            *self.idle.waker.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        }));
    }
}

/// Signals that no task is ready.
#[derive(Default)]
struct Idle {
    is_so: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Idle {
    fn notice(&self) {
        self.is_so.store(true, Ordering::Relaxed);
        if let Some(waker) = self.waker.lock().unwrap().take() {
            waker.wake();
        }
    }
}
