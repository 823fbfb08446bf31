//! Middleware that runs around the work of a node.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::node::{NodeContext, NodeError, NodeResult, StartWork, Work};
use crate::state::{Draft, State};

/// The work of a node. The middleware of [`GraphBuilder::around`](crate::graph::GraphBuilder::around) receives it and runs it.
#[must_use = "the work starts only when the future of `run` is awaited"]
pub struct InnerNode<S: State>(Arc<dyn StartWork<S>>);

impl<S: State> InnerNode<S> {
    /// Does the work once.
    ///
    /// The work of an `External` node begins only while its process certainly owns the run, even if the middleware waited for a long time. Otherwise
    /// the attempt ends without the work, and the result of the middleware is ignored. If this process still owns the run, it then starts the attempt
    /// again.
    ///
    /// # Errors
    ///
    /// Returns the error of the node, or an error which says that the work did not begin.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the work stops at its current await point, like any node that the runtime drops.
    pub async fn run(self, cx: NodeContext, state: Draft<S>) -> NodeResult<S> {
        // The middleware may have waited for long.
        if !cx.may_begin() {
            return Err(NodeError::from(
                "the work was not started: another process may have claimed the run",
            ));
        }
        self.0.begin(cx, state).await
    }
}

impl<S: State> fmt::Debug for InnerNode<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inner")
    }
}

/// A node with middleware around its work.
pub(crate) struct NodeMiddleware<S: State, F> {
    pub(crate) node: Arc<dyn StartWork<S>>,
    pub(crate) around: F,
}

impl<S, F, Fut> StartWork<S> for NodeMiddleware<S, F>
where
    S: State,
    F: Fn(NodeContext, Draft<S>, InnerNode<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<S>> + Send + 'static,
{
    fn begin(self: Arc<Self>, cx: NodeContext, state: Draft<S>) -> Work<S> {
        // The future runs no code before its first poll.
        Box::pin(async move { (self.around)(cx, state, InnerNode(Arc::clone(&self.node))).await })
    }
}
