//! Starts the work of a node as a future of one type, for every kind of node.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Node, NodeContext, NodeError, NodeResult};
use crate::state::{Draft, IntoUpdate, State};

/// The work of one attempt.
pub(crate) type Work<S> = Pin<Box<dyn Future<Output = NodeResult<S>> + Send>>;

/// Starts the work of a node.
pub(crate) trait StartWork<S: State>: Send + Sync + 'static {
    /// Returns the work. The user's code first runs when the work is polled.
    fn begin(self: Arc<Self>, cx: NodeContext, state: Draft<S>) -> Work<S>;
}

/// A node as a type.
pub(crate) struct TypedNode<N>(pub(crate) N);

impl<S: State, N: Node<S>> StartWork<S> for TypedNode<N> {
    fn begin(self: Arc<Self>, cx: NodeContext, state: Draft<S>) -> Work<S> {
        Box::pin(async move { self.0.run(cx, state).await })
    }
}

/// A function as a node. Its future is polled directly, without the box that [`Node`] needs to be an object.
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
