//! Branching off: a new run that goes on from a place in another one's log, which stays as it was.

use std::collections::BTreeSet;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::edit::misfit;
use super::handle::{Link, RunHandle};
use super::load::missing;
use super::past::{Position, folded_at};
use super::print::in_order;
use super::resume::{Terms, resume};
use super::shared::Shared;
use super::tasks::finish;
use crate::engine::fold::Folded;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::plan::Plan;
use crate::graph::{CheckpointPolicy, Graph};
use crate::id::{Fingerprint, RunId, RunKey, WorkflowName};
use crate::record::body::Event;
use crate::record::{Labels, Parent, RunFacts, RunStatus};
use crate::state::{Channels, Patch, State, reread};
use crate::store::{At, CheckpointStore, RunHead};

/// A fork that is being prepared; `.await` makes the new run and takes it.
///
/// # Cancel safety
///
/// Cancel safe: once polled it is carried out, whoever drops it. Fork again with the same id for a handle.
#[must_use = "a fork does nothing until it is awaited"]
pub struct ForkRequest<S: State> {
    shared: Arc<Shared>,
    graph: Graph<S>,
    source: RunKey,
    at: Position,
    id: Option<Result<RunId>>,
    state: Option<S>,
    edits: Vec<Patch>,
    nodes: Vec<String>,
    labels: Vec<(String, String)>,
    policy: CheckpointPolicy,
}

impl<S: State> ForkRequest<S> {
    pub(crate) fn new(shared: &Arc<Shared>, graph: &Graph<S>, source: &RunKey, at: Position) -> Self {
        Self {
            shared: Arc::clone(shared),
            graph: graph.clone(),
            source: source.clone(),
            at,
            id: None,
            state: None,
            edits: Vec::new(),
            nodes: Vec::new(),
            labels: Vec::new(),
            policy: CheckpointPolicy::default(),
        }
    }

    /// Sets the new run's id: the same id with the same fork is the same run, however often it is made. Labels and the policy do
    /// not tell forks apart.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        self.id = Some(RunId::new(id));
        self
    }

    /// Changes the state that the new run goes on with.
    pub fn edit(mut self, patch: Patch) -> Self {
        self.edits.push(patch);
        self
    }

    /// Puts another state in the place of the one that the source had; edits come on top of it.
    pub fn state(mut self, state: S) -> Self {
        self.state = Some(state);
        self
    }

    /// Has the new run begin with these nodes instead of where the source was. Joins count anew.
    pub fn start_at(mut self, nodes: impl crate::graph::NodeNames) -> Self {
        self.nodes = nodes.into_names();
        self
    }

    /// Adds a label to those of the source, or replaces one.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Sets when the new run writes checkpoints; after every node unless set.
    pub fn checkpoints(mut self, policy: CheckpointPolicy) -> Self {
        self.policy = policy;
        self
    }

    async fn fork(self) -> Result<RunHandle<S>> {
        let shared = Arc::clone(&self.shared);
        let now = shared.clock.now();
        let head = shared.store.head(&self.source).await?.ok_or_else(|| missing(&self.source))?;
        if head.facts.workflow != *self.graph.name() {
            let message =
                format!("the run is one of `{}`, not of `{}`", head.facts.workflow, self.graph.name());
            return Err(Error::new(ErrorKind::Invalid, message).with_run(&self.source));
        }
        let mut folded = self.origin().await?;
        let at = folded.last.head();
        folded.machine.branch_off(shared.ids.next(now), Some(self.graph.plan()));
        self.place(&mut folded)?;
        let state = self.new_state(&folded)?;
        let text = state.to_channels_json()?;
        if folded.version != self.graph.schema().version() {
            folded
                .machine
                .bring_forward(|patch| self.graph.migrated_patch(&folded.channels, folded.version, patch));
        }
        let id = match &self.id {
            Some(id) => id.clone()?,
            None => RunId::new(shared.ids.next(now).to_string())?,
        };
        let run = RunKey::new(self.source.tenant.clone(), id);
        let facts = self.facts(&head, at, text.get(), now)?;
        let mut log = shared.log_writer(&run);
        log.state_version = self.graph.schema().version();
        let append = log.begin(&Event::Base, &folded.machine, text, true, facts.clone())?;
        match shared.committer.append(append, None).await {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Conflict => same(&shared, &run, &facts).await?,
            Err(error) => return Err(error.with_run(&run)),
        }
        match resume(&shared, &self.graph, &run, self.policy, &Terms::default(), None, None).await {
            // It was made before, and goes on or has ended.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::WrongStatus) => {
                Ok(RunHandle::new(shared, self.graph, run, Link::Elsewhere))
            }
            result => result,
        }
    }

    async fn origin(&self) -> Result<Folded> {
        let (store, plan) = (&*self.shared.store, Some(self.graph.plan()));
        origin(store, &self.source, &self.at, plan, !self.nodes.is_empty()).await
    }

    /// Puts the new run where it is to begin, and checks that the graph has a place for it.
    fn place(&self, folded: &mut Folded) -> Result<()> {
        let refuse = |kind, message: String| {
            Err(Error::new(kind, message).with_run(&self.source).with_seq(folded.last.seq))
        };
        if !self.nodes.is_empty() {
            let plan = self.graph.plan();
            if let Some(stranger) = self.nodes.iter().find(|name| plan.find(name).is_none()) {
                return refuse(ErrorKind::NotFound, format!("there is no node `{stranger}` to start at"));
            }
            let names: BTreeSet<&str> = self.nodes.iter().map(String::as_str).collect();
            folded.machine.begin_at(names);
        }
        let strangers: Vec<String> = folded.machine.strangers().iter().map(ToString::to_string).collect();
        if !strangers.is_empty() {
            let message = format!(
                "the graph has no node {}, where the run is: fork elsewhere, or name nodes with `.start_at(..)`",
                strangers.join(", ")
            );
            return refuse(ErrorKind::GraphChanged, message);
        }
        if folded.machine.is_over() {
            let message = "nothing was left to run there; fork at an earlier record, or name nodes with `.start_at(..)`";
            return refuse(ErrorKind::Invalid, message.into());
        }
        Ok(())
    }

    fn new_state(&self, folded: &Folded) -> Result<S> {
        let place = |error: Error| error.with_run(&self.source);
        let mut channels = match &self.state {
            Some(state) => {
                let text = state.to_channels_json()?;
                reread::<S>(text.get(), self.graph.schema()).map_err(place)?;
                Channels::from_json(text.get())?
            }
            None => self.graph.migrated(&folded.channels, folded.version).map_err(place)?,
        };
        if self.edits.is_empty() {
            return S::from_channels(channels, self.graph.schema()).map_err(place);
        }
        // What is stored is judged apart from what it is changed to.
        S::from_channels(channels.clone(), self.graph.schema()).map_err(place)?;
        let edited = self.edits.iter().try_for_each(|patch| channels.apply(patch));
        let edited = edited.and_then(|()| S::from_channels(channels, self.graph.schema()));
        edited.map_err(misfit).map_err(place)
    }

    fn facts(
        &self,
        head: &RunHead,
        at: crate::id::HeadRef,
        state: &str,
        now: crate::clock::Timestamp,
    ) -> Result<RunFacts> {
        let graph = (self.graph.name().clone(), self.graph.version().to_owned(), self.graph.fingerprint());
        let told = Told { source: &self.source, at, nodes: &self.nodes, labels: &self.labels, state };
        told.facts(head, graph, now)
    }
}

