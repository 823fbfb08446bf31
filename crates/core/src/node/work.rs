//! Starts the work of a node as a future of one type, for every kind of node.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Node, NodeContext, NodeError, NodeResult};
use crate::state::{Draft, IntoUpdate, State};

/// The future that does the work of one attempt.
pub(crate) type Work<S> = Pin<Box<dyn Future<Output = NodeResult<S>> + Send>>;

/// Starts the work of a node.
pub(crate) trait StartWork<S: State>: Send + Sync + 'static {
    /// Returns the future of the work. The user's code runs only when the future is polled.
    fn begin(self: Arc<Self>, cx: NodeContext, state: Draft<S>) -> Work<S>;
}

/// A node whose work is a type that implements [`Node`].
pub(crate) struct TypedNode<N>(pub(crate) N);

impl<S: State, N: Node<S>> StartWork<S> for TypedNode<N> {
    fn begin(self: Arc<Self>, cx: NodeContext, state: Draft<S>) -> Work<S> {
        Box::pin(async move { self.0.run(cx, state).await })
    }
}

/// A node whose work is a function. The future of the function is polled directly, without the additional box that the trait [`Node`] needs.
pub(crate) struct FnNode<F>(pub(crate) F);

impl<S, F, Fut, R> StartWork<S> for FnNode<F>
where
    S: State,
    F: Fn(NodeContext, Draft<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, NodeError>> + Send + 'static,
    R: IntoUpdate<S>,
{
    fn begin(self: Arc<Self>, cx: NodeContext, state: Draft<S>) -> Work<S> {
        Box::pin(async move {
            // A node's result need not be `Send`, so convert it to an update before the next await.
            let future = (self.0)(cx, state);
            future.await.map(IntoUpdate::into_update)
        })
    }
}
