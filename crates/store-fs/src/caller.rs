//! Whether the caller of an operation still waits for it.

use std::sync::{Arc, Weak};

/// Held by the future that a caller polls; dropped with it.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<()>);

/// The caller of an operation, as the thread that does it knows it.
///
/// A thread that was given work does it also after its future was dropped, at any time. What would harm what others made
/// since then is done only for a caller that waits.
#[derive(Debug)]
pub(crate) struct Caller(Weak<()>);

impl Waiting {
    pub(crate) fn new() -> Self {
        Self(Arc::new(()))
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller(Arc::downgrade(&self.0))
    }
}

impl Caller {
    pub(crate) fn waits(&self) -> bool {
        self.0.strong_count() > 0
    }
}
