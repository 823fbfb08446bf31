//! Nodes that wait for a slot before they begin.

use std::sync::Arc;

use ferrata_core::graph::GraphBuilder;
use ferrata_core::node::NodeError;
use ferrata_core::state::State;

use crate::acquire::{AcquireRequest, NodeQueueExt as _};
use crate::sealed::SealedType;

/// Queue methods of [`GraphBuilder`].
pub trait GraphQueueExt<S: State>: SealedType + Sized {
    /// Makes each attempt of the last added node acquire a slot of a queue before it begins, and release the slot when it returns. If an attempt
    /// fails with an error that asks for a retry [after a time](NodeError::retry_after), the queue grants no slot for that time. So other attempts do
    /// not run into the same error.
    ///
    /// The [declaration](crate::QueueRequest::declare) of the queue sets concurrency and rate for all nodes that share the queue. An operator may
    /// change both while the queue is in use. A [cached](GraphBuilder::cached) result needs no slot if `cached` is called after `limit`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::state::Context;
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_queue::{GraphQueueExt, RuntimeQueueExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("write")
    ///     .node("ask_model", async |_cx, s| Ok(s))
    ///     .limit("openai")
    ///     .entry("ask_model")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.queue("openai").at_once(5).rate(100, Duration::from_secs(60)).declare().await?;
    /// runtime.start(&graph, Context::new()).await?.completed().await?;
    /// # Ok(())
    /// # }
    /// ```
    fn limit(self, queue: impl Into<String>) -> Self {
        self.limit_as(queue, |place, _| Ok(place))
    }

    /// Limits the last added node as [`limit`](Self::limit) does, but `place` computes the request from the state: its key, priority or number of
    /// slots.
    ///
    /// An error of `place` fails the attempt. `place` is called again only if the node is retried.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::state::Context;
    /// use ferrata_queue::GraphQueueExt;
    ///
    /// let graph = Graph::<Context>::builder("write")
    ///     .node("ask_model", async |_cx, s| Ok(s))
    ///     .limit_as("openai", |place, s: &Context| {
    ///         Ok(place.key(s.get::<String>("customer")?.unwrap_or_default()).priority(1))
    ///     })
    ///     .entry("ask_model")
    ///     .build()?;
    /// # let _ = graph;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn limit_as<F>(self, queue: impl Into<String>, place: F) -> Self
    where
        F: for<'a> Fn(AcquireRequest<'a>, &S) -> Result<AcquireRequest<'a>, NodeError>
            + Send
            + Sync
            + 'static;
}

impl<S: State> GraphQueueExt<S> for GraphBuilder<S> {
    fn limit_as<F>(self, queue: impl Into<String>, place: F) -> Self
    where
        F: for<'a> Fn(AcquireRequest<'a>, &S) -> Result<AcquireRequest<'a>, NodeError>
            + Send
            + Sync
            + 'static,
    {
        let (queue, place) = (queue.into(), Arc::new(place));
        self.around(move |cx, state, work| {
            let (queue, place) = (queue.clone(), Arc::clone(&place));
            async move {
                let place = place(cx.acquire(queue, 1), state.original())?.await?;
                let result = work.run(cx, state).await;
                if let Err(error) = &result
                    && let Some(delay) = error.delay()
                    && let Err(error) = place.retry_after(delay).await
                {
                    tracing::warn!(%error, "cannot close a queue for the time that its provider requested");
                }
                result
            }
        })
    }
}
