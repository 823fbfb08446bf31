//! Runs a bounded number of requests concurrently, and returns their answers in order.

use std::future::Future;
use std::pin::Pin;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::error::S3StoreError;

/// One of several concurrent tasks. It is boxed, because otherwise the compiler cannot prove that a stream of borrowing futures is `Send`.
pub(crate) type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs tasks, at most `parallel` at the same time. Returns their results in order. The first failure ends all tasks.
pub(crate) async fn all<T: Send>(
    tasks: Vec<Task<'_, Result<T, S3StoreError>>>,
    parallel: usize,
) -> Result<Vec<T>, S3StoreError> {
    let done = stream::iter(placed(tasks)).buffer_unordered(parallel);
    done.map(|(place, done)| done.map(|done| (place, done))).try_collect().await.map(in_order)
}

/// Runs tasks, at most `parallel` at the same time. Returns their results in order.
pub(crate) async fn each<T: Send>(tasks: Vec<Task<'_, T>>, parallel: usize) -> Vec<T> {
    in_order(stream::iter(placed(tasks)).buffer_unordered(parallel).collect().await)
}

/// Adds its index to the result of each task.
fn placed<'a, T: Send + 'a>(tasks: Vec<Task<'a, T>>) -> Vec<Task<'a, (usize, T)>> {
    let mut placed: Vec<Task<'a, (usize, T)>> = Vec::with_capacity(tasks.len());
    for (place, task) in tasks.into_iter().enumerate() {
        placed.push(Box::pin(async move { (place, task.await) }));
    }
    placed
}

/// Sorts the results at the end. To collect them in order would let one slow answer block the start of later tasks.
fn in_order<T>(mut placed: Vec<(usize, T)>) -> Vec<T> {
    placed.sort_unstable_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    /// The first of three tasks waits for the last. With two tasks at a time, this wait ends only if the third task starts when the second ends.
    #[test]
    fn one_that_is_slow_holds_nobody_up() {
        let (tell, told) = oneshot::channel();
        let tasks: Vec<Task<'_, u8>> = vec![
            Box::pin(async {
                told.await.unwrap();
                1
            }),
            Box::pin(async { 2 }),
            Box::pin(async {
                tell.send(()).unwrap();
                3
            }),
        ];
        assert_eq!(each(tasks, 2).now_or_never(), Some(vec![1, 2, 3]));
    }
}
