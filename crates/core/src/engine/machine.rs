//! The machine itself: its state, and the one way it changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use super::frontier::{Activation, ActivationKey, Local, Token};
use super::history::{Ended, Outcome};
use super::memo::ask_anew;
use super::naming::never_reached;
use super::questions::Answered;
use super::replan::Replan;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::few_map::FewMap;
use crate::graph::liveness::Liveness;
use crate::graph::plan::Plan;
use crate::graph::prints::Prints;
use crate::id::{NodeName, Seq, Visit};
use crate::record::RunStatus;
use crate::record::body::{
    Claimed, End, Event, Failure, Fired, Intent, NodeDone, Settled, Signal, SignalKind, Start, Started,
    StatusChange,
};
use crate::record::pause::{Left, Message, Rested};

/// The most tokens that memory is kept for: a wide join must not hold its memory for the rest of the run.
const SPARE: usize = 8;

/// What the machine knows of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeState {
    /// How many activations were made.
    pub(crate) visits: u32,
    /// How the last one that ended did.
    pub(crate) succeeded: Option<bool>,
    /// Whether it will never run.
    pub(crate) skipped: bool,
    /// Whether it ran with as many tokens as it counts, and its round goes on.
    pub(crate) spent: bool,
    /// How often the run returned to it as a retry target.
    pub(crate) returned: u32,
    /// How often the run went back to it on purpose.
    pub(crate) replans: u32,
    /// How many of its visits ended a conversation without a message.
    pub(crate) left: u32,
}

/// A channel that was overwritten, by whom and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overwrite {
    pub(crate) tick: u64,
    pub(crate) node: Local,
    pub(crate) visit: Visit,
}

/// A run as it is after some record.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// The nodes that only the log knows, which are numbered after those of the plan.
    pub(super) strangers: Vec<NodeName>,
    pub(super) strange: HashMap<NodeName, Local>,
    /// What each node was like in the graph that the run was last driven with.
    pub(super) graph: Arc<Prints>,
    pub(crate) nodes: Vec<NodeState>,
    /// What tells this life of the run from another of the same name.
    pub(crate) life: Uuid,
    pub(crate) status: RunStatus,
    pub(crate) failure: Option<Failure>,
    /// Why somebody asked the run to stop.
    pub(crate) cancel: Option<String>,
    /// Why somebody asked the run to stop until it is let go on.
    pub(crate) paused: Option<String>,
    /// Messages that nobody has taken, in order.
    pub(crate) inbox: VecDeque<Message>,
    /// How many messages were sent.
    pub(crate) messages: u64,
    /// Whether a message moves the run, which is at rest.
    pub(crate) receiving: bool,
    /// Who waited for a message when the run last rested on several, by the names of their waits; whoever had waited longest first.
    pub(crate) receivers: Vec<(ActivationKey, String)>,
    /// When time moves the run, which is at rest.
    pub(crate) wake: Option<Timestamp>,
    /// Activations that have ended, behind which somebody must agree to go on.
    pub(crate) holds: BTreeSet<ActivationKey>,
    /// How often the run was claimed since it last made any progress.
    pub(crate) fruitless: u32,
    /// Records that are not to be pruned, with what came after them.
    pub(crate) pins: BTreeSet<Seq>,
    /// Questions that were answered, the last ones.
    pub(crate) answered: Vec<Answered>,
    /// Activations to come that must not be repeated and had begun, in records that the store lost: asked about once they are in line.
    pub(crate) begun: BTreeSet<ActivationKey>,
    /// How many activations have ended.
    pub(crate) tick: u64,
    /// How many activations were made.
    pub(crate) started: u64,
    pub(crate) in_flight: FewMap<ActivationKey, Activation>,
    /// The activation that failed the run, to be tried again on request.
    pub(crate) stopped_at: Vec<(ActivationKey, Activation)>,
    pub(crate) tokens: FewMap<Local, Vec<Token>>,
    /// Overwrites that an activation in flight cannot have seen.
    pub(crate) overwrites: BTreeMap<String, Overwrite>,
    pub(crate) history: Vec<Ended>,
    /// The latest replans, with their reasons.
    pub(crate) replans: VecDeque<Replan>,
    /// Activations that were made by the last event, in order: what the driver starts next.
    pub(crate) fresh: Vec<ActivationKey>,
    /// The emptied inputs of the activation that ended last: the next tokens need no memory of their own.
    spare: Vec<Token>,
    pub(crate) plan: Option<Arc<Plan>>,
    /// What is live, for the join rule; derived from the rest, kept only with a plan.
    pub(crate) live: Option<Liveness>,
}

