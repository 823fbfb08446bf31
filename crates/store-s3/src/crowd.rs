//! Several requests at once, with a bound, and their answers in order.

use std::future::Future;
use std::pin::Pin;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::error::Fault;

/// One of several. Boxed, because a stream of futures that borrow is otherwise not known to be `Send`.
pub(crate) type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs tasks, up to `parallel` at once, and returns what they return in their order; the first failure ends all.
pub(crate) async fn all<T: Send>(
    tasks: Vec<Task<'_, Result<T, Fault>>>,
    parallel: usize,
) -> Result<Vec<T>, Fault> {
    stream::iter(tasks).buffered(parallel).try_collect().await
}

/// Runs tasks, up to `parallel` at once, and returns what they return in their order.
pub(crate) async fn each<T: Send>(tasks: Vec<Task<'_, T>>, parallel: usize) -> Vec<T> {
    stream::iter(tasks).buffered(parallel).collect().await
}
