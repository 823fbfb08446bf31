//! The bodies of records, in JSON.
//!
//! Bodies refer to nodes and channels by name. So a log can be replayed without the user's types and without the graph.

use crate::claim::StartId;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

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

/// The body of a record of any kind. If the record is a base, the body also contains the full state.
#[derive(Clone, Debug)]
pub struct RecordBody {
    pub event: RecordEvent,
    pub base: Option<RecordBase>,
}

/// The event of a record. Its variant is determined by the record's kind.
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
    /// Returns the state change in the record, if there is one.
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
    /// The channels of the state, as a JSON object.
    pub state: Box<RawValue>,
    /// Everything else about the run: its frontier (unfinished activations), counters and history.
    pub machine: Box<RawValue>,
    /// The version of the state type that wrote the channels.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub version: u32,
}

/// Tokens (fired edges) of a node that start activations.
///
/// If `each` is false, all tokens without an item start one activation together, and each item starts an activation of its own. If `each` is true,
/// every token starts an activation of its own.
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

/// How tokens started activations, if this differs from the usual case, in which each fired edge of the record starts its target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenChanges {
    /// The tokens that start activations. Absent in the usual case, in which every fired edge starts its target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Vec<ActivationStart>>,
    /// Nodes with `Join::AtLeast` that have started in this round, so that further tokens of the round are dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<NodeName>,
    /// Nodes with `Join::AtLeast` whose round has ended, so that they may start again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fresh: Vec<NodeName>,
}

/// The event of a `Start` record: the run starts. The input is the state in the record's base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    /// The entry node.
    pub entry: NodeName,
    /// The fingerprint of each node of the graph.
    pub graph: Arc<Prints>,
    /// The start id of the run, which distinguishes it from other runs with the same id.
    pub start_id: StartId,
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
    /// The secret channels, whose values views hide.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secret: Secrets,
    /// The messages with which the run was started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<FirstMessage>,
}

/// A message with which a run was started.
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

/// The event of a `Node` record: ended activations in order, and the state change of all of them together. `P` is the form of this change: text, or
/// parsed operations for a replay.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct NodesDone<P = Patch> {
    pub done: Vec<NodeDone>,
    #[serde(default)]
    pub patch: P,
}

/// Decodes an optional field in which `null` is a value and does not mean that the field is absent.
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

/// An edge that fired, or a return to a retry target. An edge without further data is stored as the name of its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiredEdge {
    pub to: NodeName,
    /// The items with which a route fired the edge. Each item is one token.
    pub items: Option<Vec<FanOutItem>>,
    /// Whether the run returns to a retry target. The graph then has no such edge.
    pub back: bool,
    /// The reason, if the edge fired as a replan (a deliberate return).
    pub reason: Option<String>,
}

impl FiredEdge {
    pub fn plain(to: NodeName) -> Self {
        Self { to, items: None, back: false, reason: None }
    }

    /// Returns whether the edge has no items, no reason and no other data, so that it is one plain token for its target.
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

/// An item of a route, as JSON text.
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

/// The event of an `Attempt` record: an attempt failed. Another attempt follows, or a question asks about the outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptFailed {
    pub node: NodeName,
    pub visit: Visit,
    /// The number of failed attempts of the activation, including this one.
    pub failed: u32,
    pub failure: Failure,
    /// The earliest start of the next attempt. Absent if the outcome is unknown, because then the attempt is repeated only if an answer says so. An
    /// older version of Ferrata rejects a record without this field, and therefore does not repeat the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// The event of an `Intent` record: an attempt that must not be repeated is about to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    pub node: NodeName,
    pub visit: Visit,
}

/// The event of a `Status` record: the status of the run changed although no activation ended, or a question was asked or expired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StatusChange {
    /// The run is `Interrupted` and continues only after an answer.
    #[serde(rename = "interrupted")]
    Interrupted,
    /// The run failed as a whole.
    #[serde(rename = "failed")]
    Failed(Failure),
    /// The owner of the run has carried out a cancellation.
    #[serde(rename = "cancelled")]
    Cancelled,
    /// A node asks a question. The status does not change.
    #[serde(rename = "asked")]
    Asked(QuestionRecord),
    /// A question expired without an answer.
    #[serde(rename = "expired")]
    Expired(ExpiredRecord),
    /// The run became idle. It continues only after a signal or at a time.
    #[serde(rename = "rested")]
    Rested(IdleRecord),
}

/// The event of a `Signal` record: a caller sent a signal to the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Signal {
    pub what: SignalKind,
    /// The author of the signal, if the caller named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The time of the signal, by the clock of the process that sent it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at: Timestamp,
    /// Whether the parent of the run sent the pause or unpause. Pauses by the parent and pauses of the run itself do not affect each other.
    #[serde(default, skip_serializing_if = "is_default")]
    pub of_parent: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalKind {
    /// The decision about an activation that must not be repeated and has an unknown outcome.
    Respond { question: String, resolution: Resolution },
    /// The answer to a node's question.
    Answer { question: String, answer: Answer },
    /// A message for the next node that receives.
    Message {
        body: Arc<RawValue>,
        /// The idempotency key of the message, if the sender set one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<MessageKey>,
    },
    /// Pins the record with this number, so that a prune keeps this record and all later records.
    Pin { seq: Seq },
    /// Removes the pin of the record with this number.
    Unpin { seq: Seq },
    /// Pauses the run until it is unpaused.
    Pause { reason: String },
    /// Unpauses the run.
    Unpause,
    /// Cancels the run.
    Cancel { reason: String },
    /// A change of outbox messages. If a start of the run is named, the change applies only to this start.
    Letters {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_id: Option<StartId>,
        // Boxed, because every signal passes through the driver by value.
        change: Box<LetterChange>,
    },
    /// Moves an idle run to these nodes, for this reason.
    GoTo { nodes: Vec<NodeName>, reason: String },
    /// Retries a failed run: its unfinished activations run again, with attempts counted from zero.
    Retry {
        /// Tokens that start activations.
        #[serde(default, skip_serializing_if = "is_default")]
        settled: TokenChanges,
    },
}

impl SignalKind {
    /// Creates the signal that answers a question.
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

/// The event of a `Claim` record: a process claimed the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    pub executor: ExecutorId,
    /// The fingerprint of each node of the current graph, if the graph has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Arc<Prints>>,
    /// The targets of each node's edges in the changed graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edges: Option<Arc<EdgeTargets>>,
    /// The secret channels of the current graph that no earlier record names.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secret: Secrets,
    /// Waiting tokens that start activations in the current graph.
    #[serde(default, skip_serializing_if = "is_default")]
    pub settled: TokenChanges,
}

/// The event of a `Release` record: the owner released the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRecord {
    pub reason: String,
    /// The time at which the run continues if no event arrives earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
    /// Whether the run continues earlier if a message arrives.
    #[serde(default, skip_serializing_if = "is_default")]
    pub receiving: bool,
    /// The intents of attempts that must not be repeated and had started, but whose records the store lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<Intent>,
    /// The waits for a message, as in an idle record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<Receiver>,
    /// The polls of a run that waits for children. In this case, `wake` is the time of the next poll or of an earlier timer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks: Option<ChildPolls>,
    /// Whether the owner released the run in an orderly shutdown. In this case the preceding claim does not count as a claim without progress.
    #[serde(default, skip_serializing_if = "is_default")]
    pub orderly: bool,
}
