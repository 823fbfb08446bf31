//! Keeps a run active while one of its nodes chooses between waits.

use std::fmt;
use std::sync::Arc;

use super::context::{NodeContext, NodeScope};

/// A guard that counts its activation as running, whatever the activation waits for.
#[must_use = "the run may rest again once it is dropped"]
pub struct KeepAwakeGuard {
    scope: Arc<NodeScope>,
}

impl NodeContext {
    /// Keeps the run active while this activation waits for an answer, a message or a timer.
    ///
    /// A node needs the guard if it chooses between such a wait and a signal of its own. Without it, the run could become idle between the signal and
    /// the next poll of the node. Call this method before the signal is sent, and drop the guard when the node has ended.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ferrata_core::node::NodeContext;
    /// # fn tell(cx: &NodeContext, signal: tokio::sync::oneshot::Sender<()>) {
    /// let awake = cx.keep_awake();
    /// let _ = signal.send(());
    /// // Kept until the node has taken the signal in.
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
