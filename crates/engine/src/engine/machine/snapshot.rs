//! The form in which a base (a record with the full state) stores the machine. It contains everything except the user's state, and refers to nodes by
//! name.

use crate::claim::StartId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Machine;
use crate::clock::Timestamp;
use crate::engine::frontier::{Activation, Local, Overwrite, Token};
use crate::engine::history::EndedActivation;
use crate::engine::inbox::RunInbox;
use crate::engine::nodes::NodeState;
use crate::engine::outbox::OutboxState;
use crate::engine::progress::RunProgress;
use crate::engine::questions::ClosedQuestion;
use crate::engine::replan::Replan;
use crate::engine::run_state::PauseReasons;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::plan::{GraphPlan, NodePlan};
use crate::id::{Fingerprint, NodeName, Seq, Visit};
use crate::record::body::{FanOutItem, present};
use crate::record::codec::to_raw;
use crate::record::memo::Memos;
use crate::record::pause::{ChildPolls, MessageKey, MessageRecord};
use crate::record::{Failure, Resolution, RunStatus};
use crate::state::Secrets;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The stored form of the machine. Its parts refer to nodes by the index in `nodes`.
#[derive(Serialize, Deserialize)]
// Large: the stored form of a machine; its fields are a format.
struct StoredMachine<N = StoredNode> {
    /// The start id of the run.
    start_id: StartId,
    /// The status of the run.
    status: RunStatus,
    /// The reason of the failure, if the run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    /// The reason of a requested cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel: Option<String>,
    /// The reason of a pause by a caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<String>,
    /// The reason of a pause by the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused_by_parent: Option<String>,
    /// Whether the run was paused before. Only stored if it is not paused.
    #[serde(default, skip_serializing_if = "is_default")]
    was_paused: bool,
    /// The number of runs that its nodes have started, or recorded as about to start.
    #[serde(default, skip_serializing_if = "is_default")]
    children: u64,
    /// Messages that no node has taken, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inbox: Vec<MessageRecord>,
    /// The number of messages that were sent to the run.
    #[serde(default, skip_serializing_if = "is_default")]
    messages: u64,
    /// The keys of the latest messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<MessageKey>,
    /// The configuration of the run.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    config: Option<FanOutItem>,
    /// The names of secret channels.
    #[serde(rename = "secret", default, skip_serializing_if = "Secrets::is_empty")]
    secrets: Secrets,
    /// Outbox messages: their count, and the undelivered messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    letters: Option<Box<OutboxState>>,
    /// Whether a message moves the idle run.
    #[serde(default, skip_serializing_if = "is_default")]
    receiving: bool,
    /// The waits of an idle run for a message, if there are several: node, visit and name, longest wait first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    receivers: Vec<(Local, Visit, String)>,
    /// The polls since the last release, if the run waits for children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    looks: Option<ChildPolls>,
    /// The time at which time alone moves the idle run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wake: Option<Timestamp>,
    /// Ended activations with an open question `after`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    holds: Vec<(Local, Visit)>,
    /// Consecutive claims without progress. A claim adds 1. An attempt, intent, release, `rested` or base leaves the number unchanged. Any
    /// other change sets it to 0.
    #[serde(rename = "fruitless", default, skip_serializing_if = "is_default")]
    claims_without_progress: u32,
    /// The numbers of pinned records.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pins: BTreeSet<Seq>,
    /// The last 64 questions that were answered or expired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answered: Vec<ClosedQuestion>,
    /// Activations that do not exist yet and have an unknown outcome, from a release after a loss of records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    begun: Vec<(Local, Visit)>,
    /// The number of activations that have ended.
    tick: u64,
    /// The number of activations that were created.
    started: u64,
    /// All nodes. Other fields refer to them by position.
    nodes: Vec<N>,
    /// Activations that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    in_flight: Vec<StoredActivation>,
    /// Activations that failed the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stopped_at: Vec<StoredActivation>,
    /// Waiting tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<StoredToken>,
    /// By channel, the last overwrite that a running activation has not seen: tick, node and visit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    overwrites: BTreeMap<String, (u64, Local, Visit)>,
    /// Ended activations in order: node and visit, and 1 if the activation failed.
    history: Vec<EndedActivation>,
    /// The latest 100 replans, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    replans: Vec<StoredReplan>,
}

