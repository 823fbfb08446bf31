//! Starting a run from a node, and waiting for what comes of it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::end::look_at_end;
use super::error::{ChildError, ChildFailure};
use super::orphan::look_after_start;
use super::tries::Tries;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointPolicy, Graph};
use crate::id::{RunId, RunKey};
use crate::node::EndWaiter;
use crate::node::{Kept, NodeContext};
use crate::record::child::{Bond, Child, ChildEnd, ChildNote};
use crate::record::parent_link::{BOND, CHILD, ChildRef, DEPTH, PARENT, ParentLink, ROOT, child_id};
use crate::runtime::requests::given::Given;
use crate::runtime::requests::resume::{Terms, resume};
use crate::runtime::requests::start::StartRequest;
use crate::runtime::shared::Shared;
use crate::runtime::tasks::finish;
use crate::state::{Channels, State};
use crate::store::RunHead;

/// How long the name of a child may be: with it, and with what makes it unique, its id and its labels are made.
const LONGEST: usize = 64;

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

impl From<OnParentEnd> for Bond {
    fn from(what: OnParentEnd) -> Self {
        match what {
            OnParentEnd::Cancel => Self::Cancel,
            OnParentEnd::Leave => Self::Leave,
        }
    }
}

/// What is asked for, whoever waits for it.
pub(super) struct Wanted<S: State> {
    pub(super) cx: NodeContext,
    graph: Graph<S>,
    input: S,
    pub(super) name: Option<String>,
    id: Option<Result<RunId>>,
    pub(super) labels: Vec<(String, String)>,
    pub(super) given: Given,
    pub(super) bond: Bond,
    pub(super) deadline: Option<Duration>,
}

impl<S: State> Wanted<S> {
    pub(super) fn new(cx: &NodeContext, graph: &Graph<S>, input: S, bond: Bond) -> Self {
        let (cx, graph) = (cx.clone(), graph.clone());
        let (labels, given) = (Vec::new(), Given::default());
        Self { cx, graph, input, name: None, id: None, labels, given, bond, deadline: None }
    }

    /// Starts the run once, whatever crashes.
    pub(super) async fn start(self) -> Result<ChildHandle<S>> {
        let mut started = self.begin_alone().await?;
        if started.child.begins() {
            started.cx.note_began(&started.child).await?;
            started.child.began = true;
        }
        Ok(started)
    }

    /// As [`start`](Self::start), and leaves it to the wait for its end to note that it was started.
    pub(super) async fn begin_alone(self) -> Result<ChildHandle<S>> {
        let (name, shared) = self.claim()?;
        let kept = match self.fresh(&shared, &name)? {
            Some(note) => self.cx.note_child(&name, 1, note).await?,
            None => self.keep(&shared, &name).await?,
        };
        self.start_kept(&shared, kept).await
    }

    /// Starts the run once as a child of a group. `kept` is its note, if that was made with others.
    pub(super) async fn start_in(
        self,
        group: String,
        name: String,
        kept: Option<Kept>,
    ) -> Result<ChildHandle<S>> {
        let cx = self.cx.clone();
        let shared = self.shared()?;
        let kept = match kept {
            Some(kept) => kept,
            None => self.keep(&shared, &name).await?,
        };
        // Not before: what an attempt noted before is found again only while nothing else is at work.
        let _starting = cx.at_work();
        let started = self.start_kept(&shared, kept).await?;
        cx.join_group(&group, &started.child, started.named.clone(), started.since.clone()).await?;
        Ok(started)
    }

    /// Claims the name of the run for this attempt.
    pub(super) fn claim(&self) -> Result<(String, Arc<Shared>)> {
        let name = self.name.clone().unwrap_or_else(|| self.graph.name().as_str().replace(':', "-"));
        if name.len() > LONGEST {
            let message = format!("the name of a child has {} bytes; use at most {LONGEST}", name.len());
            return Err(Error::new(ErrorKind::Invalid, message).with_node(self.cx.node()));
        }
        self.cx.claim_child(&name)?;
        Ok((name, self.shared()?))
    }

