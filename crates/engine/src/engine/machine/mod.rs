//! The state machine of a run: its data, the only method that changes it, and its accessors.

mod activation_ends;
mod answer_migration;
mod answers;
mod forks;
mod memo;
mod signals;
mod single_step;
mod snapshot;
mod unknown_outcomes;

use crate::claim::StartId;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::frontier::{Activation, ActivationKey, Frontier, Local, Token};
use super::history::EndedActivation;
use super::inbox::RunInbox;
use super::nodes::{NodeState, NodeTable};
use super::outbox::OutboxState;
use super::progress::RunProgress;
use super::questions::ClosedQuestion;
use super::replan::Replan;
use super::run_state::{PauseReasons, RunState};
use crate::clock::Timestamp;
use crate::compact::small_map::FewMap;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::Failure;
use crate::graph::liveness::Liveness;
use crate::graph::node_set::NodeIx;
use crate::graph::plan::GraphPlan;
use crate::id::{Fingerprint, NodeName, RunId, RunKey, Seq, Visit};
use crate::record::RunStatus;
use crate::record::body::{
    ClaimRecord, FanOutItem, FirstMessage, Intent, NodeDone, RecordEvent, StartRecord, StatusChange,
};
use crate::record::child::ActivationChild;
use crate::record::node_data::Prints;
use crate::record::parent_link::{ChildRef, start_of};
use crate::record::pause::{ChildPolls, IdleRecord, MessageRecord};
use crate::state::Secrets;

/// A run in its state after one record, as a pure state machine.
///
/// Only [`absorb`](Self::absorb) applies events to a run. Some other functions turn the machine into another one: `branch_off` and `begin_at` into
/// the machine of a new run, `bring_forward` and `renumber_pins` into another form of the same run.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The start id of the run, which distinguishes it from other runs with the same id.
    start_id: StartId,
    nodes: NodeTable,
    frontier: Frontier,
    standing: RunState,
    progress: RunProgress,
    inbox: RunInbox,
    /// The outbox messages of the run. `None` until the first message.
    letters: Option<Box<OutboxState>>,
    /// Records that a prune must keep, together with all later ones.
    pins: BTreeSet<Seq>,
    /// The last answered questions.
    answered: Vec<ClosedQuestion>,
    /// The configuration of the run.
    config: Option<FanOutItem>,
    /// The channels that views hide, as any process declared them.
    secrets: Secrets,
    /// The number of runs that the nodes of this run have started or were about to start.
    children_started: u64,
    /// The activations that the last event created, in order.
    fresh: Vec<ActivationKey>,
}

impl Machine {
    /// Creates the machine of a run without any record. Without a plan, the machine can replay a log, but cannot make decisions.
    pub fn new(plan: Option<Arc<GraphPlan>>) -> Self {
        let nodes = NodeTable::new(plan);
        Self {
            start_id: StartId::NONE,
            frontier: Frontier::new(nodes.idle()),
            nodes,
            standing: RunState::new(),
            progress: RunProgress::default(),
            inbox: RunInbox::default(),
            letters: None,
            pins: BTreeSet::new(),
            answered: Vec::new(),
            config: None,
            secrets: Secrets::default(),
            children_started: 0,
            // Mostly one activation: a list that grows by itself starts with room for four.
            fresh: Vec::with_capacity(1),
        }
    }

    /// Applies an event to the machine. This is the only way in which a run changes. Returns the new activations in order, which the driver must
    /// start.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the event is not possible after the earlier events. The machine must then not be used any more.
    pub fn absorb(&mut self, event: &RecordEvent) -> Result<&[ActivationKey]> {
        self.fresh.clear();
        self.progress.count_event(event);
        match event {
            RecordEvent::Start(started) => self.absorb_start(started)?,
            RecordEvent::Node(nodes) => nodes.done.iter().try_for_each(|done| self.end(done))?,
            RecordEvent::Attempt(attempt) => self.absorb_attempt(attempt)?,
            RecordEvent::Intent(intent) => self.absorb_intent(intent)?,
            RecordEvent::Step(step) => self.absorb_step(step)?,
            RecordEvent::Status(change) => self.absorb_status(change)?,
            RecordEvent::Signal(signal) => self.absorb_signal(signal)?,
            RecordEvent::Claim(ClaimRecord { settled, graph, secret, .. }) => {
                self.secrets.add(secret);
                if let Some(graph) = graph {
                    self.nodes.record_graph(graph);
                }
                self.mark_intents_unknown();
                self.standing.wake_up();
                self.begin(settled, 0, &[])?;
            }
            RecordEvent::Release(released) => {
                self.standing.become_idle(self.standing.status(), released.receiving, released.wake);
                self.standing.set_child_polls(released.looks);
                if released.wake.is_none() {
                    self.standing.allow_stop();
                }
                for Intent { node, visit } in &released.begun {
                    let key = (self.nodes.local(node), *visit);
                    match self.frontier.activation_mut(&key) {
                        Some(activation) => activation.intent = true,
                        None => self.frontier.mark_begun(key),
                    }
                }
                self.note_receivers(&released.receivers)?;
            }
            RecordEvent::Edit(_) | RecordEvent::Base => {}
        }
        Ok(&self.fresh)
    }

