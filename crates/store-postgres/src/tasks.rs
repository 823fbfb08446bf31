//! Starts tokio tasks that run next to the calls and end with the store. All tasks of the store start here.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use ferrata_store::ErrorKind;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::error::PostgresStoreError;

/// Runs `work` to its end, even if the caller is dropped meanwhile.
///
/// Use it for every operation that begins a transaction. If the driver's future is dropped while `BEGIN` is on its way, the connection stays in a
/// transaction that the pool does not know. The store would then acknowledge the next caller's writes on that connection, although they are never
/// committed.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, PostgresStoreError>> + Send + 'static,
) -> Result<T, PostgresStoreError> {
    let Ok(runtime) = Handle::try_current() else {
        return Err(PostgresStoreError::new(
            ErrorKind::Invalid,
            "no tokio runtime is active; call this within one",
        ));
    };
    let given_up = |_| {
        PostgresStoreError::new(ErrorKind::Indeterminate, "the runtime shut down during the call; call again")
    };
    runtime.spawn(work).await.unwrap_or_else(|error| Err(given_up(error)))
}

/// A task with at most one running instance. Dropping this value ends the task.
#[derive(Debug, Default)]
pub(crate) struct ExclusiveTask(Mutex<Option<AbortHandle>>);

impl ExclusiveTask {
    /// Starts the task unless it runs. Returns whether there is a runtime to run it on.
    pub(crate) fn ensure<F>(&self, task: impl FnOnce() -> F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Ok(runtime) = Handle::try_current() else { return false };
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // When a runtime shuts down, its tasks end. A new runtime needs a new task.
        if running.as_ref().is_none_or(AbortHandle::is_finished) {
            *running = Some(runtime.spawn(task()).abort_handle());
        }
        true
    }
}

impl Drop for ExclusiveTask {
    fn drop(&mut self) {
        if let Some(task) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}
