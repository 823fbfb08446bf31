//! Checkpoints, which show a run in its state after one record, in a JSON form for people and other programs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ask::Question;
use crate::clock::Timestamp;
use crate::details::RecordDetails;
use crate::ended::{Diagnostic, PastActivation};
use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::engine::frontier::{Activation, ActivationKey, Local};
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{
    Epoch, ExecutorId, Fingerprint, NodeName, RecordId, RunId, RunKey, Seq, Visit, WorkflowName,
};
use crate::lineage::inherited_edges;
use crate::logged_graph::LoggedGraph;
use crate::questions::questions;
use crate::record::child::ActivationChild;
use crate::record::memo::{Memo, Memos, PROGRESS};
use crate::record::{Failure, Labels, Parent, RecordKind, RunStatus};
use crate::state::{Artifact, MemoryRead, Secrets};
use crate::store::{At, CheckpointStore};

/// A checkpoint: the run in its state after one record of its log.
///
/// It serializes to JSON with the names of these fields. The page `docs/reference/checkpoints.md` describes each field. If a newer version of Ferrata
/// wrote further fields, `extra` contains them, and they are written back.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
// Large: each field is a part of the run that a reader may show.
pub struct Checkpoint {
    /// The version of this JSON form, which is 1.
    pub schema: u32,
    /// The key of the run.
    pub run: RunKey,
    /// The workflow of the run.
    pub workflow: WorkflowName,
    /// The workflow version at the start of the run.
    pub version: String,
    /// The graph's fingerprint at the start of the run.
    pub graph: Fingerprint,
    /// The number of the record in the run's log.
    pub index: Seq,
    /// The id of the record.
    pub record: RecordId,
    /// The kind of the record.
    pub kind: RecordKind,
    /// The status of the run after the record.
    pub status: RunStatus,
    /// The reason of the failure, if the run had failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The reason of the pause, if the run was paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// The reason of the cancellation request, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<String>,
    /// The time of the record, by its writer's clock.
    pub at: Timestamp,
    /// The time at which the run was started.
    pub created: Timestamp,
    /// The time at which the run continues if no event arrives earlier, if it waits for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// The epoch: how often the run had been claimed.
    pub epoch: Epoch,
    /// The process that owned the run after the record, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ExecutorId>,
    /// The source and the position from which the run was forked, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The user for whom the run was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The labels of the run.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The configuration of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// The activation that ended last, as `node@visit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// The activations that had not ended. They run next.
    pub next: Vec<PendingActivation>,
    /// The state of the run.
    pub state: Value,
    /// The secret channels of `state` and `input`. [`hide_secrets`](Self::hide_secrets) replaces their values.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secret: Secrets,
    /// The input of the run. Absent after its first record was pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The ended activations, in order.
    pub history: Vec<PastActivation>,
    /// The last output of each node that sent an output along its edges.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub results: BTreeMap<NodeName, Value>,
    /// The number of activations of each node.
    pub visited: BTreeMap<NodeName, u32>,
    /// The nodes that can no longer run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<NodeName>,
    /// The tokens (fired edges) that waited at a join.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingToken>,
    /// For each goal gate that was visited, whether its last activation succeeded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gates: BTreeMap<NodeName, bool>,
    /// The open questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// The artifacts that each node created outside of the run, in the order of the stored records.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub artifacts: BTreeMap<NodeName, Vec<Artifact>>,
    /// The memory reads of nodes, and their pending memory writes.
    #[serde(default, skip_serializing_if = "MemorySnapshot::is_empty")]
    pub memory: MemorySnapshot,
    /// The number of messages that no node had received.
    #[serde(default)]
    pub unread: usize,
    /// The replans (deliberate returns to a node), with their reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replans: Vec<ReplanEntry>,
    /// The failed attempts so far, including attempts that were retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
    /// Fields that a newer version of Ferrata wrote.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

impl Checkpoint {
    /// Replaces the values of secret channels in the state and the input with [`HIDDEN`](crate::state::HIDDEN). Outputs, questions and notes of nodes
    /// are not part of the state and stay unchanged.
    pub fn hide_secrets(&mut self) {
        self.secret.hide(&mut self.state);
        if let Some(input) = &mut self.input {
            self.secret.hide(input);
        }
    }
}

impl fmt::Debug for Checkpoint {
    /// Formats only the position and the status, and omits payloads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("run", &self.run)
            .field("index", &self.index)
            .field("kind", &self.kind)
            .field("status", &self.status)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

/// The memory reads and pending memory writes of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemorySnapshot {
    /// The memory reads of nodes (`NodeContext::remember_read`), in the order of the stored records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<MemoryRead>,
    /// The payloads of undelivered outbox messages to the topic `memory`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_writes: Vec<Value>,
}

impl MemorySnapshot {
    /// Returns whether there are neither reads nor pending writes.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.pending_writes.is_empty()
    }
}