impl Machine {
    /// Makes the machine of a run without any record. Without a plan it can fold a log, but decide nothing.
    pub(crate) fn new(plan: Option<Arc<Plan>>) -> Self {
        let nodes = plan.as_ref().map_or(0, |plan| plan.nodes.len());
        Self {
            strangers: Vec::new(),
            strange: HashMap::new(),
            graph: Arc::default(),
            nodes: vec![NodeState::default(); nodes],
            life: Uuid::nil(),
            status: RunStatus::InProgress,
            failure: None,
            cancel: None,
            paused: None,
            inbox: VecDeque::new(),
            messages: 0,
            receiving: false,
            receivers: Vec::new(),
            wake: None,
            holds: BTreeSet::new(),
            fruitless: 0,
            pins: BTreeSet::new(),
            answered: Vec::new(),
            begun: BTreeSet::new(),
            tick: 0,
            started: 0,
            in_flight: FewMap::default(),
            stopped_at: Vec::new(),
            tokens: FewMap::default(),
            overwrites: BTreeMap::new(),
            history: Vec::new(),
            replans: VecDeque::new(),
            fresh: Vec::new(),
            spare: Vec::new(),
            live: plan.as_ref().map(|plan| plan.topology.liveness()),
            plan,
        }
    }

    /// Tells whether nothing is in flight, nothing waits, and no activation stopped the run.
    pub(crate) fn is_over(&self) -> bool {
        self.in_flight.is_empty() && self.tokens.is_empty() && self.stopped_at.is_empty()
    }

    /// Takes in what happened: the only way a machine changes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the event does not follow from what was before. The machine is then of no further use.
    pub(crate) fn absorb(&mut self, event: &Event) -> Result<()> {
        self.fresh.clear();
        match event {
            Event::Claim(_) => self.fruitless = self.fruitless.saturating_add(1),
            // A retry that was written down is no progress: the process may well end at the next one again. Nor is a rest: a claim that
            // comes to nothing else must not be made for ever.
            Event::Attempt(_) | Event::Intent(_) | Event::Release(_) | Event::Base => {}
            Event::Status(StatusChange::Interrupted | StatusChange::Rested(_)) => {}
            _ => self.fruitless = 0,
        }
        match event {
            Event::Start(_) if self.started > 0 => {
                Err(Error::new(ErrorKind::Corrupt, "the log starts a run that has been started"))
            }
            Event::Start(Started { entry, graph, life, .. }) => {
                self.life = *life;
                self.note_graph(graph);
                let entry = self.local(entry);
                self.activate(entry, None, Vec::new());
                Ok(())
            }
            Event::Node(nodes) => nodes.done.iter().try_for_each(|done| self.absorb_done(done)),
            Event::Attempt(attempt) => self.absorb_attempt(attempt),
            Event::Intent(intent) => self.absorb_intent(intent),
            Event::Step(step) => self.absorb_step(step),
            Event::Status(change) => self.absorb_status(change),
            Event::Signal(signal) => self.absorb_signal(signal),
            Event::Claim(Claimed { settled, graph, .. }) => {
                if let Some(graph) = graph {
                    self.note_graph(graph);
                }
                self.doubt_intents();
                self.wake_up();
                self.settle(settled, 0, &[])
            }
            Event::Release(released) => {
                (self.receiving, self.wake) = (released.receiving, released.wake);
                for Intent { node, visit } in &released.begun {
                    let key = (self.local(node), *visit);
                    match self.in_flight.get_mut(&key) {
                        Some(activation) => activation.intent = true,
                        None => drop(self.begun.insert(key)),
                    }
                }
                self.note_receivers(&released.receivers)
            }
            Event::Edit(_) | Event::Base => Ok(()),
        }
    }

