//! Starting a run from a node, and waiting for what comes of it.

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
use crate::record::child::{Child, ChildEnd, ParentBond};
use crate::record::parent_link::ChildRef;
use crate::state::{Channels, State};

/// What becomes of a child whose parent ends first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnParentEnd {
    /// The child is cancelled, and the activation ends when the child has ended, or when the grace is over. It is paused with its parent.
    #[default]
    Cancel,
    /// The child goes on.
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

/// A child that is about to be started; `.await` starts it and waits for its final state, and [`start`](Self::start) starts it alone.
///
/// # Cancel safety
///
/// Dropped before the log of the parent names the child, or before the node is polled after that, it may start nothing. The same call of
/// the next attempt finds the child, or starts it then. A start that the store was asked for is carried out, also if the node is dropped.
///
/// <!-- held by: children::a_start_that_is_dropped_before_it_is_noted_is_made_by_the_same_call_of_the_next_attempt -->
#[must_use = "a child is not started before it is awaited"]
pub struct ChildRequest<S: State>(pub(super) ChildSpec<S>);

impl<S: State> ChildRequest<S> {
    /// Names the child within its activation, as steps and questions are named; the name of its workflow unless set. Two children of
    /// one workflow need names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Sets the child's id; made of its parent's life, activation and name unless set. Started anew, it has the number of that behind it.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        self.0.id = Some(RunId::new(id));
        self
    }

    /// Adds a label to filter runs by.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.labels.push((key.into(), value.into()));
        self
    }

    /// Configures the child, as [`StartRequest::config`](crate::runtime::StartRequest::config) does; it does not have its parent's configuration
    /// unless that is passed on: `.config(cx.config::<Config>()?)`.
    pub fn config(mut self, config: impl Serialize) -> Self {
        self.0.given.configure(&config);
        self
    }

    /// Sets what becomes of the child when its activation, or the run, ends first; [`OnParentEnd::Cancel`] unless set.
    pub fn on_parent_end(mut self, what: OnParentEnd) -> Self {
        self.0.bond = what.into();
        self
    }

    /// Sets how long the child may take, from its start on record; as long as it wants unless set. If its parent still waits for it then,
    /// the child is cancelled, and brings [`ChildError::Cancelled`].
    pub fn deadline(mut self, after: Duration) -> Self {
        self.0.deadline = Some(after);
        self
    }

    /// Starts the child. When this returns, the child is on record, and its parent's log says so.
    ///
    /// # Errors
    ///
    /// [`ChildError::Refused`]: the id is another run's, a limit is reached, the name was used in this attempt, or the input or the run
    /// is refused as [`Runtime::start`](crate::runtime::Runtime::start) says. A store that fails is asked again, and a runtime that is closing
    /// leaves the child to others: neither is an error here.
    ///
    /// # Cancel safety
    ///
    /// As that of [`ChildRequest`]; the same call of the next attempt returns the child.
    ///
    /// <!-- held by: children::several_children_run_at_once_and_bring_their_states -->
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

/// A detached run, about to be started; `.await` starts it and returns its key.
///
/// # Cancel safety
///
/// As that of [`ChildRequest`]. A run that must be started in any case is awaited where nothing drops the request.
#[must_use = "a run is not started before it is awaited"]
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

/// A child that was started. Dropped, it changes nothing: the child goes on until its activation ends.
pub struct ChildHandle<S: State> {
    pub(super) cx: NodeContext,
    pub(super) graph: Graph<S>,
    pub(super) child: Child,
    /// As its parent's log names it.
    pub(super) named: ChildRef,
    /// A wait for its end that was begun before the child was started here.
    pub(super) since: Option<EndWaiter>,
}

impl<S: State> ChildHandle<S> {
    /// Returns the child's key.
    pub fn run(&self) -> &RunKey {
        &self.named.run
    }

    /// Names the child if it ends with its activation.
    pub(super) fn bound(&self) -> Option<ChildRef> {
        self.child.ends_with_parent().then(|| self.named.clone())
    }

    /// Waits for the child's final state, now or after a restart months later. While nothing but children can move the run, it rests
    /// and takes no memory; see [`NodeContext::sleep`] for what that means for what stands before.
    ///
    /// # Errors
    ///
    /// The [`ChildError`] says what came of the child instead.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the child goes on, and can be waited for again.
    ///
    /// <!-- held by: children::several_children_run_at_once_and_bring_their_states -->
    pub async fn result(&self) -> Result<S, ChildError> {
        let end = self.cx.wait_for_child(&self.child, &self.named, self.since.clone()).await?;
        self.read(&end)
    }

    /// Returns how often attempts have started the child, or gone on with it.
    pub(super) fn round(&self) -> u32 {
        self.child.round
    }

    /// Returns the name of the wait for what comes of the child.
    pub(super) fn told_name(&self) -> String {
        self.child.told_name()
    }

    /// Takes in what came of the child.
    pub(super) fn hear(&self, end: &Arc<RawValue>) -> Result<S, ChildError> {
        self.cx.heard(&self.child, end);
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
        Error::new(ErrorKind::Corrupt, "what is noted of a child cannot be read").with_source(source)
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
    /// Starts another run as a child of this activation, and waits for its final state: one run, whatever crashes.
    ///
    /// A [child](https://docs.rs/ferrata) has a log, a status and an owner of its own. What comes of it is recorded once in this run's log:
    /// whenever the activation runs again, it finds the child, or what came of it. Serve the child's workflow too, so that the child goes on
    /// when the process ends.
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

    /// Starts a detached run, for which no parent waits: exactly one for each activation and name, whatever crashes. Its labels say who started
    /// it, and the end of this run is nothing to it.
    pub fn spawn<C: State>(&self, graph: &Graph<C>, input: C) -> SpawnRequest<C> {
        SpawnRequest(ChildSpec::new(self, graph, input, ParentBond::Detached))
    }
}
