//! Ownership checks for attempts that must not be repeated.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Checks whether a process owns the run of an attempt that must not be repeated.
pub(crate) trait Ownership: Send + Sync {
    /// Returns whether it is certain that no other process has claimed the run since the last read of the log.
    fn is_certain(&self) -> bool;

    /// Reads the log until the owner of the run is certain. Returns whether this process is the owner.
    fn confirm(self: Arc<Self>) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}
