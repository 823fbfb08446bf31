//! A run as of one record, with everything that its log says about it, as JSON for people and other programs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Verdict;
use super::details::RecordDetails;
use super::lineage::inherited_edges;
use super::logged::LoggedGraph;
use super::questions::questions;
use crate::ask::Question;
use crate::clock::Timestamp;
use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::engine::frontier::{Activation, ActivationKey, Local};
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{
    Epoch, ExecutorId, Fingerprint, NodeName, RecordId, RunId, RunKey, Seq, Visit, WorkflowName,
};
use crate::record::child::Child;
use crate::record::memo::{Memo, Memos, PROGRESS};
use crate::record::{Failure, Labels, Parent, RecordKind, RunStatus};
use crate::state::{Artifact, MemoryRead, Secrets};
use crate::store::{At, CheckpointStore};

/// A run as of one record.
///
/// Serialises to JSON with these names; `docs/checkpoints.md` describes each. Fields of newer versions are kept in `extra` and
/// written back.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The version of this document: 1.
    pub schema: u32,
    /// The run.
    pub run: RunKey,
    /// The workflow it is a run of.
    pub workflow: WorkflowName,
    /// The version of the workflow it was started with.
    pub version: String,
    /// The fingerprint of the graph it was started with.
    pub graph: Fingerprint,
    /// The record's number in the run's log.
    pub index: Seq,
    /// The record's id.
    pub record: RecordId,
    /// What the record says.
    pub kind: RecordKind,
    /// How the run stood.
    pub status: RunStatus,
    /// Why it failed, if it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Why it is paused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Why it was asked to stop, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<String>,
    /// When the record was made, by its writer's clock.
    pub at: Timestamp,
    /// When the run was started.
    pub created: Timestamp,
    /// When time moves the run, if nothing else does before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// How often it had been claimed.
    pub epoch: Epoch,
    /// Who owned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ExecutorId>,
    /// The run it was forked from, and where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// For whom it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What users filter by.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// What the run is configured with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// The activation that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// The activations that had begun and not ended: what runs next.
    pub next: Vec<PendingActivation>,
    /// The state.
    pub state: Value,
    /// The channels of `state` and `input` that are secret: [`hide_secrets`](Self::hide_secrets) takes their values out.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secret: Secrets,
    /// The state that the run was started with; absent once its first record has been pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The activations that had ended, in order.
    pub history: Vec<PastActivation>,
    /// What each node returned along its edges the last time, if it returned anything then.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub results: BTreeMap<NodeName, Value>,
    /// How often each node had been activated.
    pub visited: BTreeMap<NodeName, u32>,
    /// The nodes that would never run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<NodeName>,
    /// The tokens that waited at a join.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingToken>,
    /// Whether each goal gate that was visited had last ended well.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gates: BTreeMap<NodeName, bool>,
    /// The questions that were open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// What nodes made elsewhere, by node, in the order of the records that are kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub artifacts: BTreeMap<NodeName, Vec<Artifact>>,
    /// What nodes read from a memory, and what was to be written to one.
    #[serde(default, skip_serializing_if = "MemorySnapshot::is_empty")]
    pub memory: MemorySnapshot,
    /// How many messages no node had taken.
    #[serde(default)]
    pub unread: usize,
    /// The replans, with their reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replans: Vec<ReplanEntry>,
    /// What failed so far, attempts that were made again included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
    /// What newer versions say.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

impl Checkpoint {
    /// Puts [`HIDDEN`](crate::state::HIDDEN) in the place of the values of secret channels in the state and in the input. What nodes returned, asked
    /// and noted beside the state stays as it is.
    ///
    /// <!-- held by: secrets::a_secret_is_in_no_view_of_a_run -->
    pub fn hide_secrets(&mut self) {
        self.secret.hide(&mut self.state);
        if let Some(input) = &mut self.input {
            self.secret.hide(input);
        }
    }
}

impl fmt::Debug for Checkpoint {
    /// Shows the place and how the run stood, never a payload.
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

/// What a run had read from a memory, and what was still to be written to one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemorySnapshot {
    /// What nodes [had read](crate::node::NodeContext::remember_read), in the order of the records that are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<MemoryRead>,
    /// The payloads of the letters to the topic `memory` that no outlet had taken, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_writes: Vec<Value>,
}

