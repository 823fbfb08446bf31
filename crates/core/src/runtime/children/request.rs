//! The requests by which a node starts a run and waits for its result.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::child_start::ChildSpec;
use super::error::{ChildError, ChildFailure};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::id::{RunId, RunKey};
use crate::kernel::end_waiters::EndWaiter;
use crate::node::NodeContext;
use crate::record::child::{ActivationChild, ChildEnd, ParentBond};
use crate::record::parent_link::ChildRef;
use crate::state::{Channels, State};

/// The rule for a child whose activation or parent run ends before the child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnParentEnd {
    /// The child is cancelled. The activation ends after the child has ended, or after the grace period. If the parent is paused, the child is paused
    /// too.
    #[default]
    Cancel,
    /// The child continues without its parent.
    Leave,
}

impl From<OnParentEnd> for ParentBond {
    fn from(what: OnParentEnd) -> Self {
        match what {
            OnParentEnd::Cancel => Self::Cancel,
            OnParentEnd::Leave => Self::Leave,
        }
    }
}

/// A prepared start of a child. `.await` starts the child and waits for its final state. [`start`](Self::start) only starts the child.
///
/// # Cancel safety
///
/// If the future is dropped before the start has reached the store, the child may not be started. The same call of the next attempt then finds the
/// child or starts it. After the start has reached the store, it completes even if the node is dropped.
#[must_use = "a child starts only when the future is awaited"]
pub struct ChildRequest<S: State>(pub(super) ChildSpec<S>);

impl<S: State> ChildRequest<S> {
    /// Sets the name of the child within its activation. The rules for names of steps and questions apply. The default is the name of the child's
    /// workflow, so a second child of the same workflow needs another name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Sets the run id of the child. By default the id is computed from the start id of the parent, the activation and the name of the child. If a
    /// child is started again after a failure, the number of the restart is appended to the id.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        self.0.id = Some(RunId::new(id));
        self
    }

    /// Adds a label to the run. Listings can select runs by their labels.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.labels.push((key.into(), value.into()));
        self
    }

    /// Sets the configuration of the child, like [`StartRequest::config`](crate::runtime::StartRequest::config). The child does not inherit the
    /// configuration of its parent. To pass it to the child, use `.config(cx.config::<Config>()?)`.
    pub fn config(mut self, config: impl Serialize) -> Self {
        self.0.given.configure(&config);
        self
    }

    /// Sets whether the child is cancelled or continues if its activation or the parent run ends before it. The default is [`OnParentEnd::Cancel`].
    pub fn on_parent_end(mut self, what: OnParentEnd) -> Self {
        self.0.bond = what.into();
        self
    }

    /// Records the child on hold until its [queue](crate::runtime::queue_name) starts it. This is for the library that implements the queue.
    #[doc(hidden)]
    pub fn hold_for_queue(mut self, queue: impl Into<String>) -> Self {
        self.0.queue = Some(queue.into());
        self
    }

    /// Returns the context of the node that starts the child.
    #[doc(hidden)]
    pub fn context(&self) -> &NodeContext {
        &self.0.cx
    }

    /// Sets the maximum duration of the child, from its recorded start. By default there is no limit. If the child has not ended after this time and
    /// the parent still waits for it, the child is cancelled, and the parent receives [`ChildError::Cancelled`].
    pub fn deadline(mut self, after: Duration) -> Self {
        self.0.deadline = Some(after);
        self
    }

    /// Starts the child without waiting for its result. When the call returns, the start is durable in the log of the child and in the log of the
    /// parent.
    ///
    /// # Errors
    ///
    /// Returns [`ChildError::Refused`] if the id belongs to another run, a limit is reached, this attempt already used the name, or
    /// [`Runtime::start`](crate::runtime::Runtime::start) rejects the input or the id. Errors of the store are retried and not returned. If the
    /// runtime shuts down, other processes drive the child, and the call returns no error.
    ///
    /// # Cancel safety
    ///
    /// The rules of [`ChildRequest`] apply. The same call of the next attempt returns the same child.
    pub async fn start(self) -> Result<ChildHandle<S>, ChildError> {
        Ok(self.0.start().await?)
    }
}

impl<S: State> IntoFuture for ChildRequest<S> {
    type Output = Result<S, ChildError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.0.begin_alone().await?.result().await })
    }
}

impl<S: State> fmt::Debug for ChildRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildRequest").field("workflow", self.0.graph.name()).finish_non_exhaustive()
    }
}

/// A prepared start of a detached run. `.await` starts the run and returns its key.
///
/// # Cancel safety
///
/// The rules of [`ChildRequest`] apply. If the run must start in any case, await the request in code that is not dropped, for example not in a
/// `select!`.
#[must_use = "a run starts only when the future is awaited"]
pub struct SpawnRequest<S: State>(ChildSpec<S>);

impl<S: State> SpawnRequest<S> {
    /// Sets the name of the run within its activation, like [`ChildRequest::name`].
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Sets the id of the run, like [`ChildRequest::id`].
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        self.0.id = Some(RunId::new(id));
        self
    }

    /// Adds a label to the run. Listings can select runs by their labels.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.labels.push((key.into(), value.into()));
        self
    }

    /// Sets the configuration of the run, like [`ChildRequest::config`].
    pub fn config(mut self, config: impl Serialize) -> Self {
        self.0.given.configure(&config);
        self
    }

    /// Records the run on hold until its queue starts it, like [`ChildRequest::hold_for_queue`].
    #[doc(hidden)]
    pub fn hold_for_queue(mut self, queue: impl Into<String>) -> Self {
        self.0.queue = Some(queue.into());
        self
    }

    /// Returns the context of the node that starts the run.
    #[doc(hidden)]
    pub fn context(&self) -> &NodeContext {
        &self.0.cx
    }
}