/// An activation that had not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingActivation {
    /// The name of the node.
    pub node: NodeName,
    /// The visit of the node.
    pub visit: Visit,
    /// The number of failed attempts.
    #[serde(default)]
    pub failed: u32,
    /// The time of the next attempt, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Whether the failure of this activation stopped the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// The item for which a route started the activation, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Value>,
    /// The last progress value that its attempts recorded (`NodeContext::progress`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
    /// The names of the completed steps of the activation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// The times at which the timers and the waits for messages of the activation end. Only times after the time of the record are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<Timestamp>,
    /// Whether the run was idle and this activation waited for a message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receiving: bool,
    /// The child runs whose results the activation had not received. Detached runs are not listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<PendingChild>,
}

/// A child run whose result its activation had not received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingChild {
    /// The name of the child in its activation.
    pub name: String,
    /// The child's run id, in the tenant of its parent.
    pub run: RunId,
    /// The value of the child's label `ferrata.child`. If a run has the child's id but another value of this label, it is not the child.
    pub start: String,
}

/// A token (a fired edge) that waited at a join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitingToken {
    /// The node at which the token waited.
    pub at: NodeName,
    /// The node that sent the token.
    pub from: NodeName,
    /// The visit of the sending node.
    pub visit: Visit,
}

/// A replan (a deliberate return to a node), with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplanEntry {
    /// The node whose route chose the replan.
    pub from: NodeName,
    /// The visit of that node.
    pub visit: Visit,
    /// The node at which the run continued.
    pub to: NodeName,
    /// The reason of the replan.
    pub reason: String,
}

/// Reads a checkpoint, and the graph data of the log.
///
/// # Errors
///
/// Returns [`ErrorKind::NotFound`] if there is no such run or record, [`ErrorKind::Corrupt`] if the log is unreadable, and the errors of the store.
pub async fn checkpoint(
    store: &dyn CheckpointStore,
    run: &RunKey,
    at: At,
) -> Result<(Checkpoint, LoggedGraph)> {
    let head = store.head(run).await?.ok_or_else(|| missing(run))?;
    let records = store.load(run, at).await?.ok_or_else(|| missing(run))?;
    let folded = fold(run, &records, None)?;
    let mut told = RecordDetails::read(store, run, head.first, &records).await?;
    let ReplayedRun { machine, channels, last, .. } = folded;
    let name = |node: Local| machine.name(node).clone();
    let json = |text: &str| parsed(run, text);
    // Iterate backwards: a visit ends again after a retry, and the oldest records are the pruned ones.
    let backwards = machine.history().iter().rev().map(|ended| {
        let ok = ended.outcome == crate::engine::history::ActivationOutcome::Succeeded;
        let plain = PastActivation::of(name(ended.node), ended.visit, ok);
        let of_visit = told.ended.get_mut(&(plain.node.clone(), ended.visit));
        of_visit.and_then(|told| told.pop_if(|told| told.ok == ok)).unwrap_or(plain)
    });
    let mut history: Vec<PastActivation> = backwards.collect();
    history.reverse();
    let mut results = BTreeMap::new();
    for (node, text) in &told.results {
        results.insert(node.clone(), json(text)?);
    }
    let letters = machine.letters().map_or(&[][..], |letters| letters.waiting());
    let to_memory = letters.iter().filter(|letter| &*letter.topic == "memory");
    let pending_writes = to_memory.map(|letter| json(letter.payload.get())).collect::<Result<_>>()?;
    let visited = machine.names().zip(machine.nodes()).filter(|(_, node)| node.visits > 0);
    let skipped = machine.names().zip(machine.nodes()).filter(|(_, node)| node.skipped);
    let gates = told.started.as_ref().map(|started| Arc::clone(&started.gates)).unwrap_or_default();
    let gate = |node: NodeName| {
        let ok = machine.find(node.as_str()).and_then(|local| machine.node(local).succeeded)?;
        Some((node, ok))
    };
    let checkpoint = Checkpoint {
        schema: 1,
        run: run.clone(),
        workflow: head.facts.workflow,
        version: head.facts.version,
        graph: head.facts.graph,
        index: last.seq,
        record: last.id,
        kind: last.kind,
        status: machine.status(),
        failure: machine.failure().cloned(),
        paused: machine.paused().map(str::to_owned),
        cancelled: machine.cancel().map(str::to_owned),
        at: last.at,
        created: head.facts.created,
        wake_at: last.wake_at,
        epoch: last.epoch,
        owner: last.owner,
        parent: head.facts.parent,
        user: head.facts.user,
        labels: head.facts.labels,
        config: machine.config().map(|config| json(config.0.get())).transpose()?,
        last: machine.history().last().map(|ended| format!("{}@{}", machine.name(ended.node), ended.visit)),
        next: pending(run, &machine, last.at)?,
        state: json(&channels.to_json()?)?,
        secret: machine.secrets().clone(),
        input: told.input.as_deref().map(json).transpose()?,
        history,
        results,
        visited: visited.map(|(name, node)| (name.clone(), node.visits)).collect(),
        skipped: skipped.map(|(name, _)| name.clone()).collect(),
        waiting: waiting(&machine),
        gates: gates.iter().cloned().filter_map(gate).collect(),
        questions: questions(&machine),
        artifacts: told.artifacts,
        memory: MemorySnapshot { reads: told.reads, pending_writes },
        unread: machine.inbox().len(),
        replans: machine
            .replans()
            .iter()
            .map(|replan| ReplanEntry {
                from: name(replan.from),
                visit: replan.visit,
                to: name(replan.to),
                reason: replan.reason.clone(),
            })
            .collect(),
        diagnostics: told.failed,
        extra: BTreeMap::new(),
    };
    let effects = told.started.map(|started| started.effects);
    let nodes = machine.names().cloned().collect();
    let edges = match told.edges {
        None if checkpoint.parent.is_some() => inherited_edges(store, &checkpoint.run).await?,
        edges => edges,
    };
    Ok((checkpoint, LoggedGraph { nodes, edges, bypassed: told.bypassed, effects }))
}