    /// Applies the end of one activation, like [`absorb`](Self::absorb) of a record with only this end. It is for an end whose record is not written
    /// yet.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`absorb`](Self::absorb).
    pub fn absorb_end(&mut self, done: &NodeDone) -> Result<&[ActivationKey]> {
        self.fresh.clear();
        self.end(done)?;
        Ok(&self.fresh)
    }

    /// Applies an end like [`absorb_end`](Self::absorb_end), but without the fast path for simple cases. Tests compare both results.
    pub fn absorb_end_in_general(&mut self, done: &NodeDone) -> Result<&[ActivationKey]> {
        self.fresh.clear();
        let key = (self.nodes.known(&done.node)?, done.visit);
        self.end_in_general(key, done)?;
        Ok(&self.fresh)
    }

    fn absorb_start(&mut self, started: &StartRecord) -> Result<()> {
        if self.progress.started() > 0 {
            return Err(Error::new(ErrorKind::Corrupt, "the log starts the run a second time"));
        }
        let StartRecord { entry, graph, start_id, config, messages, secret, .. } = started;
        self.start_id = *start_id;
        self.config.clone_from(config);
        self.secrets.clone_from(secret);
        for FirstMessage { body, at } in messages {
            self.inbox.push(|number| MessageRecord { number, body: Arc::clone(&body.0), by: None, at: *at });
        }
        self.nodes.record_graph(graph);
        let entry = self.nodes.local(entry);
        self.activate(entry, None, Vec::new());
        Ok(())
    }

    fn absorb_status(&mut self, change: &StatusChange) -> Result<()> {
        match change {
            StatusChange::Interrupted => self.standing.interrupt(),
            StatusChange::Failed(failure) => self.standing.fail(failure.clone()),
            StatusChange::Cancelled => {
                self.standing.cancelled();
                self.clear_frontier();
            }
            StatusChange::Asked(asking) => return self.absorb_asked(asking),
            StatusChange::Expired(expired) => return self.absorb_expired(expired),
            StatusChange::Rested(IdleRecord { status, receiving, wake, receivers }) => {
                self.standing.become_idle(*status, *receiving, *wake);
                self.note_receivers(receivers)?;
            }
        }
        Ok(())
    }

    fn clear_frontier(&mut self) {
        self.frontier.clear(self.nodes.idle());
        self.standing.become_idle(self.standing.status(), false, None);
    }

    fn in_flight_mut(&mut self, node: &NodeName, visit: Visit) -> Result<&mut Activation> {
        let key = (self.nodes.known(node)?, visit);
        self.frontier.activation_mut(&key).ok_or_else(|| not_in_flight(node, visit))
    }
}

/// Methods that read the machine.
impl Machine {
    pub fn start_id(&self) -> StartId {
        self.start_id
    }

    /// Returns the configuration of the run, as JSON text.
    pub fn config(&self) -> Option<&FanOutItem> {
        self.config.as_ref()
    }

    /// Returns the secret channels, whose values views hide.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Returns the secret channels of the graph that no record names yet.
    pub fn new_secrets(&self) -> Secrets {
        self.plan().map_or_else(Secrets::default, |plan| plan.secrets.without(&self.secrets))
    }

    pub fn status(&self) -> RunStatus {
        self.standing.status()
    }

    pub fn failure(&self) -> Option<&Failure> {
        self.standing.failure()
    }

    /// Returns the reason of the cancellation, if one was requested.
    pub fn cancel(&self) -> Option<&str> {
        self.standing.cancel()
    }

    /// Returns whether an unfinished activation runs once more (a cleanup) if the run is cancelled. The graph decides this, or without a graph the
    /// memos of the activation.
    pub fn requires_cleanup_of(&self, key: ActivationKey) -> bool {
        let node = self.plan().zip(self.index(key.0)).map(|(plan, index)| plan.node(index));
        let is_noted =
            || self.in_flight().get(&key).is_some_and(|activation| activation.memos.require_cleanup());
        node.map_or_else(is_noted, |node| node.cleans_up)
    }

