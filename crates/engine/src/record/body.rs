//! The bodies of records, in JSON.
//!
//! Bodies name nodes and channels and need neither the user's types nor the graph: a fold needs only the log.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use uuid::Uuid;

pub use super::done::NodeDone;
use super::effect::Effect;
use super::node_data::{ByNode, EdgeTargets, Prints};
use super::outbox::LetterChange;
use super::pause::{
    ChildPolls, EditRecord, ExpiredRecord, IdleRecord, MessageKey, QuestionRecord, Receiver, StepRecord,
};
use crate::ask::{Answer, Resolution};
use crate::clock::Timestamp;
use crate::failure::Failure;
use crate::id::{ExecutorId, NodeName, Seq, Visit};
use crate::state::{Patch, Secrets};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The body of a record of any kind, and the full state if the record is a base.
#[derive(Clone, Debug)]
pub struct RecordBody {
    pub event: RecordEvent,
    pub base: Option<RecordBase>,
}

/// The event of a record, by the record's kind.
#[derive(Clone, Debug)]
pub enum RecordEvent {
    Start(StartRecord),
    Node(NodesDone),
    Attempt(AttemptFailed),
    Intent(Intent),
    Step(StepRecord),
    Status(StatusChange),
    Signal(Signal),
    Claim(ClaimRecord),
    Release(ReleaseRecord),
    Edit(EditRecord),
    Base,
}

impl RecordEvent {
    /// Returns the state change in the record, if its kind has one.
    pub fn patch(&self) -> Option<&Patch> {
        match self {
            Self::Node(nodes) => Some(&nodes.patch),
            Self::Edit(edited) => Some(&edited.patch),
            _ => None,
        }
    }
}

/// The full state of a run after a record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordBase {
    /// The channels.
    pub state: Box<RawValue>,
    /// The rest of the run: frontier, counters, history.
    pub machine: Box<RawValue>,
    /// The version of the state type that wrote the channels.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub version: u32,
}

/// Tokens of a node that become activations.
///
/// Without `each`, the plain tokens form one activation together, and each item forms its own. With `each`, every token forms its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ActivationStart {
    Joined(NodeName),
    Each { each: NodeName },
}

impl ActivationStart {
    pub(crate) fn node(&self) -> &NodeName {
        match self {
            Self::Joined(node) | Self::Each { each: node } => node,
        }
    }
}

/// How tokens became activations, beyond those of a record's own fired edges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenChanges {
    /// The tokens that start. Absent in the usual case: every fired edge starts its target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Vec<ActivationStart>>,
    /// Nodes that reached their count, so that further tokens of this round are late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<NodeName>,
    /// Counting nodes whose round is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fresh: Vec<NodeName>,
}

/// `Start`: the run starts; the input is the state of the record's base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    /// The entry node.
    pub entry: NodeName,
    /// The fingerprint of each node of the graph.
    pub graph: Arc<Prints>,
    /// The generation of the run, which distinguishes it from other runs with the same id.
    pub life: Uuid,
    /// The effect of each node with an effect other than the default.
    #[serde(default, skip_serializing_if = "no_effects")]
    pub effects: Arc<ByNode<Effect>>,
    /// The targets of each node's edges.
    #[serde(default, skip_serializing_if = "no_edges")]
    pub edges: Arc<EdgeTargets>,
    /// The nodes whose goals the run must meet before it ends.
    #[serde(default, skip_serializing_if = "no_gates")]
    pub gates: Arc<BTreeSet<NodeName>>,
    /// The configuration of the run, which nodes read and cannot change.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub config: Option<FanOutItem>,
    /// The channels that views hide.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secret: Secrets,
    /// The first messages in the run's inbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<FirstMessage>,
}

/// A first message of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstMessage {
    pub body: FanOutItem,
    pub at: Timestamp,
}

fn no_effects(effects: &ByNode<Effect>) -> bool {
    effects.is_empty()
}

fn no_edges(edges: &EdgeTargets) -> bool {
    edges.is_empty()
}

fn no_gates(gates: &BTreeSet<NodeName>) -> bool {
    gates.is_empty()
}

/// `Node`: ended activations in order, and their common state change: as text, or parsed for a fold.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct NodesDone<P = Patch> {
    pub done: Vec<NodeDone>,
    #[serde(default)]
    pub patch: P,
}

/// Reads an optional field: a `null` in it is a value, not its absence.
pub(crate) fn present<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(
    d: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_one(value: &u32) -> bool {
    *value == 1
}

/// A fired edge, or a return to a retry target. A plain one is stored as its target's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiredEdge {
    pub to: NodeName,
    /// The items of a fan-out, one token each.
    pub items: Option<Vec<FanOutItem>>,
    /// Whether the graph has no such edge, because the run returns to a retry target.
    pub back: bool,
    /// The reason of a replan, if this is one.
    pub reason: Option<String>,
}

impl FiredEdge {
    pub fn plain(to: NodeName) -> Self {
        Self { to, items: None, back: false, reason: None }
    }

    /// Returns whether this is a single token for its target, without any extras.
    pub(crate) fn is_plain(&self) -> bool {
        self.items.is_none() && !self.back && self.reason.is_none()
    }

    pub(crate) fn tokens(&self) -> usize {
        self.items.as_ref().map_or(1, Vec::len)
    }
}

