//! Forks, which are new runs that continue from a position in the log of another run (the source). The source stays unchanged.

mod repeats;

use std::collections::BTreeSet;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::resume::{ClaimOptions, resume};
use super::start_extras::StartExtras;
use crate::claim::StartId;
use crate::clock::Timestamp;
use crate::engine::fold::ReplayedRun;
use crate::engine::fold::missing;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::plan::GraphPlan;
use crate::graph::suggest::no_node;
use crate::graph::{AnyGraph, CheckpointPolicy, Graph};
use crate::id::{Epoch, Fingerprint, HeadRef, NodeName, RunId, RunKey, Seq, WorkflowName};
use crate::kernel::inner::RuntimeInner;
use crate::kernel::log::RecordOptions;
use crate::kernel::recovery::ClaimTarget;
use crate::kernel::run_change::RunChange;
use crate::kernel::run_writer::RunWriter;
use crate::kernel::tasks::finish;
use crate::past::{Position, folded_at};
use crate::record::body::{FanOutItem, RecordEvent};
use crate::record::parent_link::{RESERVED, TAGS, refuse_reserved};
use crate::record::{Labels, Parent, RunFacts, RunStatus, codec};
use crate::runtime::handle::{OutcomeSource, RunHandle};
use crate::runtime::input_fingerprint::in_order;
use crate::runtime::writes::run_writer::bring_forward;
use crate::runtime::writes::run_writer::caller_error;
use crate::runtime::writes::system_runs::{
    QUEUE_START, check_copy, hold_for_queue, new_queue_start, queue_name,
};
use crate::state::{Channels, Patch, State, reread};
use crate::store::{At, CheckpointStore, RunHead};

pub use repeats::RepeatedEffect;

/// A prepared fork. `.await` writes the new run and returns its key. With [`drive`](Self::drive), this process also drives the new run.
///
/// # Cancel safety
///
/// Cancel safe: after the first poll, the fork completes even if the caller drops the future. To get the result, fork again with the same id.
#[must_use = "a fork starts only when the future is awaited"]
pub struct ForkRequest {
    shared: Arc<RuntimeInner>,
    source: RunKey,
    at: Position,
    id: Option<Result<RunId>>,
    edits: Vec<Patch>,
    nodes: Vec<String>,
    labels: Vec<(String, String)>,
    given: StartExtras,
}

/// A prepared fork that this process will drive. `.await` writes the new run and claims it.
///
/// # Cancel safety
///
/// Cancel safe: after the first poll, the fork completes even if the caller drops the future. To get a handle, fork again with the same id.
#[must_use = "a fork starts only when the future is awaited"]
pub struct DriveRequest<S: State> {
    fork: ForkRequest,
    graph: Graph<S>,
    state: Option<S>,
    policy: CheckpointPolicy,
}

impl ForkRequest {
    pub(crate) fn new(shared: &Arc<RuntimeInner>, source: &RunKey, at: Position) -> Self {
        Self {
            shared: Arc::clone(shared),
            source: source.clone(),
            at,
            id: None,
            edits: Vec::new(),
            nodes: Vec::new(),
            labels: Vec::new(),
            given: StartExtras::default(),
        }
    }