    /// Returns whether any unfinished activation runs once more (a cleanup) if the run is cancelled.
    pub fn requires_cleanup(&self) -> bool {
        self.in_flight().keys().any(|&key| self.requires_cleanup_of(key))
    }

    /// Returns the reason of the pause, if the run is paused.
    pub fn paused(&self) -> Option<&str> {
        self.standing.paused()
    }

    /// Returns whether the run is paused by its parent, if `parent` is true, or by itself, if `parent` is false.
    pub fn is_paused_by(&self, parent: bool) -> bool {
        let said =
            |pauses: &PauseReasons| if parent { pauses.of_parent.is_some() } else { pauses.own.is_some() };
        self.standing.pauses().is_some_and(said)
    }

    /// Returns whether the run was ever paused.
    pub fn was_paused(&self) -> bool {
        self.standing.pauses().is_some()
    }

    /// Returns whether the idle run continues when it receives a message.
    pub fn is_receiving(&self) -> bool {
        self.standing.is_receiving()
    }

    /// Returns the activations that waited for a message when the run last became idle, with the names of their waits, if there were several. The
    /// longest wait comes first.
    pub fn receivers(&self) -> &[(ActivationKey, String)] {
        self.standing.receivers()
    }

    /// Returns the time at which the idle run continues if no event arrives earlier.
    pub fn wake(&self) -> Option<Timestamp> {
        self.standing.wake()
    }

    /// Returns when the idle run next polls its children.
    pub fn child_polls(&self) -> Option<ChildPolls> {
        self.standing.child_polls()
    }

    /// Returns the number of runs that the nodes have started or were about to start, including detached runs.
    pub fn children_started(&self) -> u64 {
        self.children_started
    }