fn parsed(run: &RunKey, text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|source| {
        Error::new(ErrorKind::Corrupt, "a value in the log is not JSON").with_run(run).with_source(source)
    })
}

/// Lists the activations that have not ended, as of a record with time `at`.
pub(crate) fn pending(run: &RunKey, machine: &Machine, at: Timestamp) -> Result<Vec<PendingActivation>> {
    let json = |text: &str| parsed(run, text);
    let receiving = receiving(machine, at);
    let child = |key: ActivationKey, child: &ActivationChild| PendingChild {
        name: child.name.clone(),
        run: child.note.run.clone(),
        start: machine.child_ref(run, key, child).start.to_string(),
    };
    let one = |(&(node, visit), activation): (&ActivationKey, &Activation), stopped: bool| {
        let steps = activation
            .memos
            .iter()
            .filter(|(name, memo)| matches!(memo, Memo::Result(_)) && Memos::is_of_node(name));
        Ok(PendingActivation {
            node: machine.name(node).clone(),
            visit,
            // The failure that stopped the run is its own record, not an attempt before another.
            failed: activation.failed.saturating_add(u32::from(stopped)),
            retry_at: activation.retry_at,
            stopped,
            item: activation.item.as_ref().map(|item| json(item.get())).transpose()?,
            progress: match activation.memos.get(PROGRESS) {
                Some(Memo::Result(text)) => Some(json(text.get())?),
                _ => None,
            },
            steps: steps.map(|(name, _)| name.clone()).collect(),
            timers: timers(&activation.memos, at),
            receiving: receiving.contains(&(node, visit)),
            children: (activation.memos.children().iter().filter(|one| one.is_open() && !stopped))
                .map(|one| child((node, visit), one))
                .collect(),
        })
    };
    let going = machine.in_flight().iter().map(|entry| one(entry, false));
    going.chain(machine.stopped_at().iter().map(|(key, activation)| one((key, activation), true))).collect()
}

/// Lists the activations that wait for a message, as far as the log shows this. If only one activation can wait for a message, no record names it.
fn receiving(machine: &Machine, at: Timestamp) -> Vec<ActivationKey> {
    if !machine.is_receiving() {
        return Vec::new();
    }
    let posed = machine.posed();
    let may_receive = |(key, activation): &(&ActivationKey, &Activation)| {
        posed.iter().all(|question| question.key != **key)
            && activation.retry_at.is_none_or(|due| due <= at)
            && !activation.memos.children().iter().any(ActivationChild::is_open)
    };
    let may: Vec<ActivationKey> =
        machine.in_flight().iter().filter(may_receive).map(|(key, _)| *key).collect();
    let noted: Vec<ActivationKey> =
        may.iter().copied().filter(|key| machine.receivers().iter().any(|(noted, _)| noted == key)).collect();
    match (noted.is_empty(), may.len()) {
        (false, _) => noted,
        (true, 1) => may,
        (true, _) => Vec::new(),
    }
}

/// Lists an activation's pending deadlines after `at`, the earliest first.
fn timers(memos: &Memos, at: Timestamp) -> Vec<Timestamp> {
    let mut timers: Vec<Timestamp> = memos
        .values()
        .filter_map(|memo| match memo {
            Memo::Until(until) if *until > at => Some(*until),
            _ => None,
        })
        .collect();
    timers.sort_unstable();
    timers
}

fn waiting(machine: &Machine) -> Vec<WaitingToken> {
    let at = |(&to, tokens): (&Local, &Vec<crate::engine::frontier::Token>)| {
        let at = machine.name(to).clone();
        tokens
            .iter()
            .map(|token| WaitingToken {
                at: at.clone(),
                from: machine.name(token.from).clone(),
                visit: token.visit,
            })
            .collect::<Vec<_>>()
    };
    machine.tokens().iter().flat_map(at).collect()
}