    /// Returns what is to be noted of a run that no attempt before has noted.
    pub(super) fn fresh(&self, shared: &Shared, name: &str) -> Result<Option<ChildNote>> {
        if self.cx.known_child(name).is_some() {
            return Ok(None);
        }
        self.check_limits(shared)?;
        let note = self.note(name, 1)?;
        self.count_start(shared)?;
        self.cx.count_child();
        Ok(Some(note))
    }

    /// Starts the run as it is noted, unless it is noted what came of it.
    async fn start_kept(self, shared: &Arc<Shared>, kept: Kept) -> Result<ChildHandle<S>> {
        let named = self.cx.child_ref(&kept.child);
        let mut since = None;
        if kept.child.told.is_none() {
            let _working = self.cx.at_work();
            let mut tries = Tries::of(shared, &named.run);
            since = loop {
                match self.begin(shared, &kept, &named).await {
                    Ok(since) => break since,
                    Err(error) => tries.failed(error).await?,
                }
            };
        }
        Ok(ChildHandle { cx: self.cx, graph: self.graph, child: kept.child, named, since })
    }

    fn shared(&self) -> Result<Arc<Shared>> {
        self.cx.shared()
    }

    /// Finds the child as an attempt before has noted it, or notes that it is about to be started anew.
    async fn keep(&self, shared: &Arc<Shared>, name: &str) -> Result<Kept> {
        let (cx, attempt) = (&self.cx, self.cx.attempt());
        let Some(known) = cx.known_child(name) else {
            // Another attempt cannot forget it.
            return Err(self.cx.left());
        };
        if known.note.workflow != *self.graph.name()
            || (known.note.bond == Bond::Detached) != self.is_detached()
        {
            let message = format!(
                "`{name}` was started before as another run, of the workflow `{}`; finish the run with the code it was started \
                 with, or give the new child another name",
                known.note.workflow
            );
            return Err(Error::new(ErrorKind::GraphChanged, message).with_node(cx.node()));
        }
        if self.is_detached() || known.is_completed() || !known.is_of_before(attempt) {
            return cx.find_child(known).await;
        }
        // An attempt before has started it. If it came to nothing, it is started anew.
        let round = known.round + 1;
        let is_over = match &known.told {
            Some(_) => true,
            None => match self.look_at_end_of(shared, &known).await? {
                None | Some(ChildEnd::Completed { .. }) => false,
                Some(ChildEnd::Gone) => known.began,
                Some(_) => true,
            },
        };
        let note = match is_over {
            true => {
                self.count_start(shared)?;
                self.note(name, round)?
            }
            false => ChildNote { attempt, ..known.note },
        };
        let kept = cx.note_child(name, round, note).await?;
        Ok(Kept { is_new: is_over, ..kept })
    }

    /// Looks at what came of a child of an attempt before. The look is work: a run that rested meanwhile would hear nothing of the child.
    async fn look_at_end_of(&self, shared: &Arc<Shared>, known: &Child) -> Result<Option<ChildEnd>> {
        let _working = self.cx.at_work();
        look_at_end(shared, &self.cx.child_ref(known)).await
    }

    fn is_detached(&self) -> bool {
        self.bond == Bond::Detached
    }

    fn note(&self, name: &str, round: u32) -> Result<ChildNote> {
        let run = match &self.id {
            None => child_id(name, &format!("{}:{round}", self.cx.start_of(name)))?,
            Some(Ok(id)) if round == 1 => id.clone(),
            Some(Ok(id)) => RunId::new(format!("{id}-{round}"))?,
            Some(Err(error)) => return Err(error.clone()),
        };
        let (workflow, attempt) = (self.graph.name().clone(), self.cx.attempt());
        let deadline = self.deadline.map(|after| self.cx.time().plus(after));
        Ok(ChildNote { run, workflow, attempt, bond: self.bond, deadline })
    }

    /// How deep the run is that is started. No parent waits for one that is detached, so it is the first of its own.
    pub(super) fn depth(&self) -> u32 {
        if self.is_detached() { 0 } else { self.cx.host().depth + 1 }
    }

