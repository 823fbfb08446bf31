//! How the work of a node begins: as one future, however the node was given.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Node, NodeContext, NodeError, NodeResult};
use crate::state::{Draft, IntoUpdate, State};

/// The work of one attempt.
pub(crate) type Work<S> = Pin<Box<dyn Future<Output = NodeResult<S>> + Send>>;

/// What can begin to work.
pub(crate) trait StartWork<S: State>: Send + Sync + 'static {
    /// Returns the work; none of the user's code runs before it is polled.
    fn begin(self: Arc<Self>, cx: NodeContext, state: Draft<S>) -> Work<S>;
}

/// A node as a type.
pub(crate) struct Typed<N>(pub(crate) N);

impl<S: State, N: Node<S>> StartWork<S> for Typed<N> {
    fn begin(self: Arc<Self>, cx: NodeContext, state: Draft<S>) -> Work<S> {
        Box::pin(async move { self.0.run(cx, state).await })
    }
}

/// A function as a node. Its future is polled as it is, which saves the box that [`Node`] needs to be an object.
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
            // What a node returns need not be `Send`, so it is turned into an update before anything else is awaited.
            let future = (self.0)(cx, state);
            future.await.map(IntoUpdate::into_update)
        })
    }
}