impl MemorySnapshot {
    /// Tells whether nothing was read, and nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.pending_writes.is_empty()
    }
}

/// An activation that had begun and not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingActivation {
    /// The node.
    pub node: NodeName,
    /// Which visit.
    pub visit: Visit,
    /// How many attempts had failed.
    #[serde(default)]
    pub failed: u32,
    /// When the next attempt was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Whether it stopped the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// The item it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Value>,
    /// How far its attempts have come, as the last of them [said](crate::node::NodeContext::progress).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
    /// The names of its steps that were done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// The times that it waited for, of timers and of waits for a message, which had not come by the clock of the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<Timestamp>,
    /// Whether the idle run waited for a message to this activation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receiving: bool,
    /// The runs that it had started and whose result it had not taken, without those that are detached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<PendingChild>,
}

/// A run that an activation started and whose result it had not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingChild {
    /// What the activation calls it.
    pub name: String,
    /// Its id, in the tenant of its parent.
    pub run: RunId,
    /// The value of its label `ferrata.child`. A run of this id with another value is not the child.
    pub start: String,
}

/// An activation that had ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PastActivation {
    /// The node.
    pub node: NodeName,
    /// Which visit.
    pub visit: Visit,
    /// Whether it succeeded.
    pub ok: bool,
    /// How many attempts it took. This and what follows is absent once its record has been pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// How long the last attempt took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// When its record was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The record it stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Seq>,
    /// What repeating it means, if its graph said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<crate::graph::Effect>,
    /// The nodes it led to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub led_to: Vec<NodeName>,
    /// What it said to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// What it said itself of how its work came out, if that was not success: the run may go on after work that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// A token that waited at a join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitingToken {
    /// Where it waited.
    pub at: NodeName,
    /// Where it came from.
    pub from: NodeName,
    /// Which visit of that.
    pub visit: Visit,
}

/// A replan and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplanEntry {
    /// The node whose route decided so.
    pub from: NodeName,
    /// Which visit of it.
    pub visit: Visit,
    /// Where the run went back to.
    pub to: NodeName,
    /// Why.
    pub reason: String,
}

/// Something that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Diagnostic {
    /// When its record was made.
    pub at: Timestamp,
    /// The node.
    pub node: NodeName,
    /// Which visit.
    pub visit: Visit,
    /// Which attempt.
    pub attempt: u32,
    /// Why.
    pub failure: Failure,
    /// When another attempt was to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// Reads a checkpoint, and what the log tells of the graph.
pub(crate) async fn checkpoint(
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
    // From the last on: a visit ends again after a retry, and the records that are gone are the oldest.
    let backwards = machine.history().iter().rev().map(|ended| {
        let ok = ended.outcome == crate::engine::history::Outcome::Succeeded;
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
        Error::new(ErrorKind::Corrupt, "a value in the log is no JSON").with_run(run).with_source(source)
    })
}

/// Lists the activations that have not ended, as of a record that was made at `at`.
pub(super) fn pending(run: &RunKey, machine: &Machine, at: Timestamp) -> Result<Vec<PendingActivation>> {
    let json = |text: &str| parsed(run, text);
    let receiving = receiving(machine, at);
    let child = |key: ActivationKey, child: &Child| PendingChild {
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

/// Lists the activations to which a message goes that moves the idle run, as far as the log tells: where only one can wait for a message, it is
/// in no record.
fn receiving(machine: &Machine, at: Timestamp) -> Vec<ActivationKey> {
    if !machine.is_receiving() {
        return Vec::new();
    }
    let posed = machine.posed();
    let may_receive = |(key, activation): &(&ActivationKey, &Activation)| {
        posed.iter().all(|question| question.key != **key)
            && activation.retry_at.is_none_or(|due| due <= at)
            && !activation.memos.children().iter().any(Child::is_open)
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

/// Lists the times that an activation waits for, of those that had not come at `at`, the next first.
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

impl PastActivation {
    pub(super) fn of(node: NodeName, visit: Visit, ok: bool) -> Self {
        Self {
            node,
            visit,
            ok,
            attempts: None,
            took_ms: None,
            at: None,
            index: None,
            effect: None,
            led_to: Vec::new(),
            notes: None,
            failure: None,
            verdict: None,
        }
    }
}