    /// Lists the children of the unfinished activations, each with its last start.
    pub fn children(&self) -> impl Iterator<Item = (ActivationKey, ActivationChild)> + '_ {
        let of = |(&key, activation): (&ActivationKey, &Activation)| {
            activation.memos.children().into_iter().map(move |child| (key, child))
        };
        self.in_flight().iter().flat_map(of)
    }

    /// Lists the children of the unfinished activations, and of activations that a retry would start again.
    pub fn all_children(&self) -> impl Iterator<Item = (ActivationKey, ActivationChild)> + '_ {
        let of = |(key, activation): &(ActivationKey, Activation)| {
            let key = *key;
            activation.memos.children().into_iter().map(move |child| (key, child))
        };
        self.children().chain(self.stopped_at().iter().flat_map(of))
    }

    /// Returns the child with this run id, even if the id belongs to an earlier start of the child.
    pub fn child_that_is(&self, run: &RunId) -> Option<(ActivationKey, ActivationChild)> {
        let in_flight = self.in_flight().iter().map(|(&key, activation)| (key, activation));
        let stopped = self.stopped_at().iter().map(|(key, activation)| (*key, activation));
        in_flight
            .chain(stopped)
            .find_map(|(key, activation)| Some((key, activation.memos.child_that_is(run)?)))
    }

    /// Returns the identity of a child of an activation of `run`, the run of this machine.
    pub fn child_ref(&self, run: &RunKey, (node, visit): ActivationKey, child: &ActivationChild) -> ChildRef {
        ChildRef {
            run: RunKey::new(run.tenant.clone(), child.note.run.clone()),
            parent: run.run.clone(),
            start: start_of(self.start_id, self.name(node), visit, &child.name),
        }
    }

    /// Returns the messages that no node has taken, in order.
    pub fn inbox(&self) -> &VecDeque<MessageRecord> {
        self.inbox.waiting()
    }

    /// Returns the number of messages that were sent to the run.
    pub fn messages(&self) -> u64 {
        self.inbox.sent_count()
    }

    /// Returns the outbox messages of the run.
    pub fn letters(&self) -> Option<&OutboxState> {
        self.letters.as_deref()
    }

    /// Returns whether any outbox message is undelivered.
    pub fn is_delivering(&self) -> bool {
        self.letters().is_some_and(|letters| !letters.waiting().is_empty())
    }

    /// Returns the pinned records. A prune must keep each of them and all later records.
    pub fn pins(&self) -> &BTreeSet<Seq> {
        &self.pins
    }

    /// Returns the last answered questions.
    pub(super) fn closed_questions(&self) -> &[ClosedQuestion] {
        &self.answered
    }

    /// Returns the number of ended activations.
    pub fn ended_count(&self) -> u64 {
        self.progress.ended_count()
    }

    /// Returns the number of created activations.
    pub fn started(&self) -> u64 {
        self.progress.started()
    }

    pub fn history(&self) -> &[EndedActivation] {
        self.progress.history()
    }

    /// Returns the latest replans (deliberate returns to a node), with their reasons.
    pub fn replans(&self) -> &VecDeque<Replan> {
        self.progress.replans()
    }

    /// Returns the number of claims since the last progress.
    pub fn claims_without_progress(&self) -> u32 {
        self.progress.claims_without_progress()
    }

    pub fn in_flight(&self) -> &FewMap<ActivationKey, Activation> {
        self.frontier.in_flight()
    }

    /// Returns whether several activations of a node are in flight.
    pub(super) fn has_several_in_flight(&self, node: Local) -> bool {
        self.in_flight().range((node, Visit::new(0))..=(node, Visit::new(u32::MAX))).nth(1).is_some()
    }

    /// Returns the activations that failed the run. A retry starts them again.
    pub fn stopped_at(&self) -> &[(ActivationKey, Activation)] {
        self.frontier.stopped_at()
    }

    pub fn tokens(&self) -> &FewMap<Local, Vec<Token>> {
        self.frontier.tokens()
    }

    /// Returns the unfinished part of the run.
    pub(super) fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// Returns whether an ended activation overwrote a channel after an unfinished activation had started.
    pub fn has_overwrites(&self) -> bool {
        !self.frontier.overwrites().is_empty()
    }

    /// Returns whether this activation, which does not exist yet, had already started according to records that the store lost.
    pub fn has_begun(&self, key: &ActivationKey) -> bool {
        self.frontier.begun().contains(key)
    }

    /// Returns whether every activation has ended, no token waits at a join, and no failed activation stopped the run.
    pub fn is_over(&self) -> bool {
        self.frontier.is_over()
    }

    /// Returns the nodes with `Join::AtLeast` that have run in the current round of their loop.
    pub(super) fn spent(&self) -> impl Iterator<Item = NodeIx> + '_ {
        self.nodes.spent()
    }

    /// Gives the liveness to the caller for tentative changes. The caller must return it unchanged. Returns `None` without a plan.
    pub(super) fn lend_live(&mut self) -> Option<Liveness> {
        self.frontier.lend_live()
    }

    pub(super) fn return_live(&mut self, live: Liveness) {
        self.frontier.return_live(live);
    }

    /// Returns which nodes are live, for the join rule. Returns `None` without a plan.
    pub fn live(&self) -> Option<&Liveness> {
        self.frontier.live()
    }

    pub fn plan(&self) -> Option<&Arc<GraphPlan>> {
        self.nodes.plan()
    }

    /// Returns the machine's data on each node, in the order of their numbers.
    pub fn nodes(&self) -> &[NodeState] {
        self.nodes.states()
    }

    pub fn node(&self, node: Local) -> &NodeState {
        &self.nodes.states()[node as usize]
    }

    /// Returns the machine's number of a node.
    pub fn find(&self, name: &str) -> Option<Local> {
        self.nodes.find(name)
    }

    /// Returns the names of all nodes, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = &NodeName> + '_ {
        self.nodes.names()
    }

    /// Returns the name of a node.
    pub fn name(&self, node: Local) -> &NodeName {
        self.nodes.name(node)
    }

    /// Returns the graph's index of a node, if the graph has it.
    pub fn index(&self, node: Local) -> Option<crate::graph::node_set::NodeIx> {
        self.nodes.index(node)
    }

    /// Returns the fingerprint of a node in the graph that last drove the run.
    pub(crate) fn print(&self, node: Local) -> Option<Fingerprint> {
        self.nodes.print(node)
    }

    /// Returns the fingerprints of the plan's nodes, if another graph last drove the run.
    pub fn changed_graph(&self) -> Option<Arc<Prints>> {
        self.nodes.changed_graph()
    }

    /// Lists the unfinished nodes that the plan does not contain or contains in another form, each with the difference.
    pub fn misfits(&self) -> Vec<(NodeName, &'static str)> {
        let stopped = self.stopped_at().iter().map(|((node, _), _)| *node);
        let mut frontier: Vec<Local> = self.in_flight().keys().map(|key| key.0).chain(stopped).collect();
        frontier.extend(self.tokens().keys());
        frontier.sort_unstable();
        frontier.dedup();
        let named = |node| self.nodes.plan_difference(node).map(|why| (self.name(node).clone(), why));
        frontier.into_iter().filter_map(named).collect()
    }
}

fn not_in_flight(node: &NodeName, visit: Visit) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the log names visit {visit}, which was not active"))
        .with_node(node)
}