    /// Sets the id of the new run. If you repeat the same fork with the same id, the request returns the existing run. Two forks that differ only in
    /// labels or in the checkpoint policy count as the same fork.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        self.id = Some(RunId::new(id));
        self
    }

    /// Changes the initial state of the new run.
    pub fn edit(mut self, patch: Patch) -> Self {
        self.edits.push(patch);
        self
    }

    /// Starts the new run at these nodes, instead of continuing the unfinished nodes of the source. Inputs that wait at joins are dropped.
    pub fn start_at(mut self, nodes: impl crate::graph::NodeNames) -> Self {
        self.nodes = nodes.into_names();
        self
    }

    /// Adds a label to the labels of the source. It replaces a label with the same key.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Sets the configuration of the new run, like [`StartRequest::config`](super::StartRequest::config). By default the new run has the
    /// configuration of the source.
    pub fn config(mut self, config: impl serde::Serialize) -> Self {
        self.given.configure(&config);
        self
    }

    /// Makes this process drive the new run with `graph`. The graph must have the workflow of the source, but may otherwise differ from the graph of
    /// the source. Before anything is appended, the state, the edits and the nodes are checked against the graph.
    pub fn drive<S: State>(self, graph: &Graph<S>) -> DriveRequest<S> {
        DriveRequest { fork: self, graph: graph.clone(), state: None, policy: CheckpointPolicy::default() }
    }

    /// Writes the new run, with the graph that will drive it and the initial state, if they are present. Returns the new run, or the existing run of
    /// the same earlier fork.
    async fn write(self, graph: Option<&dyn AnyGraph>, state: Option<Channels>) -> Result<ClaimTarget> {
        let (shared, source) = (&self.shared, &self.source);
        let now = shared.clock.now();
        let head = shared.store.head(source).await?.ok_or_else(|| missing(source))?;
        check_copy(&head.facts).map_err(|error| error.with_run(source))?;
        let identity = match graph.map(AnyGraph::identity) {
            Some((workflow, ..)) if workflow != head.facts.workflow => {
                let message =
                    format!("the run belongs to the workflow `{}`, not `{workflow}`", head.facts.workflow);
                return Err(Error::new(ErrorKind::Invalid, message).with_run(source));
            }
            Some(identity) => identity,
            None => (head.facts.workflow.clone(), head.facts.version.clone(), head.facts.graph),
        };
        let plan = graph.map(AnyGraph::plan);
        let mut folded = origin(&*shared.store, source, &self.at, plan, !self.nodes.is_empty()).await?;
        let at = folded.last.head();
        folded.machine.branch_off(StartId::from_uuid(shared.ids.next(now)), plan.map(|plan| &**plan));
        let place = |error: Error| error.with_run(source).with_seq(at.seq);
        let config = self.given.clone().config(shared.limits.max_body).map_err(place)?;
        if let Some(config) = &config {
            folded.machine.configure(config.clone());
        }
        self.place(&mut folded, plan).map_err(place)?;
        self.change(&mut folded, graph, state).map_err(place)?;
        let text = codec::to_raw(&folded.channels)?;
        let id = match &self.id {
            Some(id) => id.clone()?,
            None => RunId::new(shared.ids.next(now).to_string())?,
        };
        let run = RunKey::new(source.tenant.clone(), id);
        let facts = self.facts(&head, at, (text.get(), config.as_ref()), identity, now)?;
        let mut log = shared.log_writer(&run);
        log.state_version = folded.version;
        if queue_name(&facts).is_some() {
            // No process has started it, like a start that waits for a slot.
            log.epoch = Epoch::NEVER;
        }
        let mut append = log.begin(&RecordEvent::Base, &folded.machine, text, true, facts.clone())?;
        append.records.iter().for_each(|record| folded.advance(record));
        for event in hold_for_queue(&folded.machine, Some(&facts), now) {
            folded.machine.absorb(&event)?;
            let options = RecordOptions { release: true, ..RecordOptions::default() };
            let record = log.record(&event, options, &folded.machine, || codec::to_raw(&folded.channels))?;
            folded.advance(&record);
            append.records.push(record);
        }
        match shared.committer.append(append, None).await {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Conflict => {
                return check_same_fork(shared, &run, &facts).await.map(ClaimTarget::from);
            }
            Err(error) => return Err(error.with_run(&run)),
        }
        if queue_name(&facts).is_some() {
            let (facts, head) = (Arc::new(facts.clone()), folded.last.head());
            let held = || RunChange::Held { run: run.clone(), facts: Arc::clone(&facts), head };
            shared.registry.publish(held);
        }
        let head = RunHead::after(run.clone(), Seq::new(0), &folded.last, false, facts);
        let tip = Some(Box::new(RunWriter::after_start(folded, log)));
        Ok(ClaimTarget { head, tip, unwritten: None })
    }

    /// Moves the new run to its first nodes, and checks that the graph contains these nodes.
    fn place(&self, folded: &mut ReplayedRun, plan: Option<&Arc<GraphPlan>>) -> Result<()> {
        let refuse = |kind, message: String| Err(Error::new(kind, message));
        let machine = &mut folded.machine;
        self.check_nodes(machine, plan)?;
        if !self.nodes.is_empty() {
            let names: BTreeSet<&str> = self.nodes.iter().map(String::as_str).collect();
            machine.begin_at(names);
        }
        let strangers = plan.map_or_else(Vec::new, |_| machine.unknown_nodes());
        if !strangers.is_empty() {
            let strangers: Vec<String> = strangers.iter().map(ToString::to_string).collect();
            let message = format!(
                "the graph has no node {}, where the run is; fork at another record, or name nodes with `start_at`",
                strangers.join(", ")
            );
            return refuse(ErrorKind::GraphChanged, message);
        }
        if machine.is_over() {
            let message = "the run had no node left to run at this record; fork at an earlier record, or name nodes with `start_at`";
            return refuse(ErrorKind::Invalid, message.into());
        }
        Ok(())
    }

    /// Checks that the first nodes of the new run exist in the graph, or without a graph in the log.
    fn check_nodes(&self, machine: &Machine, plan: Option<&Arc<GraphPlan>>) -> Result<()> {
        let knows = |name: &String| match plan {
            Some(plan) => plan.find(name).is_some(),
            None => machine.find(name).is_some(),
        };
        let Some(stranger) = self.nodes.iter().find(|name| !knows(name)) else { return Ok(()) };
        let names: Vec<&NodeName> = match plan {
            Some(plan) => plan.nodes.iter().map(|node| &node.name).collect(),
            None => machine.names().collect(),
        };
        let message = no_node(stranger, names.into_iter().map(NodeName::as_str));
        Err(Error::new(ErrorKind::NotFound, format!("{message}, so the fork cannot start at it")))
    }

    /// Sets the initial state of the new run.
    fn change(
        &self,
        folded: &mut ReplayedRun,
        graph: Option<&dyn AnyGraph>,
        state: Option<Channels>,
    ) -> Result<()> {
        let edit = |mut channels: Channels| {
            let apply = |patch: &Patch| channels.apply(&patch.clone().into_stored()?);
            self.edits.iter().try_for_each(apply).map_err(caller_error)?;
            Ok::<_, Error>(channels)
        };
        let Some(graph) = graph else {
            folded.channels = edit(std::mem::take(&mut folded.channels))?;
            return Ok(());
        };
        let mut channels = match state {
            Some(state) => state,
            None => graph.migrated(&folded.channels, folded.version)?,
        };
        // Check the stored state separately from the edited one.
        let as_stored = graph.rewritten(channels.clone())?;
        if self.edits.is_empty() {
            channels = as_stored;
        } else {
            channels = graph.rewritten(edit(channels)?).map_err(caller_error)?;
        }
        bring_forward(folded, graph, channels);
        Ok(())
    }

    /// Builds the facts of the new run. Its input identifies a repeated fork: the position, the initial state and the first nodes.
    fn facts(
        &self,
        head: &RunHead,
        at: HeadRef,
        (state, config): (&str, Option<&FanOutItem>),
        (workflow, version, graph): (WorkflowName, String, Fingerprint),
        now: Timestamp,
    ) -> Result<RunFacts> {
        let (source, nodes, state) = (&self.source, &self.nodes, in_order(state)?);
        let mut input = format!("{source} {} {} {nodes:?} {state}", at.seq, at.id);
        if let Some(config) = config {
            input.push_str(&format!("\nconfig {}", in_order(config.0.get())?));
        }
        let facts = RunFacts::new(workflow, version, graph, Fingerprint::of(input.as_bytes()), now)?;
        let mut labels = Labels::default();
        refuse_reserved(&self.labels).map_err(|error| error.with_run(source))?;
        // A fork has no parent: the source's parent does not know it. For a queue it needs the same tags, and counts as a start of its own.
        let start =
            queue_name(&head.facts).map(|_| (QUEUE_START.to_owned(), new_queue_start(&self.shared, now)));
        let is_dropped = |key: &str| RESERVED.contains(&key) && !(key == TAGS && start.is_some());
        let is_kept = |key: &str| !is_dropped(key) && !self.labels.iter().any(|(new, _)| new == key);
        let kept = head.facts.labels.iter().filter(|(key, _)| is_kept(key));
        kept.map(|(key, value)| (key.to_owned(), value.to_owned()))
            .chain(start.clone())
            .chain(self.labels.iter().cloned())
            .try_for_each(|(key, value)| labels.insert(key, value))?;
        let facts = facts.with_labels(labels).with_parent(Parent { run: source.clone(), at });
        match &head.facts.user {
            Some(user) => facts.with_user(user.clone()),
            None => Ok(facts),
        }
    }
}