#[derive(Serialize, Deserialize)]
struct StoredNode {
    name: NodeName,
    /// The number of activations.
    #[serde(default, skip_serializing_if = "is_default")]
    visits: u32,
    /// Whether the last activation succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    /// Whether the node can no longer run.
    #[serde(default, skip_serializing_if = "is_default")]
    skipped: bool,
    /// Whether the node has reached its count, so that further tokens of this round are late.
    #[serde(default, skip_serializing_if = "is_default")]
    spent: bool,
    /// The number of returns to the node as a retry target.
    #[serde(default, skip_serializing_if = "is_default")]
    returned: u32,
    /// The number of replans to the node.
    #[serde(default, skip_serializing_if = "is_default")]
    replans: u32,
    /// The number of visits of a conversation that ended, or were moved elsewhere, without a message.
    #[serde(default, skip_serializing_if = "is_default")]
    left: u32,
    /// The fingerprint of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    print: Option<Fingerprint>,
}

/// A node in its written form.
#[derive(Serialize)]
#[serde(untagged)]
enum WrittenNode<'a> {
    /// The node never ran, so its text is the same in every run of the graph.
    Blank(&'a RawValue),
    Seen(StoredNode),
}

#[derive(Serialize, Deserialize)]
struct StoredReplan {
    from: Local,
    visit: Visit,
    to: Local,
    reason: String,
}

#[derive(Serialize, Deserialize)]
struct StoredActivation {
    node: Local,
    visit: Visit,
    /// The tick at its start.
    #[serde(default, skip_serializing_if = "is_default")]
    since: u64,
    /// The number of failed attempts.
    #[serde(default, skip_serializing_if = "is_default")]
    failed: u32,
    /// The earliest time of the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_at: Option<Timestamp>,
    /// Whether an attempt that must not be repeated was about to start.
    #[serde(default, skip_serializing_if = "is_default")]
    intent: bool,
    /// Whether the question about its outcome is open.
    #[serde(default, skip_serializing_if = "is_default")]
    in_doubt: bool,
    /// The end of the attempt with unknown outcome. Absent if its process ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<Box<Failure>>,
    /// The answer of an operator about the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolution: Option<Resolution>,
    /// Its item of a fan-out.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    item: Option<Arc<RawValue>>,
    /// The tokens that it has taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<StoredToken>,
    /// Its memos by name.
    #[serde(default, skip_serializing_if = "Memos::has_none")]
    memos: Memos,
}

#[derive(Serialize, Deserialize)]
struct StoredToken {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Local>,
    from: Local,
    visit: Visit,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    output: Option<Arc<RawValue>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    item: Option<Arc<RawValue>>,
}

impl Machine {
    /// Returns the machine in the form of a base.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if it cannot be encoded. No absorbed event can cause that.
    pub fn snapshot(&self) -> Result<Box<RawValue>> {
        let activation = |(&(node, visit), a): (&(Local, Visit), &Activation)| StoredActivation {
            node,
            visit,
            since: a.since,
            failed: a.failed,
            retry_at: a.retry_at,
            intent: a.intent,
            in_doubt: a.in_doubt,
            why: a.why.clone(),
            resolution: a.resolution.clone(),
            item: a.item.clone(),
            inputs: a.inputs.iter().map(|token| StoredToken::new(None, token)).collect(),
            memos: a.memos.clone(),
        };
        let blanks = self.blanks()?;
        let blank = NodeState::default();
        let nodes = self.names().zip(self.nodes()).zip(0..).map(|((name, node), local)| {
            match blanks.get(local as usize).filter(|_| *node == blank) {
                Some(text) => WrittenNode::Blank(text),
                None => WrittenNode::Seen(StoredNode::new(name, node, self.print(local))),
            }
        });
        let replans = self.replans().iter().map(|r| StoredReplan {
            from: r.from,
            visit: r.visit,
            to: r.to,
            reason: r.reason.clone(),
        });
        let tokens = self
            .tokens()
            .iter()
            .flat_map(|(&to, tokens)| tokens.iter().map(move |token| StoredToken::new(Some(to), token)));
        let writes = self.frontier.overwrites().iter().map(|(ch, w)| (ch.clone(), (w.tick, w.node, w.visit)));
        let pauses = self.standing.pauses();
        to_raw(&StoredMachine {
            start_id: self.start_id,
            status: self.status(),
            failure: self.failure().cloned(),
            cancel: self.cancel().map(str::to_owned),
            paused: pauses.and_then(|pauses| pauses.own.clone()),
            paused_by_parent: pauses.and_then(|pauses| pauses.of_parent.clone()),
            // A paused run was paused.
            was_paused: pauses.is_some_and(|pauses| pauses.own.is_none()),
            children: self.children_started(),
            inbox: self.inbox().iter().cloned().collect(),
            messages: self.messages(),
            keys: self.inbox.keys().to_vec(),
            config: self.config.clone(),
            secrets: self.secrets.clone(),
            letters: self.letters.clone(),
            receiving: self.is_receiving(),
            receivers: self
                .receivers()
                .iter()
                .map(|((node, visit), name)| (*node, *visit, name.clone()))
                .collect(),
            looks: self.child_polls(),
            wake: self.wake(),
            holds: self.frontier.held_activations().iter().copied().collect(),
            claims_without_progress: self.claims_without_progress(),
            pins: self.pins.clone(),
            answered: self.answered.clone(),
            begun: self.frontier.begun().iter().copied().collect(),
            tick: self.ended_count(),
            started: self.started(),
            nodes: nodes.collect(),
            in_flight: self.in_flight().iter().map(activation).collect(),
            stopped_at: self.stopped_at().iter().map(|(key, a)| activation((key, a))).collect(),
            tokens: tokens.collect(),
            overwrites: writes.collect(),
            history: self.history().to_vec(),
            replans: replans.collect(),
        })
    }

