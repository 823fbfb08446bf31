//! An append that was handed over, and the way by which its answer comes.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::id::HeadRef;
use crate::runtime::tasks::{spawn, spawn_if_any_can};

type Append = Pin<Box<dyn Future<Output = Result<HeadRef>> + Send>>;

/// An append that was handed over. It is carried out also if this is dropped.
pub(crate) struct AppendHandle(AppendPath);

enum AppendPath {
    /// Whoever waits for the answer carries it out: nothing else is under way, so no other task is woken for it, and none wakes the waiter.
    Here(Append),
    /// A task does.
    There(oneshot::Receiver<Result<HeadRef>>),
    /// It was answered.
    Over,
}

impl AppendHandle {
    pub(super) fn here(append: impl Future<Output = Result<HeadRef>> + Send + 'static) -> Self {
        Self(AppendPath::Here(Box::pin(append)))
    }

    pub(super) fn there(answer: oneshot::Receiver<Result<HeadRef>>) -> Self {
        Self(AppendPath::There(answer))
    }

    /// Takes an answer that has come already. Carries nothing out.
    pub(crate) fn try_answer(&mut self) -> Option<Result<HeadRef>> {
        let AppendPath::There(answer) = &mut self.0 else { return None };
        let answer = match answer.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return None,
            Err(oneshot::error::TryRecvError::Closed) => Err(gone()),
            Ok(answer) => answer,
        };
        self.0 = AppendPath::Over;
        Some(answer)
    }

    /// Carries it out as far as that goes without waiting, and takes an answer that comes so. Whoever waits for it later is woken.
    pub(crate) fn try_here(&mut self) -> Option<Result<HeadRef>> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// Waits for the answer, which comes once.
    ///
    /// Cancel safe: the append is carried out, and an answer that was not returned is returned by the next call.
    pub(crate) async fn answer(&mut self) -> Result<HeadRef> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<HeadRef>> {
        let answer = match &mut self.0 {
            AppendPath::Here(append) => append.as_mut().poll(cx),
            AppendPath::There(answer) => {
                Pin::new(answer).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(gone())))
            }
            AppendPath::Over => Poll::Pending,
        };
        if answer.is_ready() {
            self.0 = AppendPath::Over;
        }
        answer
    }

    /// Has a task carry it out from here on: whoever waited for it is about to do something else.
    pub(crate) fn leave(&mut self) {
        self.0 = match std::mem::replace(&mut self.0, AppendPath::Over) {
            AppendPath::Here(append) => {
                let (reply, answer) = oneshot::channel();
                // Whoever is gone needs no answer.
                spawn(async move { drop(reply.send(append.await)) });
                AppendPath::There(answer)
            }
            way => way,
        };
    }
}

impl Drop for AppendHandle {
    /// What was sent and not carried out would be in doubt, and keep its lane.
    fn drop(&mut self) {
        if let AppendPath::Here(append) = std::mem::replace(&mut self.0, AppendPath::Over) {
            spawn_if_any_can(append);
        }
    }
}

/// Says that the task of an append has ended without an answer, as with tokio's runtime.
pub(super) fn gone() -> Error {
    Error::new(ErrorKind::Indeterminate, "the append was dropped before its answer; resume the run")
}
