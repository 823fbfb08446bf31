//! A call that others overtake in its middle, as far as a call has one.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ferrata_store::{SystemClock, within};
use tokio::sync::oneshot;

/// How long the others have before the call goes on: it may hold what they wait for.
const HOLD: Duration = Duration::from_millis(100);

/// Makes a call that stands still after so many polls until the others are done, and returns what it answered, what they did, and whether
/// it stood still: a call that is done with fewer polls was not overtaken.
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
    // Each in its own task, so that a poll of the call is one that the call asked for.
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
        // Fails when the call stands still.
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
