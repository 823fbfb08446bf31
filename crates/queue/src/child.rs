//! Children and detached runs that wait for a slot.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{ChildError, ChildHandle, ChildRequest, Runtime, SpawnRequest};
use ferrata_core::state::State;
use ferrata_core::{Error, ErrorKind, Result, RunKey};

use crate::queue_run::{KEY, PRIORITY, run_of, undeclared_error};
use crate::sealed::SealedType;
use crate::settings::check_key;

/// Queue methods of [`ChildRequest`] and [`SpawnRequest`].
pub trait ChildQueueExt: SealedType + Sized {
    /// Starts the run through a queue. The run waits for a slot and holds the slot until the run has ended. It ignores the tags of the queue.
    ///
    /// Some process must [serve](Runtime::serve) the workflow of the run, because a process that serves it starts the run after the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::node::NodeContext;
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::state::{Context, Draft};
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_queue::{ChildQueueExt, RuntimeQueueExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let page = Graph::<Context>::builder("page").node("fetch", async |_cx, s| Ok(s)).entry("fetch").build()?;
    /// let child = page.clone();
    /// let site = Graph::<Context>::builder("site")
    ///     .node("fetch", move |cx: NodeContext, s: Draft<Context>| {
    ///         let child = child.clone();
    ///         async move {
    ///             let first = cx.child(&child, Context::new()).name("first").queue("web").start().await?;
    ///             let second = cx.child(&child, Context::new()).name("second").queue("web").key("example.org").start().await?;
    ///             first.result().await?;
    ///             second.result().await?;
    ///             Ok(s)
    ///         }
    ///     })
    ///     .entry("fetch")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(&page)?;
    /// runtime.serve(&site)?;
    /// runtime.queue("web").at_once(10).at_once_per_key(1).declare().await?;
    /// runtime.start(&site, Context::new()).await?.completed().await?;
    /// # Ok(())
    /// # }
    /// ```
    fn queue(self, name: impl Into<String>) -> QueuedChild<Self> {
        QueuedChild { request: self, queue: name.into(), key: String::new(), priority: 0 }
    }
}

impl<S: State> ChildQueueExt for ChildRequest<S> {}
impl<S: State> ChildQueueExt for SpawnRequest<S> {}

/// A request to start a child or a detached run through a queue. `.await` of a child waits for its final state, like that of [`ChildRequest`]; `.await`
/// of a detached run returns once the run is recorded.
///
/// # Errors
///
/// The errors of [`ChildRequest`] and [`SpawnRequest`], and:
/// - [`ErrorKind::NotFound`]: the queue was not [declared](crate::QueueRequest::declare).
/// - [`ErrorKind::Invalid`]: the name of the queue or the key is invalid.
///
/// A full queue refuses no child: a child that finds no room stays on hold, and enters the queue once there is room.
///
/// # Cancel safety
///
/// The rules of [`ChildRequest`] apply.
#[must_use = "the run starts only when the future is awaited"]
pub struct QueuedChild<R> {
    request: R,
    queue: String,
    key: String,
    priority: i32,
}

impl<R> QueuedChild<R> {
    /// Sets the key of the start, like [`QueuedStart::key`](crate::QueuedStart::key).
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// Sets the priority, like [`QueuedStart::priority`](crate::QueuedStart::priority).
    pub fn priority(self, priority: i32) -> Self {
        Self { priority, ..self }
    }
}

/// Returns the labels by which the queue reads the options of a run.
async fn labels(
    cx: &NodeContext,
    queue: &str,
    key: String,
    priority: i32,
) -> Result<Vec<(&'static str, String)>> {
    check_key(&key)?;
    let run = run_of(queue)?;
    // If the store fails, the start of the child retries its calls.
    if let Ok(None) = Runtime::of(cx)?.head(&run).await {
        return Err(undeclared_error(queue, Error::new(ErrorKind::NotFound, "the queue has no run")));
    }
    let key = (!key.is_empty()).then_some((KEY, key));
    let priority = (priority != 0).then(|| (PRIORITY, priority.to_string()));
    Ok(key.into_iter().chain(priority).collect())
}

impl<S: State> QueuedChild<ChildRequest<S>> {
    async fn request(self) -> Result<ChildRequest<S>> {
        let Self { request, queue, key, priority } = self;
        let labels = labels(request.context(), &queue, key, priority).await?;
        let request = labels.into_iter().fold(request, |request, (key, value)| request.label(key, value));
        Ok(request.hold_for_queue(queue))
    }

    /// Starts the child without waiting for its result, like [`ChildRequest::start`].
    ///
    /// # Errors
    ///
    /// The errors of the request.
    ///
    /// # Cancel safety
    ///
    /// The rules of [`ChildRequest`] apply. The same call of the next attempt returns the same child.
    pub async fn start(self) -> Result<ChildHandle<S>, ChildError> {
        self.request().await?.start().await
    }
}

impl<S: State> IntoFuture for QueuedChild<ChildRequest<S>> {
    type Output = Result<S, ChildError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.request().await?.await })
    }
}

impl<S: State> IntoFuture for QueuedChild<SpawnRequest<S>> {
    type Output = Result<RunKey, ChildError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { request, queue, key, priority } = self;
            let labels = labels(request.context(), &queue, key, priority).await?;
            let request = labels.into_iter().fold(request, |request, (key, value)| request.label(key, value));
            request.hold_for_queue(queue).await
        })
    }
}

impl<R: fmt::Debug> fmt::Debug for QueuedChild<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedChild")
            .field("request", &self.request)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
