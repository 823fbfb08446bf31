//! Pauses the timeout of an attempt while its node waits for something outside of the run.

use std::fmt;
use std::sync::Arc;

use super::context::{NodeContext, NodeScope};

/// A guard that pauses the timeout of an attempt.
///
/// [`NodeContext::pause_timeout`] returns it.
#[must_use = "the timeout runs again once the guard is dropped"]
pub struct TimeoutPause {
    scope: Arc<NodeScope>,
}

impl NodeContext {
    /// Pauses the timeout of this attempt until the returned guard is dropped.
    ///
    /// Hold the guard while the node waits for something outside of the run, such as a slot of a queue or a lock. Waits of the context itself
    /// (`sleep`, `receive`, `ask`, `child`) pause the timeout without a guard. After the wait, the timeout starts again in full.
    ///
    /// The guard changes nothing else. The run stays in memory, the node keeps its slot in the run's
    /// [concurrency](crate::graph::GraphBuilder::concurrency), and the graph's deadline continues. The guard does not pause the timeout while a
    /// [step](Self::step) of the activation is running.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ferrata_core::node::{NodeContext, NodeError};
    /// # async fn call() {}
    /// # async fn node(cx: NodeContext, slots: std::sync::Arc<tokio::sync::Semaphore>) -> Result<(), NodeError> {
    /// let pause = cx.pause_timeout();
    /// let _slot = slots.acquire().await?;
    /// drop(pause);
    /// call().await; // the timeout is for this
    /// # Ok(())
    /// # }
    /// ```
    pub fn pause_timeout(&self) -> TimeoutPause {
        self.scope.waits.pause_timeout();
        TimeoutPause { scope: Arc::clone(&self.scope) }
    }
}

impl Drop for TimeoutPause {
    fn drop(&mut self) {
        self.scope.waits.resume_timeout();
    }
}

impl fmt::Debug for TimeoutPause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimeoutPause({}@{})", self.scope.node, self.scope.visit)
    }
}
