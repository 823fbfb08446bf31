//! Whether the caller of an operation still waits for it.

use std::sync::{Arc, Weak};

use crate::error::StoreError;

/// Held by the future that a caller polls; dropped with it.
#[derive(Debug)]
pub(crate) struct CallerGuard(Arc<()>);

/// The caller of an operation, as the thread that does it knows it.
///
/// A thread that was given work does it also after its future was dropped, at any time. What would harm what others made
/// since then is done only for a caller that waits.
#[derive(Debug)]
pub(crate) struct Caller(Weak<()>);

impl CallerGuard {
    pub(crate) fn new() -> Self {
        Self(Arc::new(()))
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller(Arc::downgrade(&self.0))
    }
}

impl Caller {
    /// Refuses to go on for a caller that does not wait any more.
    ///
    /// To be asked under the lock on the run's file: what others do after this look waits for the lock.
    pub(crate) fn must_wait(&self) -> Result<(), StoreError> {
        if self.0.strong_count() > 0 { Ok(()) } else { Err(StoreError::GivenUp) }
    }
}
