//! The one door to tokio's tasks: what runs beside the calls, and ends with the store.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// A task of which there is one at a time; it ends when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Single(Mutex<Option<AbortHandle>>);

impl Single {
    /// Starts the task unless it is running; tells whether there is a runtime to run it on.
    pub(crate) fn ensure<F>(&self, task: impl FnOnce() -> F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Ok(runtime) = Handle::try_current() else { return false };
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A runtime that was shut down ended its tasks; the next one needs another.
        if running.as_ref().is_none_or(AbortHandle::is_finished) {
            *running = Some(runtime.spawn(task()).abort_handle());
        }
        true
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        if let Some(task) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}
