//! Who owns the run of an attempt that must not be repeated.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Whether a process owns the run of an attempt that must not be repeated.
pub(crate) trait Ownership: Send + Sync {
    /// Whether no other process may have claimed the run since the log was asked last.
    fn is_certain(&self) -> bool;

    /// Asks the log until it is certain who owns the run. Returns whether this process does.
    fn confirm(self: Arc<Self>) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}
