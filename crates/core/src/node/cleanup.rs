//! Cleanup of cancelled runs: activations that run once more before the run ends as cancelled.

use std::sync::atomic::{AtomicBool, Ordering};

use super::context::NodeContext;

/// The data of an attempt about the cleanup of its run.
#[derive(Debug, Default)]
pub(crate) struct AttemptCleanup {
    /// Whether the attempt is a cleanup, which began after the cancellation of the run.
    is_cleanup: bool,
    /// Whether the run was cancelled while the attempt was running.
    is_due: AtomicBool,
    /// Whether the node has reported that it needs no cleanup.
    is_needless: AtomicBool,
}

impl AttemptCleanup {
    pub(crate) fn new(is_cleanup: bool) -> Self {
        Self { is_cleanup, ..Self::default() }
    }

    pub(crate) fn is_cleanup(&self) -> bool {
        self.is_cleanup
    }

    pub(crate) fn is_needed(&self) -> bool {
        !self.is_needless.load(Ordering::SeqCst)
    }

    /// Marks the run as cancelled.
    pub(crate) fn set_due(&self) {
        self.is_due.store(true, Ordering::SeqCst);
    }
}

impl NodeContext {
    /// Returns whether this attempt is a cleanup after a cancellation of the run, as
    /// [`clean_up_on_cancel`](crate::graph::GraphBuilder::clean_up_on_cancel) requires.
    pub fn is_cleaning_up(&self) -> bool {
        self.scope.cleanup.is_cleanup()
    }

    /// Sets whether this activation currently needs a cleanup. By default it does. If no activation of an idle run needs a cleanup, the run can be
    /// cancelled without a process that serves its workflow.
    #[doc(hidden)]
    pub fn set_cleanup(&self, is_needed: bool) {
        self.scope.cleanup.is_needless.store(!is_needed, Ordering::SeqCst);
    }

    /// Returns whether the run was cancelled while this attempt was running. If the node requires a cleanup, the cleanup begins after this attempt
    /// has ended, with any result.
    #[doc(hidden)]
    pub fn is_cleanup_due(&self) -> bool {
        self.scope.cleanup.is_due.load(Ordering::SeqCst)
    }
}
