//! A guard that keeps a run active while one of its nodes waits for several events at once.

use std::fmt;
use std::sync::Arc;

use super::context::{NodeContext, NodeScope};

/// A guard that makes its activation count as running, so that the run does not become idle while the activation waits.
#[must_use = "the run may rest again once it is dropped"]
pub struct KeepAwakeGuard {
    scope: Arc<NodeScope>,
}

impl NodeContext {
    /// Keeps the run active while this activation waits for an answer, a message or a timer.
    ///
    /// A node needs the guard if it waits at once for such an event and for a signal inside the process, such as a channel. Without the guard, the
    /// run could become idle after the signal is sent and before the node is polled. Call this method before the signal is sent, and drop the guard
    /// when the node has ended.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ferrata_core::node::NodeContext;
    /// # fn tell(cx: &NodeContext, signal: tokio::sync::oneshot::Sender<()>) {
    /// let awake = cx.keep_awake();
    /// let _ = signal.send(());
    /// // Keep the guard until the node has handled the signal.
    /// # drop(awake);
    /// # }
    /// ```
    pub fn keep_awake(&self) -> KeepAwakeGuard {
        self.scope.waits.hold_active();
        KeepAwakeGuard { scope: Arc::clone(&self.scope) }
    }
}

impl Drop for KeepAwakeGuard {
    fn drop(&mut self) {
        self.scope.waits.release();
        // The driver may have waited only for this guard.
        self.scope.notify_driver();
    }
}

impl fmt::Debug for KeepAwakeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Awake({}@{})", self.scope.node, self.scope.visit)
    }
}
