//! Pauses a call in the middle while other calls run.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ferrata_store::{SystemClock, within};
use tokio::sync::oneshot;

/// How long the other calls may take before the paused call continues. The paused call may hold a lock that they wait for.
const HOLD: Duration = Duration::from_millis(100);

/// Makes a call and pauses it after a number of polls until the other calls are done. Returns the result of the call, the result of the others, and
/// whether the call was paused: a call that needs fewer polls ends before the pause.
pub(crate) async fn overtaken<T, U>(
    polls: usize,
    call: impl Future<Output = T> + Send + 'static,
    others: impl Future<Output = U> + Send + 'static,
) -> (T, U, bool)
where
    T: Send + 'static,
    U: Send + 'static,
{
    let (stands, is_standing) = oneshot::channel::<()>();
    let (are_done, goes_on) = oneshot::channel::<()>();
    // Run each in its own task, so that the call is polled only when it asked for it.
    let call = async move {
        let (mut call, mut left) = (pin!(call), polls);
        let answer = poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(None);
            }
            left -= 1;
            call.as_mut().poll(context).map(Some)
        });
        let answer = answer.await;
        drop(stands);
        match answer {
            Some(answer) => (answer, false),
            None => {
                // Fails when the other calls are done, which is the signal.
                let _ = goes_on.await;
                (call.await, true)
            }
        }
    };
    let others = async move {
        // Fails when the call is paused, which is the signal.
        let _ = is_standing.await;
        let mut others = pin!(others);
        let done = within(&SystemClock::new(), HOLD, others.as_mut()).await;
        drop(are_done);
        match done {
            Some(done) => done,
            None => others.await,
        }
    };
    let (mut answers, mut done) = tokio::join!(super::together([call]), super::together([others]));
    let (answer, is_overtaken) = answers.remove(0);
    (answer, done.remove(0), is_overtaken)
}