/// Folds the source at the place; of a cancelled run, at the last record before it was, unless it is said where to begin.
pub(super) async fn origin(
    store: &dyn CheckpointStore,
    source: &RunKey,
    at: &Position,
    plan: Option<&Arc<Plan>>,
    placed: bool,
) -> Result<Folded> {
    let at = at.find(store, source).await?;
    let mut folded = folded_at(store, source, at, plan).await?;
    while folded.machine.status() == RunStatus::Cancelled && !placed {
        let Some(before) = folded.last.seq.get().checked_sub(1) else { break };
        folded = match folded_at(store, source, At::Seq(crate::id::Seq::new(before)), plan).await {
            Ok(folded) => folded,
            // Pruned: nothing tells any more where it was, which is refused with what to do.
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        };
    }
    Ok(folded)
}

/// What tells a repeated fork from another: where it branches off, with what, and where it begins.
pub(super) struct Told<'a> {
    pub(super) source: &'a RunKey,
    pub(super) at: crate::id::HeadRef,
    pub(super) nodes: &'a [String],
    pub(super) labels: &'a [(String, String)],
    pub(super) state: &'a str,
}

impl Told<'_> {
    /// Makes the facts of the new run, which runs with this workflow, version and graph.
    pub(super) fn facts(
        &self,
        head: &RunHead,
        (workflow, version, graph): (WorkflowName, String, Fingerprint),
        now: crate::clock::Timestamp,
    ) -> Result<RunFacts> {
        let Self { source, at, nodes, state, .. } = self;
        let state = in_order(state)?;
        let told = format!("{source} {} {} {nodes:?} {state}", at.seq, at.id);
        let facts = RunFacts::new(workflow, version, graph, Fingerprint::of(told.as_bytes()), now)?;
        let mut labels = Labels::default();
        let kept = head.facts.labels.iter().filter(|(key, _)| !self.labels.iter().any(|(new, _)| new == key));
        kept.map(|(key, value)| (key.to_owned(), value.to_owned()))
            .chain(self.labels.iter().cloned())
            .try_for_each(|(key, value)| labels.insert(key, value))?;
        let facts = facts.with_labels(labels).with_parent(Parent { run: (*source).clone(), at: *at });
        match &head.facts.user {
            Some(user) => facts.with_user(user.clone()),
            None => Ok(facts),
        }
    }
}

/// Checks that a run which is there already is the same fork.
pub(super) async fn same(shared: &Shared, run: &RunKey, facts: &RunFacts) -> Result<()> {
    let head = shared.store.head(run).await?.ok_or_else(|| {
        Error::new(ErrorKind::Unavailable, "the run is being made or purged by somebody else; try again")
            .with_run(run)
    })?;
    let there = &head.facts;
    if there.workflow == facts.workflow && there.input == facts.input && there.parent == facts.parent {
        return Ok(());
    }
    let message = "there is another run of this id, which is not this fork; use another id";
    Err(Error::new(ErrorKind::AlreadyExists, message).with_run(run))
}

impl<S: State> IntoFuture for ForkRequest<S> {
    type Output = Result<RunHandle<S>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(self.fork()))
    }
}

impl<S: State> std::fmt::Debug for ForkRequest<S> {
    /// Never shows values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForkRequest")
            .field("source", &self.source)
            .field("at", &self.at)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