/// The stored form of a fired edge with more than a target.
#[derive(Serialize, Deserialize)]
struct FiredFields {
    to: NodeName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    items: Option<Vec<FanOutItem>>,
    #[serde(default, skip_serializing_if = "is_default")]
    back: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Serialize for FiredEdge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_plain() {
            return self.to.serialize(serializer);
        }
        let Self { to, items, back, reason } = self.clone();
        FiredFields { to, items, back, reason }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FiredEdge {
    // By hand, because an untagged enum would lose the exact text of the items.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FiredEdgeVisitor;
        impl<'de> Visitor<'de> for FiredEdgeVisitor {
            type Value = FiredEdge;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a node's name, or an object with `to`")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<FiredEdge, E> {
                NodeName::new(name).map(FiredEdge::plain).map_err(E::custom)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<FiredEdge, A::Error> {
                let FiredFields { to, items, back, reason } =
                    Deserialize::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(FiredEdge { to, items, back, reason })
            }
        }
        deserializer.deserialize_any(FiredEdgeVisitor)
    }
}

/// The item of a fan-out, as JSON text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FanOutItem(pub Arc<RawValue>);

impl PartialEq for FanOutItem {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for FanOutItem {}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// Every branch ended and every goal is met.
    Completed,
    /// The run failed for this reason.
    Failed(Failure),
}

/// `Attempt`: an attempt failed, and another follows or a question asks about its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptFailed {
    pub node: NodeName,
    pub visit: Visit,
    /// Number of failed attempts, including this one.
    pub failed: u32,
    pub failure: Failure,
    /// Earliest start of the next attempt. Absent if the outcome is unknown, so that only an answer can repeat the attempt. An older reader rejects
    /// such a record and therefore does not repeat the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// `Intent`: an attempt that must not be repeated is about to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    pub node: NodeName,
    pub visit: Visit,
}

/// `Status`: the status changed without the end of an activation, or a question was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StatusChange {
    /// Only answers can move the run.
    #[serde(rename = "interrupted")]
    Interrupted,
    /// The run failed as a whole.
    #[serde(rename = "failed")]
    Failed(Failure),
    /// The owner carried out a cancellation.
    #[serde(rename = "cancelled")]
    Cancelled,
    /// A node asks a question; the status stays.
    #[serde(rename = "asked")]
    Asked(QuestionRecord),
    /// A question expired without an answer.
    #[serde(rename = "expired")]
    Expired(ExpiredRecord),
    /// The run became idle: only a signal or a time moves it.
    #[serde(rename = "rested")]
    Rested(IdleRecord),
}

/// `Signal`: a signaller sent a signal to the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Signal {
    pub what: SignalKind,
    /// The signaller's name, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Time of the signal, by the signaller's clock.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at: Timestamp,
    /// Whether the pause or unpause comes from the parent. It does not affect the run's own pause.
    #[serde(default, skip_serializing_if = "is_default")]
    pub of_parent: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalKind {
    /// The outcome of an activation that must not be repeated and whose outcome was unknown.
    Respond { question: String, resolution: Resolution },
    /// The answer to a node's question.
    Answer { question: String, answer: Answer },
    /// A message for the next receiving node.
    Message {
        body: Arc<RawValue>,
        /// The idempotency key of the message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<MessageKey>,
    },
    /// Pins the record with this number: a prune keeps it and all later records.
    Pin { seq: Seq },
    /// Removes the pin of the record with this number.
    Unpin { seq: Seq },
    /// Pauses the run until it is unpaused.
    Pause { reason: String },
    /// Unpauses the run.
    Unpause,
    /// Cancels the run.
    Cancel { reason: String },
    /// A change of outbox messages of this generation of the run, or of any generation if none is named.
    Letters {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        life: Option<Uuid>,
        // Boxed, because every signal passes through the driver by value.
        change: Box<LetterChange>,
    },
    /// Moves an idle run to these nodes, for this reason.
    GoTo { nodes: Vec<NodeName>, reason: String },
    /// Retries a failed run from its frontier, with attempts counted from zero.
    Retry {
        /// Tokens that start.
        #[serde(default, skip_serializing_if = "is_default")]
        settled: TokenChanges,
    },
}

impl SignalKind {
    /// Creates the signal of an answer, by any author.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Answer::checked`].
    pub fn answer(question: String, answer: Answer) -> crate::error::Result<Self> {
        Ok(match answer.into_stored()? {
            Answer::Resolve(resolution) => Self::Respond { question, resolution },
            answer => Self::Answer { question, answer },
        })
    }
}

/// `Claim`: an executor claimed the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    pub executor: ExecutorId,
    /// The fingerprint of each node, if the graph changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Arc<Prints>>,
    /// The targets of each node's edges in the changed graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edges: Option<Arc<EdgeTargets>>,
    /// Secret channels of the current graph that were not secret before.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secret: Secrets,
    /// Tokens that start in the current graph.
    #[serde(default, skip_serializing_if = "is_default")]
    pub settled: TokenChanges,
}

/// `Release`: the owner released the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRecord {
    pub reason: String,
    /// When time moves the run, if no event does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
    /// Whether a message moves the run earlier.
    #[serde(default, skip_serializing_if = "is_default")]
    pub receiving: bool,
    /// Intents of started attempts that must not be repeated and whose records the store lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<Intent>,
    /// The waits for a message, as of an idle record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<Receiver>,
    /// The polls of a run that waits for children: `wake` is the time of the next poll, or of an earlier timer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks: Option<ChildPolls>,
    /// Whether the owner ended in order: the claim before it then does not count as fruitless.
    #[serde(default, skip_serializing_if = "is_default")]
    pub orderly: bool,
}
