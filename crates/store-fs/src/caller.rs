//! Checks whether the caller of an operation still waits for it.

use std::sync::{Arc, Weak};

use crate::error::FsStoreError;

/// Held by the future that a caller polls; dropped with it.
#[derive(Debug)]
pub(crate) struct CallerGuard(Arc<()>);

/// The caller of an operation, as the thread that does it knows it.
///
/// A blocking thread finishes its work even after the caller drops the future. An operation that could harm later changes of others runs only if its
/// caller still waits.
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
    /// Call it under the lock on the run's file: later changes of others wait for the lock.
    pub(crate) fn check_waiting(&self) -> Result<(), FsStoreError> {
        if self.0.strong_count() > 0 { Ok(()) } else { Err(FsStoreError::GivenUp) }
    }
}