impl<S: State> IntoFuture for SpawnRequest<S> {
    type Output = Result<RunKey, ChildError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.0.start().await?.named.run) })
    }
}

impl<S: State> fmt::Debug for SpawnRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnRequest").field("workflow", self.0.graph.name()).finish_non_exhaustive()
    }
}

/// A handle to a started child. If the handle is dropped, the child continues, at least until the activation that started it ends.
pub struct ChildHandle<S: State> {
    pub(super) cx: NodeContext,
    pub(super) graph: Graph<S>,
    pub(super) child: ActivationChild,
    /// The child's identity in its parent's log.
    pub(super) named: ChildRef,
    /// A wait for the end of the child, which was registered before this process started the child.
    pub(super) since: Option<EndWaiter>,
}

impl<S: State> ChildHandle<S> {
    /// Returns the child's key.
    pub fn run(&self) -> &RunKey {
        &self.named.run
    }

    /// Returns the child's identity if it ends with its activation.
    pub(super) fn bound(&self) -> Option<ChildRef> {
        self.child.ends_with_parent().then(|| self.named.clone())
    }

    /// Waits for the child's final state, even for months and across restarts. When the whole run waits only for children, it becomes idle and leaves
    /// the memory. After the child has ended, the activation runs again from its start, so the code before this call runs again; see
    /// [`NodeContext::sleep`].
    ///
    /// # Errors
    ///
    /// Returns a [`ChildError`] with the reason if the child has no final state.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the child continues, and the call can be repeated.
    pub async fn result(&self) -> Result<S, ChildError> {
        let end = self.cx.wait_for_child(&self.child, &self.named, self.since.clone()).await?;
        self.read(&end)
    }

    /// Returns the number of the child's current start.
    pub(super) fn round(&self) -> u32 {
        self.child.round
    }

    /// Returns the name of the wait for the child's end.
    pub(super) fn end_note_name(&self) -> String {
        self.child.end_note_name()
    }

    /// Converts the child's end into its result.
    pub(super) fn take_end(&self, end: &Arc<RawValue>) -> Result<S, ChildError> {
        self.cx.mark_end_known(&self.child, end);
        self.read(end)
    }

    fn read(&self, end: &RawValue) -> Result<S, ChildError> {
        let run = self.run().clone();
        match read(end)? {
            ChildEnd::Completed { state, version } => {
                let channels = Channels::from_json(state.get())?;
                let migrated = self.graph.migrated(&channels, version);
                let state = migrated.and_then(|channels| S::from_channels(channels, self.graph.schema()));
                Ok(state.map_err(|error| error.with_run(&run))?)
            }
            ChildEnd::Failed(failure) => Err(ChildError::Failed { run, cause: ChildFailure::new(failure) }),
            ChildEnd::Cancelled { reason } => Err(ChildError::Cancelled { run, reason }),
            ChildEnd::Gone => Err(ChildError::Gone { run }),
        }
    }
}

fn read(end: &RawValue) -> Result<ChildEnd> {
    serde_json::from_str(end.get()).map_err(|source| {
        Error::new(ErrorKind::Corrupt, "cannot read the note of a child").with_source(source)
    })
}

impl<S: State> IntoFuture for ChildHandle<S> {
    type Output = Result<S, ChildError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.result().await })
    }
}

impl<S: State> fmt::Debug for ChildHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildHandle").field("run", self.run()).finish_non_exhaustive()
    }
}

impl NodeContext {
    /// Starts another run as a child of this activation and waits for the child's final state. Even after a crash, the child is started only once.
    ///
    /// A [child](https://docs.rs/ferrata) has its own log, status and owner. The log of this run records the result of the child once. When the
    /// activation runs again, the same call finds the child or its result. Also [serve](crate::runtime::Runtime::serve) the child's workflow, so that
    /// another process can continue the child after a crash.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::node::NodeContext;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::{Context, Draft};
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let review = Graph::<Context>::builder("review")
    ///     .node("read", async |_cx, mut s| {
    ///         s.set("verdict", "good")?;
    ///         Ok(s)
    ///     })
    ///     .entry("read")
    ///     .build()?;
    /// let child = review.clone();
    /// let publish = Graph::<Context>::builder("publish")
    ///     .node("ask", move |cx: NodeContext, mut s: Draft<Context>| {
    ///         let child = child.clone();
    ///         async move {
    ///             let reviewed = cx.child(&child, Context::new()).await?;
    ///             s.set("verdict", reviewed.get::<String>("verdict")?)?;
    ///             Ok(s)
    ///         }
    ///     })
    ///     .entry("ask")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(&review)?;
    /// runtime.serve(&publish)?;
    /// let state = runtime.start(&publish, Context::new()).await?.completed().await?;
    /// assert_eq!(state.get::<String>("verdict")?.as_deref(), Some("good"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn child<C: State>(&self, graph: &Graph<C>, input: C) -> ChildRequest<C> {
        ChildRequest(ChildSpec::new(self, graph, input, ParentBond::Cancel))
    }

    /// Starts a detached run, for which this run does not wait. Each activation starts exactly one run for each name, even after a crash. The labels
    /// of the detached run name the run that started it. The end of this run does not affect the detached run.
    pub fn spawn<C: State>(&self, graph: &Graph<C>, input: C) -> SpawnRequest<C> {
        SpawnRequest(ChildSpec::new(self, graph, input, ParentBond::Detached))
    }
}
