//! The one door to tokio's tasks, and what becomes of one that panics.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result, panic_text};
use crate::id::RunKey;

/// Runs a future beside the caller. It ends by itself; nobody has to wait for it.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "this function is the one door to tokio's tasks")]
    tokio::spawn(future)
}

/// Runs a future that moves a run to its end, and makes an error of its panic: whoever waits for the run has to hear of it, and the
/// run has to be let go of.
///
/// A future that panicked is dropped before this comes back, whatever its destructors do.
///
/// # Errors
///
/// [`ErrorKind::Closed`] if it panicked.
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
            "what drives the run panicked: {text}; the run is let go of as of its last record, and goes on where its workflow is \
             served or where it is resumed. Mend what panicked: code of the state, such as its `Serialize`, or report it"
        );
        let error = Error::new(ErrorKind::Closed, message).with_run(run);
        tracing::error!(%run, %error, "what drives a run panicked");
        error
    })
}
