//! The only place that spawns tokio tasks.

use std::future::Future;

use tokio::task::JoinHandle;

/// Spawns a future as a separate task, which runs until the future ends.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    #[expect(clippy::disallowed_methods, reason = "this function is the one door to tokio's tasks")]
    tokio::spawn(future)
}
