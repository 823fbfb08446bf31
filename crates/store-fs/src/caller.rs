//! Checks whether the caller of an operation still waits for its result.

use std::sync::{Arc, Weak};

use crate::error::FsStoreError;

/// A guard inside the future that the caller polls. It is dropped with the future.
#[derive(Debug)]
pub(crate) struct CallerGuard(Arc<()>);

/// Shows the thread of an operation whether the caller of the operation still waits.
///
/// A blocking thread finishes its work even after the caller drops the future. An operation that could damage later changes of other callers runs
/// only if its caller still waits.
#[derive(Debug)]
pub(crate) struct CallerState(Weak<()>);

impl CallerGuard {
    pub(crate) fn new() -> Self {
        Self(Arc::new(()))
    }

    pub(crate) fn caller(&self) -> CallerState {
        CallerState(Arc::downgrade(&self.0))
    }
}

impl CallerState {
    /// Fails if the caller has stopped waiting.
    ///
    /// Call it with the lock on the run's file held: later changes of other callers wait for that lock.
    pub(crate) fn check_waiting(&self) -> Result<(), FsStoreError> {
        if self.0.strong_count() > 0 { Ok(()) } else { Err(FsStoreError::GivenUp) }
    }
}