    /// Returns the written form of the graph's nodes before they ran, if this graph drives the run.
    fn blanks(&self) -> Result<&[Box<RawValue>]> {
        let Some(plan) = self.plan().filter(|_| self.nodes.has_graph_of_plan()) else { return Ok(&[]) };
        if let Some(blanks) = plan.blanks.get() {
            return Ok(blanks);
        }
        let blank = NodeState::default();
        let text = |node: &NodePlan| to_raw(&StoredNode::new(&node.name, &blank, Some(node.fingerprint)));
        let made = plan.nodes.iter().map(text).collect::<Result<_>>()?;
        Ok(plan.blanks.get_or_init(|| made))
    }

    /// Restores a machine from a base.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the parts do not match.
    pub fn restore(text: &RawValue, plan: Option<Arc<GraphPlan>>) -> Result<Self> {
        let broken = || {
            Error::new(ErrorKind::Corrupt, "the base does not describe a run; restore the run from a backup")
        };
        let stored: StoredMachine =
            serde_json::from_str(text.get()).map_err(|source| broken().with_source(source))?;
        let mut machine = Self::new(plan);
        stored.check().map_err(|what| broken().with_source(what))?;
        // The base has its own node numbers. The current graph may number them differently.
        let local: Vec<Local> = stored.nodes.iter().map(|node| machine.nodes.local(&node.name)).collect();
        let find = |node: Local| local.get(node as usize).copied().ok_or_else(broken);
        for (node, &at) in stored.nodes.iter().zip(&local) {
            let state = NodeState {
                visits: node.visits,
                succeeded: node.ok,
                skipped: node.skipped,
                spent: node.spent,
                returned: node.returned,
                replans: node.replans,
                left: node.left,
            };
            machine.nodes.restore(at, state);
        }
        let prints = stored.nodes.iter().filter_map(|node| Some((node.name.clone(), node.print?)));
        machine.nodes.record_graph(&Arc::new(prints.collect::<BTreeMap<_, _>>().into()));
        machine.start_id = stored.start_id;
        machine.standing.become_idle(stored.status, stored.receiving, stored.wake);
        machine.standing.set_child_polls(stored.looks);
        // A base from before parent pauses only shows that the run is paused now.
        let any = stored.was_paused || stored.paused.is_some() || stored.paused_by_parent.is_some();
        let pauses = any.then_some(PauseReasons { own: stored.paused, of_parent: stored.paused_by_parent });
        machine.standing.restore(stored.failure, stored.cancel, pauses);
        machine.inbox = RunInbox::restore(stored.inbox, stored.messages, stored.keys);
        machine.config = stored.config;
        machine.secrets = stored.secrets;
        machine.letters = stored.letters;
        machine.children_started = stored.children;
        machine.pins = stored.pins;
        machine.answered = stored.answered;
        for (node, visit) in stored.begun {
            machine.frontier.mark_begun((find(node)?, visit));
        }
        let receiver = |(node, visit, name)| Ok(((find(node)?, visit), name));
        machine.standing.set_receivers(stored.receivers.into_iter().map(receiver).collect::<Result<_>>()?);
        for (node, visit) in stored.holds {
            machine.frontier.hold_successors((find(node)?, visit));
        }
        for a in stored.in_flight {
            let key = (find(a.node)?, a.visit);
            machine.frontier.start(key, a.restore(&find)?, machine.nodes.index(key.0));
        }
        for a in stored.stopped_at {
            let key = (find(a.node)?, a.visit);
            machine.frontier.stop(key, a.restore(&find)?);
        }
        for token in stored.tokens {
            let to = find(token.to.ok_or_else(broken)?)?;
            let token = token.restore(&find)?;
            machine.put(to, token);
        }
        for (channel, (tick, node, visit)) in stored.overwrites {
            machine.frontier.overwrite(channel, Overwrite { tick, node: find(node)?, visit });
        }
        let ended = |ended: EndedActivation| Ok(EndedActivation { node: find(ended.node)?, ..ended });
        let replan = |StoredReplan { from, visit, to, reason }| {
            Ok(Replan { from: find(from)?, visit, to: find(to)?, reason })
        };
        machine.progress = RunProgress::restore(
            (stored.tick, stored.started),
            stored.claims_without_progress,
            stored.history.into_iter().map(ended).collect::<Result<_>>()?,
            stored.replans.into_iter().map(replan).collect::<Result<_>>()?,
        );
        Ok(machine)
    }
}