    /// Starts the run, or sees to it that it goes on. Returns a wait for its end that was begun before, if it was started here.
    async fn begin(&self, shared: &Arc<Shared>, kept: &Kept, named: &ChildRef) -> Result<Option<EndWaiter>> {
        let (Kept { child, is_new }, run) = (kept, &named.run);
        if !is_new && let Some(head) = shared.store.head(run).await? {
            return match named.is(&head.facts) {
                // Rare and large, so not a part of each start.
                true => Box::pin(take_up(shared, &self.graph, head)).await.map(|()| None),
                false => Err(taken(run)),
            };
        }
        if child.began {
            // It was there, and is not any more: who waits for it is told.
            return Ok(None);
        }
        let depth = self.depth();
        let (parent, host) = (self.cx.run().clone(), self.cx.host());
        let root = if self.is_detached() { run.run.clone() } else { host.root.run.clone() };
        let labels = [
            (PARENT, parent.run.to_string()),
            (CHILD, named.start.to_string()),
            (BOND, self.bond.as_str().to_owned()),
            (ROOT, root.to_string()),
            (DEPTH, depth.to_string()),
        ];
        let mut request = StartRequest::new(Arc::clone(shared), self.graph.clone(), self.input.clone())
            .id(&run.run)
            .tenant(&run.tenant)
            .given(self.given.clone())
            .parent_labels(labels.map(|(key, value)| (key.to_owned(), value)));
        for (key, value) in &self.labels {
            request = request.label(key, value);
        }
        let (shared, run) = (Arc::clone(shared), run.clone());
        let starting = shared.registry.starts.begin(&run);
        let link = ParentLink { parent, start: Arc::clone(&named.start), bond: self.bond };
        let since = shared.registry.end_waiters.wait_for(named);
        finish(async move {
            let _starting = starting;
            // In a box, as what a task is made of: what waits for this would hold it otherwise.
            let is_here = match Box::pin(request.carried_out()).await {
                Ok(child) => child.is_driven_here(),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(taken(&run)),
                Err(error) => return Err(error),
            };
            // Whoever ends the activation here finds the child, or waits for its start; and if this process turns out not to own the
            // parent any more, its driver has the child looked after.
            if shared.driver(&link.parent).is_none() {
                look_after_start(&shared, &run, link);
            }
            Ok(is_here.then_some(since))
        })
        .await
    }
}

/// Says that the id of a child is another run's.
fn taken(run: &RunKey) -> Error {
    let message = "the id is that of another run, which this activation did not start; give the child another id, or none";
    Error::new(ErrorKind::AlreadyExists, message).with_run(run)
}

/// Goes on with a child that no process drives.
async fn take_up<S: State>(shared: &Arc<Shared>, graph: &Graph<S>, head: RunHead) -> Result<()> {
    let run = head.run.clone();
    if head.status.is_finished() || shared.driver(&run).is_some() || shared.admission.is_waiting(&run) {
        return Ok(());
    }
    let (policy, terms) = (CheckpointPolicy::default(), Terms::default());
    let (shared, graph) = (Arc::clone(shared), graph.clone());
    let taken = finish(async move {
        resume(&shared, &graph, &head.run.clone(), policy, &terms, Some(head.into()), None).await
    });
    match taken.await {
        Ok(_) => Ok(()),
        Err(error) if error.is_retryable() => Err(error),
        // It goes on elsewhere, has ended, or is left to others by a runtime that is closing; what else is wrong with it is told where its
        // workflow is served.
        Err(error) => {
            tracing::debug!(%run, %error, "a child is not taken up here");
            Ok(())
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
pub struct ChildRequest<S: State>(pub(super) Wanted<S>);

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
pub struct SpawnRequest<S: State>(Wanted<S>);

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
    cx: NodeContext,
    graph: Graph<S>,
    child: Child,
    /// As its parent's log names it.
    named: ChildRef,
    /// A wait for its end that was begun before the child was started here.
    since: Option<EndWaiter>,
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
        ChildRequest(Wanted::new(self, graph, input, Bond::Cancel))
    }

    /// Starts a detached run, for which no parent waits: exactly one for each activation and name, whatever crashes. Its labels say who started
    /// it, and the end of this run is nothing to it.
    pub fn spawn<C: State>(&self, graph: &Graph<C>, input: C) -> SpawnRequest<C> {
        SpawnRequest(Wanted::new(self, graph, input, Bond::Detached))
    }
}
