//! Spawns all tokio tasks of the runtime, and handles their panics.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument as _;

use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::panics::{panic_text, request_panicked};

/// Spawns a future as a detached task.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "this function is the one door to tokio's tasks")]
    tokio::spawn(future)
}

/// Spawns a task like [`spawn`]. It is for destructors, which may run after the tokio runtime has ended. In this case it does nothing.
pub(crate) fn spawn_if_any_can<F>(future: F)
where
    F: Future<Output: Send> + Send + 'static,
{
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(future);
    }
}

/// Runs the request of a caller in a task of its own and waits for it. After the first poll, the request completes even if the caller stops waiting.
///
/// Otherwise a record could become durable after its writer was dropped, and this process would own a run that it does not drive.
///
/// # Errors
///
/// Returns the errors of the request. Returns [`ErrorKind::Closed`] if it panicked, or if the tokio runtime ended first.
///
/// # Cancel safety
///
/// Cancel safe: the request completes, and its result is dropped.
pub(crate) async fn finish<T: Send + 'static>(
    request: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    // Boxed: a start takes some thousand bytes, and tokio moves a future several times.
    spawn(Box::pin(request).in_current_span()).await.unwrap_or_else(|ended| Err(unfinished(ended)))
}

fn unfinished(ended: JoinError) -> Error {
    match ended.try_into_panic() {
        Ok(panic) => request_panicked(&*panic),
        Err(_) => {
            let message = "tokio's runtime ended before the request did; what it wrote is in the store";
            Error::new(ErrorKind::Closed, message)
        }
    }
}

/// Runs the future that drives a run, and converts a panic into an error. The callers that wait for the run then get the error, and the run is
/// released.
///
/// A panicked future is dropped before this returns, whatever its destructors do.
///
/// # Errors
///
/// Returns [`ErrorKind::Closed`] if it panicked.
pub(crate) async fn caught<F: Future + ?Sized>(run: &RunKey, mut future: Pin<Box<F>>) -> Result<F::Output> {
    let ended = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panic) => Poll::Ready(Err(panic_text(&*panic).to_owned())),
    })
    .await;
    ended.map_err(|text| {
        let _ = catch_unwind(AssertUnwindSafe(move || drop(future)));
        let message = format!(
            "the driver of the run panicked: {text}; the run is released at its last record, and continues in a process that serves its \
             workflow or resumes it; fix the code of the state that panicked, such as its `Serialize`, or report the panic"
        );
        let error = Error::new(ErrorKind::Closed, message).with_run(run);
        tracing::error!(%run, %error, "the driver of a run panicked");
        error
    })
}