    fn absorb_status(&mut self, change: &StatusChange) -> Result<()> {
        match change {
            StatusChange::Interrupted => self.status = RunStatus::Interrupted,
            StatusChange::Failed(failure) => self.fail(failure.clone()),
            StatusChange::Cancelled => {
                self.status = RunStatus::Cancelled;
                self.clear_frontier();
            }
            StatusChange::Asked(asking) => return self.absorb_asked(asking),
            StatusChange::Expired(expired) => return self.absorb_expired(expired),
            StatusChange::Rested(Rested { status, receiving, wake, receivers }) => {
                (self.status, self.receiving, self.wake) = (*status, *receiving, *wake);
                self.note_receivers(receivers)?;
            }
        }
        Ok(())
    }

    /// Lets a run at rest go on, unless it is paused or has ended.
    pub(super) fn wake_up(&mut self) {
        if self.status.is_finished() || self.paused.is_some() {
            return;
        }
        self.status = RunStatus::InProgress;
        (self.receiving, self.wake) = (false, None);
    }

    /// Takes in one activation that ended.
    pub(crate) fn absorb_done(&mut self, done: &NodeDone) -> Result<()> {
        // Mostly it is the only one.
        let first = self.in_flight.first().map(|(&(node, _), _)| node);
        let node = match first.filter(|&node| *self.name(node) == done.node) {
            Some(node) => node,
            None => self.known(&done.node)?,
        };
        let key = (node, done.visit);
        if self.step_on(key, done) {
            return Ok(());
        }
        let mut activation =
            self.in_flight.remove(&key).ok_or_else(|| not_in_flight(&done.node, done.visit))?;
        if done.end.is_none() && activation.inputs.capacity() <= SPARE {
            self.spare = std::mem::take(&mut activation.inputs);
            self.spare.clear();
        }
        if let (Some(index), Some(live)) = (self.index(node), &mut self.live) {
            live.finished(index);
        }
        self.tick += 1;
        self.fruitless = 0;
        let succeeded = done.failure.is_none();
        let outcome = if succeeded { Outcome::Succeeded } else { Outcome::Failed };
        self.nodes[node as usize].succeeded = Some(succeeded);
        self.nodes[node as usize].left += u32::from(Left::is(done.output.as_deref()));
        self.history.push(Ended { node, visit: done.visit, outcome });
        for fired in &done.fired {
            self.fire(node, done, fired);
        }
        for name in &done.dropped {
            let to = self.known(name)?;
            self.drop_last(node, to);
        }
        self.note_replans(done);
        for name in &done.skipped {
            let skipped = self.local(name);
            self.nodes[skipped as usize].skipped = true;
        }
        for channel in &done.wrote {
            self.overwrites.insert(channel.clone(), Overwrite { tick: self.tick, node, visit: done.visit });
        }
        self.settle(&done.settled, node, &done.fired)?;
        if self.in_flight.is_empty() {
            self.overwrites.clear();
        }
        if done.hold {
            self.holds.insert(key);
        }
        match &done.end {
            None => {}
            Some(End::Completed) => self.status = RunStatus::Completed,
            Some(End::Failed(failure)) => {
                // A failure that an edge took is dealt with: what is left is the token it sent.
                if !succeeded && done.fired.is_empty() {
                    let activation = Activation { retry_at: None, ..activation };
                    self.stopped_at.push((key, activation.stopped(failure)));
                }
                self.fail(failure.clone());
            }
        }
        Ok(())
    }