impl<S: State> DriveRequest<S> {
    /// Replaces the state of the source as the initial state of the new run. Edits are applied to this state.
    pub fn state(mut self, state: S) -> Self {
        self.state = Some(state);
        self
    }

    /// Sets when the new run writes checkpoints. By default it writes a checkpoint after every node.
    pub fn checkpoints(mut self, policy: CheckpointPolicy) -> Self {
        self.policy = policy;
        self
    }

    async fn fork(self) -> Result<RunHandle<S>> {
        let Self { fork, graph, state, policy } = self;
        let (shared, source) = (Arc::clone(&fork.shared), fork.source.clone());
        // Check this first: write nothing that this process could not drive.
        shared.takes(&source)?;
        let encoded = |state: S| {
            let text = state.to_channels_json()?;
            reread::<S>(text.get(), graph.schema()).map_err(|error| error.with_run(&source))?;
            Channels::from_json(text.get())
        };
        let state = state.map(encoded).transpose()?;
        let known = fork.write(Some(&graph), state).await?;
        let (run, facts) = (known.head.run.clone(), known.head.facts.clone());
        match resume(&shared, &graph, &run, policy, &ClaimOptions::default(), Some(known), None).await {
            // The fork exists already, and is active or has ended.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::WrongStatus) => {
                Ok(RunHandle::new(shared, graph, run, OutcomeSource::Elsewhere).of_start(&facts))
            }
            result => result,
        }
    }
}

