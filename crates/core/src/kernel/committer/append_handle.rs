//! A handle to a submitted append, by which the waiter receives the store's answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::id::HeadRef;
use crate::kernel::tasks::{spawn, spawn_if_any_can};

type Append = Pin<Box<dyn Future<Output = Result<HeadRef>> + Send>>;

/// A submitted append. It completes even if this handle is dropped.
pub(crate) struct AppendHandle(AppendPath);

enum AppendPath {
    /// The waiter itself executes the append, because no other append is pending. So no other task must wake up for it, and no other task must wake
    /// the waiter.
    Here(Append),
    /// Another task executes the append.
    There(oneshot::Receiver<Result<HeadRef>>),
    /// The store has answered the append.
    Over,
}

impl AppendHandle {
    pub(super) fn inline(append: impl Future<Output = Result<HeadRef>> + Send + 'static) -> Self {
        Self(AppendPath::Here(Box::pin(append)))
    }

    pub(super) fn submitted(answer: oneshot::Receiver<Result<HeadRef>>) -> Self {
        Self(AppendPath::There(answer))
    }

    /// Takes the answer if it has arrived. The call does not execute the append.
    pub(crate) fn try_answer(&mut self) -> Option<Result<HeadRef>> {
        let AppendPath::There(answer) = &mut self.0 else { return None };
        let answer = match answer.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return None,
            Err(oneshot::error::TryRecvError::Closed) => Err(lost_task_error()),
            Ok(answer) => answer,
        };
        self.0 = AppendPath::Over;
        Some(answer)
    }

    /// Executes the append without waiting, and takes the answer if it arrives at once. If it does not, a later call of [`answer`](Self::answer) is
    /// woken.
    pub(crate) fn try_here(&mut self) -> Option<Result<HeadRef>> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// Waits for the answer. It must not be called again after it has returned.
    ///
    /// Cancel safe: if the future is dropped, the append still completes, and the next call returns the answer.
    pub(crate) async fn answer(&mut self) -> Result<HeadRef> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<HeadRef>> {
        let answer = match &mut self.0 {
            AppendPath::Here(append) => append.as_mut().poll(cx),
            AppendPath::There(answer) => {
                Pin::new(answer).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(lost_task_error())))
            }
            AppendPath::Over => Poll::Pending,
        };
        if answer.is_ready() {
            self.0 = AppendPath::Over;
        }
        answer
    }

    /// Moves the append to a task of its own. The waiter calls this before it does other work.
    pub(crate) fn detach(&mut self) {
        self.0 = match std::mem::replace(&mut self.0, AppendPath::Over) {
            AppendPath::Here(append) => {
                let (reply, answer) = oneshot::channel();
                // The receiver may be gone.
                spawn(async move { drop(reply.send(append.await)) });
                AppendPath::There(answer)
            }
            way => way,
        };
    }
}

impl Drop for AppendHandle {
    /// Lets the append complete in a task. If it were dropped after it was sent, its outcome would be unknown and it would block its lane.
    fn drop(&mut self) {
        if let AppendPath::Here(append) = std::mem::replace(&mut self.0, AppendPath::Over) {
            spawn_if_any_can(append);
        }
    }
}

/// Returns the error for an append task that ended without an answer, as when tokio's runtime ends.
pub(super) fn lost_task_error() -> Error {
    Error::new(ErrorKind::Indeterminate, "the append was dropped before its reply; resume the run")
}