    /// Takes in the usual step of a run without branches: the only activation ended well, and its token starts the next.
    ///
    /// It comes to what [`absorb_done`](Self::absorb_done) does in general. Returns false if there is more to it.
    fn step_on(&mut self, key: ActivationKey, done: &NodeDone) -> bool {
        let [fired] = &*done.fired else { return false };
        let usual = fired.is_plain() && done.has_no_more_than_fired();
        let alone = self.in_flight.len() == 1 && self.tokens.is_empty() && self.in_flight.contains_key(&key);
        let alone = alone && self.begun.is_empty();
        let (true, true, Some(from)) = (usual, alone, self.index(key.0)) else { return false };
        let Some(to) = self.plan.as_ref().and_then(|plan| plan.find_after(from, &fired.to)) else {
            return false;
        };
        let Some(mut activation) = self.in_flight.remove(&key) else { return false };
        self.tick += 1;
        self.fruitless = 0;
        self.nodes[key.0 as usize].succeeded = Some(true);
        self.nodes[key.0 as usize].left += u32::from(Left::is(done.output.as_deref()));
        self.history.push(Ended { node: key.0, visit: key.1, outcome: Outcome::Succeeded });
        if let Some(live) = &mut self.live {
            live.stepped(from, to);
        }
        let mut inputs = std::mem::take(&mut activation.inputs);
        inputs.clear();
        if inputs.capacity() > SPARE {
            inputs = Vec::new();
        }
        inputs.push(Token { from: key.0, visit: key.1, output: done.output.clone(), item: None });
        let state = &mut self.nodes[to.as_usize()];
        state.visits += 1;
        state.skipped = false;
        let next = (to.get(), Visit::new(state.visits));
        self.started += 1;
        self.in_flight.insert(next, Activation::new(self.tick, None, inputs));
        self.fresh.push(next);
        true
    }

    fn absorb_signal(&mut self, signal: &Signal) -> Result<()> {
        match &signal.what {
            SignalKind::Respond { question, resolution } => {
                self.absorb_resolution(question, resolution, signal)
            }
            SignalKind::Answer { question, answer } => {
                self.absorb_answer(question, answer, signal.by.as_ref(), signal.at)
            }
            SignalKind::Message { body } => {
                let (body, by) = (Arc::clone(body), signal.by.clone());
                self.inbox.push_back(Message { number: self.messages, body, by, at: signal.at });
                self.messages += 1;
                if self.receiving {
                    self.wake_up();
                }
                Ok(())
            }
            SignalKind::Pin { seq } => {
                self.pins.insert(*seq);
                Ok(())
            }
            SignalKind::Unpin { seq } => {
                self.pins.remove(seq);
                Ok(())
            }
            SignalKind::Pause { reason } => {
                self.paused = Some(reason.clone());
                if self.status == RunStatus::AwaitingInput {
                    self.status = RunStatus::Interrupted;
                }
                Ok(())
            }
            SignalKind::Unpause => {
                self.paused = None;
                self.wake_up();
                if self.status == RunStatus::InProgress && self.is_over() {
                    // Its last node ended during the pause.
                    self.status = RunStatus::Completed;
                }
                Ok(())
            }
            SignalKind::Cancel { reason } => {
                self.cancel = Some(reason.clone());
                Ok(())
            }
            SignalKind::Retry { settled } => {
                self.status = RunStatus::InProgress;
                self.failure = None;
                self.in_flight.values_mut().for_each(|activation| ask_anew(&mut activation.memos));
                for (key, mut activation) in std::mem::take(&mut self.stopped_at) {
                    ask_anew(&mut activation.memos);
                    self.insert(key, activation.tried_again());
                }
                self.settle(settled, 0, &[])
            }
        }
    }

    /// Puts the tokens of a fired edge at its target.
    fn fire(&mut self, from: Local, done: &NodeDone, fired: &Fired) {
        let to = self.find_after(from, &fired.to).unwrap_or_else(|| self.local(&fired.to));
        if fired.back {
            self.nodes[to as usize].returned += 1;
        }
        let token = |item| Token { from, visit: done.visit, output: done.output.clone(), item };
        match &fired.items {
            None => self.wait(to, token(None)),
            Some(items) => items.iter().for_each(|item| self.wait(to, token(Some(Arc::clone(&item.0))))),
        }
    }

    /// Drops the tokens that the node has just put at the target.
    fn drop_last(&mut self, from: Local, to: Local) {
        let Some(waiting) = self.tokens.get_mut(&to) else { return };
        let visit = waiting.last().map(|token| token.visit);
        let kept =
            waiting.iter().rposition(|t| t.from != from || Some(t.visit) != visit).map_or(0, |at| at + 1);
        let dropped = waiting.len() - kept;
        waiting.truncate(kept);
        if waiting.is_empty() {
            self.tokens.remove(&to);
        }
        if let (Some(target), Some(source)) = (self.index(to), self.index(from)) {
            let back = self.plan.as_ref().is_some_and(|plan| plan.topology.is_back(source, target));
            if let Some(live) = &mut self.live {
                (0..dropped).for_each(|_| live.used(target, back));
            }
        }
    }

