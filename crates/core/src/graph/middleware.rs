//! Middleware around the work of a node.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::node::{NodeContext, NodeError, NodeResult, StartWork, Work};
use crate::state::{Draft, State};

/// The work of a node, for the function [around](crate::graph::GraphBuilder::around) it to run.
#[must_use = "the work starts only when the future of `run` is awaited"]
pub struct InnerNode<S: State>(Arc<dyn StartWork<S>>);

impl<S: State> InnerNode<S> {
    /// Does the work once.
    ///
    /// An `External` node begins only while its process certainly owns the run, however long the middleware waited. Otherwise the attempt ends
    /// without the work, whatever the middleware returns. If this process still owns the run, it starts the attempt again.
    ///
    /// # Errors
    ///
    /// The error of the node, or an error that the work did not begin.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the work stops where it is, as for any node.
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
