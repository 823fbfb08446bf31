//! Keeping a run from resting on waits that are about to be given up.

use std::fmt;
use std::sync::Arc;

use super::context::{NodeContext, NodeScope};

/// As long as it lives, the activation that it is of counts as at work, whatever it waits for.
#[must_use = "the run may rest again once it is dropped"]
pub struct KeepAwakeGuard {
    scope: Arc<NodeScope>,
}

impl NodeContext {
    /// Keeps the run from coming to rest while this activation waits for an answer, a message or time: something else has come
    /// that its code is about to go on with, and the activation itself does not know so.
    ///
    /// A node that chooses between a wait and a signal of its own needs it: the run would rest between the signal and the moment
    /// at which the node is polled. Call it before the signal is given, and drop what it returns when the node has ended.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ferrata_core::node::NodeContext;
    /// # fn tell(cx: &NodeContext, signal: tokio::sync::oneshot::Sender<()>) {
    /// let awake = cx.stay_awake();
    /// let _ = signal.send(());
    /// // Kept until the node has taken the signal in.
    /// # drop(awake);
    /// # }
    /// ```
    pub fn stay_awake(&self) -> KeepAwakeGuard {
        self.scope.waits.hold();
        KeepAwakeGuard { scope: Arc::clone(&self.scope) }
    }
}

impl Drop for KeepAwakeGuard {
    fn drop(&mut self) {
        self.scope.waits.release();
        // The driver may have waited for this alone.
        self.scope.notify_driver();
    }
}

impl fmt::Debug for KeepAwakeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Awake({}@{})", self.scope.node, self.scope.visit)
    }
}
