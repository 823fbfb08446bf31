//! Starts a run from a node, and waits for its result.

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
use crate::node::{EndWaiter, NodeContext};
use crate::record::child::{ActivationChild, ChildEnd, ParentBond};
use crate::record::parent_link::ChildRef;
use crate::state::{Channels, State};

/// The fate of a child whose parent ends first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnParentEnd {
    /// Cancels the child. The activation ends after the child has ended or the grace is over. A pause of the parent also pauses the child.
    #[default]
    Cancel,
    /// The child continues.
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

/// A child before its start. `.await` starts it and waits for its final state; [`start`](Self::start) only starts it.
///
/// # Cancel safety
///
/// If the request is dropped before the parent's log names the child, or before the node is polled after that, the child may not be started. The
/// same call of the next attempt then finds the child or starts it. Once the request reached the store, the start completes, even if the node is
/// dropped.
#[must_use = "a child starts only when the future is awaited"]
pub struct ChildRequest<S: State>(pub(super) ChildSpec<S>);

impl<S: State> ChildRequest<S> {
    /// Names the child within its activation. The rules for step and question names apply. The default is the name of its workflow. Two children of
    /// one workflow need different names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Sets the child's id. By default the id derives from the parent's generation, activation and name. A restarted child appends its round number.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        self.0.id = Some(RunId::new(id));
        self
    }

    /// Adds a label to filter runs by.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.labels.push((key.into(), value.into()));
        self
    }

    /// Configures the child, as [`StartRequest::config`](crate::runtime::StartRequest::config) does. The child does not inherit its parent's
    /// configuration. To pass it on, use `.config(cx.config::<Config>()?)`.
    pub fn config(mut self, config: impl Serialize) -> Self {
        self.0.given.configure(&config);
        self
    }

    /// Sets the fate of the child if its activation or the run ends first. The default is [`OnParentEnd::Cancel`].
    pub fn on_parent_end(mut self, what: OnParentEnd) -> Self {
        self.0.bond = what.into();
        self
    }

    /// Sets the maximum duration of the child, from its recorded start. By default there is no limit. If the parent still waits at the deadline,
    /// the child is cancelled and the result is [`ChildError::Cancelled`].
    pub fn deadline(mut self, after: Duration) -> Self {
        self.0.deadline = Some(after);
        self
    }

    /// Starts the child. On return, the child and its note in the parent's log are recorded.
    ///
    /// # Errors
    ///
    /// [`ChildError::Refused`] if the id belongs to another run, a limit is reached, this attempt already used the name, or
    /// [`Runtime::start`](crate::runtime::Runtime::start) rejects the input or the run. Store errors are retried, and a closing runtime leaves the
    /// child to other processes: neither is an error here.
    ///
    /// # Cancel safety
    ///
    /// As that of [`ChildRequest`]. The same call of the next attempt returns the child.
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

/// A detached run before its start. `.await` starts it and returns its key.
///
/// # Cancel safety
///
/// As that of [`ChildRequest`]. If the run must start in any case, await the request where nothing drops it.
#[must_use = "a run starts only when the future is awaited"]
pub struct SpawnRequest<S: State>(ChildSpec<S>);

impl<S: State> SpawnRequest<S> {
    /// Names the run within its activation, as [`ChildRequest::name`] does.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Sets the run's id, as [`ChildRequest::id`] does.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        self.0.id = Some(RunId::new(id));
        self
    }

    /// Adds a label to filter runs by.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.labels.push((key.into(), value.into()));
        self
    }

    /// Configures the run, as [`ChildRequest::config`] does.
    pub fn config(mut self, config: impl Serialize) -> Self {
        self.0.given.configure(&config);
        self
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

/// A handle to a started child. Dropping the handle has no effect: the child continues until its activation ends.
pub struct ChildHandle<S: State> {
    pub(super) cx: NodeContext,
    pub(super) graph: Graph<S>,
    pub(super) child: ActivationChild,
    /// The child's identity in its parent's log.
    pub(super) named: ChildRef,
    /// A wait for the child's end, registered before its start in this process.
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

    /// Waits for the child's final state, even across restarts and for months. While only children can move the run, the run becomes idle and uses
    /// no memory. For the effect on the code before this call, see [`NodeContext::sleep`].
    ///
    /// # Errors
    ///
    /// [`ChildError`] contains the reason why the child has no final state.
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
    /// Starts another run as a child of this activation and waits for its final state. Crashes do not start a second run.
    ///
    /// A [child](https://docs.rs/ferrata) has its own log, status and owner. This run's log records the child's result once: when the activation
    /// runs again, it finds the child or its result. Serve the child's workflow, too, so that the child continues after the process ends.
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

    /// Starts a detached run without a waiting parent: exactly one for each activation and name, even across crashes. Its labels name the run that
    /// started it. The end of this run does not affect it.
    pub fn spawn<C: State>(&self, graph: &Graph<C>, input: C) -> SpawnRequest<C> {
        SpawnRequest(ChildSpec::new(self, graph, input, ParentBond::Detached))
    }
}