    /// Makes activations of tokens; of those that `fired` brought from a node if nothing else is said.
    fn settle(&mut self, settled: &Settled, from: Local, fired: &[Fired]) -> Result<()> {
        match &settled.start {
            Some(starts) => {
                for start in starts {
                    let node = self.known(start.node())?;
                    self.start(node, matches!(start, Start::Each { .. }));
                }
            }
            None => {
                for fired in fired {
                    let node = self.find_after(from, &fired.to).ok_or_else(|| never_reached(&fired.to))?;
                    self.start(node, false);
                }
            }
        }
        for (names, spent) in [(&settled.spent, true), (&settled.fresh, false)] {
            for name in names {
                let node = self.known(name)?;
                self.nodes[node as usize].spent = spent;
            }
        }
        Ok(())
    }

    /// Makes activations of the tokens that wait at a node; none if none wait.
    fn start(&mut self, node: Local, each: bool) {
        let Some(tokens) = self.tokens.remove(&node) else { return };
        if let (Some(index), Some(live)) = (self.index(node), &mut self.live) {
            live.take(index);
        }
        if !each && tokens.iter().all(|token| token.item.is_none()) {
            self.activate(node, None, tokens);
            return;
        }
        let mut joined = Vec::new();
        for token in tokens {
            if token.item.is_some() || each {
                let item = token.item.clone();
                self.activate(node, item, vec![token]);
            } else {
                joined.push(token);
            }
        }
        if !joined.is_empty() {
            self.activate(node, None, joined);
        }
    }

    pub(super) fn activate(
        &mut self,
        node: Local,
        item: Option<Arc<serde_json::value::RawValue>>,
        inputs: Vec<Token>,
    ) {
        let state = &mut self.nodes[node as usize];
        state.visits += 1;
        state.skipped = false;
        let key = (node, Visit::new(state.visits));
        self.started += 1;
        let mut activation = Activation::new(self.tick, item, inputs);
        if self.begun.remove(&key) {
            (activation.intent, activation.in_doubt) = (true, true);
        }
        self.insert(key, activation);
        self.fresh.push(key);
    }

    pub(super) fn insert(&mut self, key: ActivationKey, activation: Activation) {
        self.in_flight.insert(key, activation);
        if let (Some(index), Some(live)) = (self.index(key.0), &mut self.live) {
            live.started(index);
        }
    }

    /// Puts a token at a node.
    pub(super) fn wait(&mut self, to: Local, token: Token) {
        if let (Some(target), Some(source)) = (self.index(to), self.index(token.from)) {
            let back = self.plan.as_ref().is_some_and(|plan| plan.topology.is_back(source, target));
            if let Some(live) = &mut self.live {
                live.arrived(target, back);
            }
        }
        match self.tokens.get_mut(&to) {
            Some(tokens) => tokens.push(token),
            None => {
                let mut tokens = std::mem::take(&mut self.spare);
                tokens.push(token);
                self.tokens.insert(to, tokens);
            }
        }
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.status = RunStatus::Failed;
        self.failure = Some(failure);
        (self.receiving, self.wake) = (false, None);
    }

    pub(super) fn clear_frontier(&mut self) {
        self.in_flight.clear();
        self.tokens.clear();
        self.stopped_at.clear();
        self.overwrites.clear();
        self.holds.clear();
        (self.receiving, self.wake) = (false, None);
        self.live = self.plan.as_ref().map(|plan| plan.topology.liveness());
    }

    pub(super) fn in_flight_mut(&mut self, node: &NodeName, visit: Visit) -> Result<&mut Activation> {
        let key = (self.known(node)?, visit);
        self.in_flight.get_mut(&key).ok_or_else(|| not_in_flight(node, visit))
    }
}

fn not_in_flight(node: &NodeName, visit: Visit) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the log speaks of visit {visit}, which was not in flight"))
        .with_node(node)
}