/// Replays the source up to the position. If the source is cancelled, the latest position is the last record before the cancellation, unless the fork
/// sets its first nodes.
async fn origin(
    store: &dyn CheckpointStore,
    source: &RunKey,
    at: &Position,
    plan: Option<&Arc<GraphPlan>>,
    placed: bool,
) -> Result<ReplayedRun> {
    let at = at.find(store, source).await?;
    let mut folded = folded_at(store, source, at, plan).await?;
    while folded.machine.status() == RunStatus::Cancelled && !placed {
        let Some(before) = folded.last.seq.get().checked_sub(1) else { break };
        folded = match folded_at(store, source, At::Seq(Seq::new(before)), plan).await {
            Ok(folded) => folded,
            // Pruned: its frontier is unknown, and the error says how to proceed.
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        };
    }
    Ok(folded)
}

/// Checks that an existing run is the same fork, and returns its head.
async fn check_same_fork(shared: &RuntimeInner, run: &RunKey, facts: &RunFacts) -> Result<RunHead> {
    let head = shared.store.head(run).await?.ok_or_else(|| {
        Error::new(ErrorKind::Unavailable, "another writer is creating or purging the run; retry")
            .with_run(run)
    })?;
    let there = &head.facts;
    if there.workflow == facts.workflow && there.input == facts.input && there.parent == facts.parent {
        return Ok(head);
    }
    let message = "another run, which is not this fork, has this id; use another id";
    Err(Error::new(ErrorKind::AlreadyExists, message).with_run(run))
}

impl IntoFuture for ForkRequest {
    type Output = Result<RunKey>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(async move { self.write(None, None).await.map(|known| known.head.run) }))
    }
}

impl<S: State> IntoFuture for DriveRequest<S> {
    type Output = Result<RunHandle<S>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(self.fork()))
    }
}

impl std::fmt::Debug for ForkRequest {
    /// Formats the request without values of the state.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForkRequest")
            .field("source", &self.source)
            .field("at", &self.at)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl<S: State> std::fmt::Debug for DriveRequest<S> {
    /// Formats the request without values of the state.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DriveRequest")
            .field("fork", &self.fork)
            .field("workflow", self.graph.name())
            .finish_non_exhaustive()
    }
}