/// The maximum value of a counter in a base. No run reaches it, and further counting from it cannot overflow.
pub(super) const MOST: u32 = u32::MAX / 2;

impl StoredMachine {
    /// Returns an error for a state that no run can have. Counters that are too large or duplicate parts would lead to wrong counts later.
    fn check(&self) -> Result<(), InvalidBase> {
        let names: BTreeSet<_> = self.nodes.iter().map(|node| &node.name).collect();
        if names.len() < self.nodes.len() {
            return Err(InvalidBase("a node appears twice"));
        }
        let small = |count: u64| count <= u64::from(MOST);
        let counted = |node: &StoredNode| [node.visits, node.returned, node.replans].map(u64::from);
        let activations = self.in_flight.iter().chain(&self.stopped_at);
        let failed = activations.map(|activation| u64::from(activation.failed));
        let counts = self.nodes.iter().flat_map(counted).chain(failed);
        if !counts.chain([self.tick, self.started, self.messages]).all(small) {
            return Err(InvalidBase("a count is out of range"));
        }
        if !self.letters.as_ref().is_none_or(|letters| letters.is_sound()) {
            return Err(InvalidBase("its outbox messages are out of order"));
        }
        let mut keys = BTreeSet::new();
        for activation in self.in_flight.iter().chain(&self.stopped_at) {
            let (node, visit) = (activation.node, activation.visit);
            let visits = self.nodes.get(node as usize).map_or(0, |node| node.visits);
            if visit.get() == 0 || visit.get() > visits || !keys.insert((node, visit)) {
                return Err(InvalidBase("an activation appears twice, or was never started"));
            }
        }
        Ok(())
    }
}

/// The reason why a base does not contain a valid run.
#[derive(Debug)]
struct InvalidBase(&'static str);

impl std::fmt::Display for InvalidBase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InvalidBase {}

impl StoredNode {
    fn new(name: &NodeName, node: &NodeState, print: Option<Fingerprint>) -> Self {
        Self {
            name: name.clone(),
            visits: node.visits,
            ok: node.succeeded,
            skipped: node.skipped,
            spent: node.spent,
            returned: node.returned,
            replans: node.replans,
            left: node.left,
            print,
        }
    }
}

impl StoredActivation {
    fn restore(self, find: &impl Fn(Local) -> Result<Local>) -> Result<Activation> {
        let inputs = self.inputs.into_iter().map(|token| token.restore(find)).collect::<Result<_>>()?;
        Ok(Activation {
            since: self.since,
            failed: self.failed,
            retry_at: self.retry_at,
            intent: self.intent,
            in_doubt: self.in_doubt,
            why: self.why,
            resolution: self.resolution,
            item: self.item,
            inputs,
            memos: self.memos,
        })
    }
}

impl StoredToken {
    fn new(to: Option<Local>, token: &Token) -> Self {
        let Token { from, visit, output, item } = token.clone();
        Self { to, from, visit, output, item }
    }

    fn restore(self, find: &impl Fn(Local) -> Result<Local>) -> Result<Token> {
        Ok(Token { from: find(self.from)?, visit: self.visit, output: self.output, item: self.item })
    }
}
