//! What records say: their bodies, in JSON.
//!
//! Bodies name nodes and channels and never need the user's types or the graph: the log alone can be folded.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use uuid::Uuid;

pub(crate) use super::done::NodeDone;
use super::effect::Effect;
use super::letter::LetterChange;
use super::pause::{
    ChildPolls, EditRecord, Expired, IdleRecord, MessageKey, QuestionRecord, Receiver, StepRecord,
};
use super::prints::{ByNode, EdgeTargets, Prints};
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
pub(crate) struct Body {
    pub(crate) event: Event,
    pub(crate) base: Option<Base>,
}

/// What happened, by the kind of its record.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Start(Started),
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

impl Event {
    /// Returns the change of the state that the record holds, if one of its kind does.
    pub(crate) fn patch(&self) -> Option<&Patch> {
        match self {
            Self::Node(nodes) => Some(&nodes.patch),
            Self::Edit(edited) => Some(&edited.patch),
            _ => None,
        }
    }
}

/// The full state of a run after a record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Base {
    /// The channels.
    pub(crate) state: Box<RawValue>,
    /// Everything else: frontier, counters, history.
    pub(crate) machine: Box<RawValue>,
    /// The version of the state's type that wrote it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) version: u32,
}

/// Tokens of a node that become activations.
///
/// Without `each`, the plain tokens make one activation together and every item makes one of its own; with it, every token
/// makes one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Start {
    Joined(NodeName),
    Each { each: NodeName },
}

impl Start {
    pub(crate) fn node(&self) -> &NodeName {
        match self {
            Self::Joined(node) | Self::Each { each: node } => node,
        }
    }
}

/// How tokens became activations, beyond those of a record's own fired edges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenChanges {
    /// Which tokens start; absent if every fired edge starts its target, which is the usual case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<Vec<Start>>,
    /// Nodes whose count was reached, so that further tokens of this round are late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) spent: Vec<NodeName>,
    /// Such nodes whose round is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) fresh: Vec<NodeName>,
}

/// `Start`: the run begins; the input is the state of the record's base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Started {
    /// Where it begins.
    pub(crate) entry: NodeName,
    /// What each node of the graph is like.
    pub(crate) graph: Arc<Prints>,
    /// What tells this life of the run from another of the same name.
    pub(crate) life: Uuid,
    /// What repeating each node means, where that is not the usual.
    #[serde(default, skip_serializing_if = "no_effects")]
    pub(crate) effects: Arc<ByNode<Effect>>,
    /// Where the edges of each node lead.
    #[serde(default, skip_serializing_if = "no_edges")]
    pub(crate) edges: Arc<EdgeTargets>,
    /// The nodes whose goal must be met for the run to end.
    #[serde(default, skip_serializing_if = "no_gates")]
    pub(crate) gates: Arc<BTreeSet<NodeName>>,
    /// What the run is configured with, which its nodes read and none changes.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<Item>,
    /// The channels whose values no view shows.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub(crate) secret: Secrets,
    /// The messages it was started with, the first in its inbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) messages: Vec<FirstMessage>,
}

/// A message that a run was started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FirstMessage {
    pub(crate) body: Item,
    pub(crate) at: Timestamp,
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

/// `Node`: activations that ended, in order, and the change of the state they made together: as text, or read to be folded.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct NodesDone<P = Patch> {
    pub(crate) done: Vec<NodeDone>,
    #[serde(default)]
    pub(crate) patch: P,
}

/// Reads a field that is left out where there is none: a `null` in it is a value, not the absence of one.
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

/// An edge that fired, or a return to a retry target. A plain one is stored as its target's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FiredEdge {
    pub(crate) to: NodeName,
    /// The items of a fan-out: one token each.
    pub(crate) items: Option<Vec<Item>>,
    /// Whether there is no such edge: the run returns to a retry target.
    pub(crate) back: bool,
    /// Why the run goes back to the target, if it does so on purpose.
    pub(crate) reason: Option<String>,
}

impl FiredEdge {
    pub(crate) fn plain(to: NodeName) -> Self {
        Self { to, items: None, back: false, reason: None }
    }

    /// Whether it is one token for its target and no more.
    pub(crate) fn is_plain(&self) -> bool {
        self.items.is_none() && !self.back && self.reason.is_none()
    }

    pub(crate) fn tokens(&self) -> usize {
        self.items.as_ref().map_or(1, Vec::len)
    }
}

/// How a fired edge is stored when there is more to it than its target.
#[derive(Serialize, Deserialize)]
struct FiredFields {
    to: NodeName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    items: Option<Vec<Item>>,
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
        struct Either;
        impl<'de> Visitor<'de> for Either {
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
        deserializer.deserialize_any(Either)
    }
}

/// The item of a fan-out, as JSON text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Item(pub(crate) Arc<RawValue>);

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for Item {}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// Every branch ended and every goal is met.
    Completed,
    /// It failed for this reason.
    Failed(Failure),
}

/// `Attempt`: one try failed, and another follows or a question asks what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttemptFailed {
    pub(crate) node: NodeName,
    pub(crate) visit: Visit,
    /// How many attempts have failed, this one included.
    pub(crate) failed: u32,
    pub(crate) failure: Failure,
    /// When the next may start; absent if the attempt is in doubt, so that only an answer may say that it is repeated. An older
    /// reader does not read such a record, rather than repeating the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_at: Option<Timestamp>,
}

/// `Intent`: an attempt that must not be repeated is about to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    pub(crate) node: NodeName,
    pub(crate) visit: Visit,
}

/// `Status`: the status changed without an activation ending, or a question was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum StatusChange {
    /// Only answers can move the run.
    #[serde(rename = "interrupted")]
    Interrupted,
    /// The run failed as a whole.
    #[serde(rename = "failed")]
    Failed(Failure),
    /// The owner carried out a cancellation.
    #[serde(rename = "cancelled")]
    Cancelled,
    /// A node asks; the status stays.
    #[serde(rename = "asked")]
    Asked(QuestionRecord),
    /// No answer came in time.
    #[serde(rename = "expired")]
    Expired(Expired),
    /// Nothing moves the run any more but what is said to it, or time.
    #[serde(rename = "rested")]
    Rested(IdleRecord),
}

/// `Signal`: a signaller said something to the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Signal {
    pub(crate) what: SignalKind,
    /// The signaller, if it is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    /// When, by the signaller's clock.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) at: Timestamp,
    /// Whether a pause, or the end of one, is the parent's: it leaves a pause of the run's own as it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) of_parent: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SignalKind {
    /// What became of an activation that must not be repeated and is in doubt.
    Respond { question: String, resolution: Resolution },
    /// The answer to a question that a node asked.
    Answer { question: String, answer: Answer },
    /// A message for the node that receives next.
    Message {
        body: Arc<RawValue>,
        /// What tells the same message from another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<MessageKey>,
    },
    /// The record with this number, and what came after it, is not to be pruned.
    Pin { seq: Seq },
    /// The record with this number may be pruned again.
    Unpin { seq: Seq },
    /// The run is to stop until it is let go on.
    Pause { reason: String },
    /// A paused run is to go on.
    Unpause,
    /// The run is to stop for good.
    Cancel { reason: String },
    /// Something became of letters of this life of the run; of whichever if none is named.
    Letters {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        life: Option<Uuid>,
        // Boxed, because whatever is said to a run passes through its driver by value.
        change: Box<LetterChange>,
    },
    /// A run at rest is to go on at these nodes instead of where it is, for this reason.
    GoTo { nodes: Vec<NodeName>, reason: String },
    /// A failed run is to go on from its frontier, attempts counted anew.
    Retry {
        /// Tokens that start.
        #[serde(default, skip_serializing_if = "is_default")]
        settled: TokenChanges,
    },
}

impl SignalKind {
    /// Makes the signal of an answer, whoever gives it.
    ///
    /// # Errors
    ///
    /// As [`Answer::checked`].
    pub(crate) fn answer(question: String, answer: Answer) -> crate::error::Result<Self> {
        Ok(match answer.checked()? {
            Answer::Resolve(resolution) => Self::Respond { question, resolution },
            answer => Self::Answer { question, answer },
        })
    }
}

/// `Claim`: an executor took the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaimRecord {
    pub(crate) executor: ExecutorId,
    /// What each node of the graph is like, if the graph changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) graph: Option<Arc<Prints>>,
    /// Where the edges of each node lead then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) edges: Option<Arc<EdgeTargets>>,
    /// The channels that the graph of today makes secret, beyond those that were.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub(crate) secret: Secrets,
    /// Tokens that the graph of today lets start.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) settled: TokenChanges,
}

/// `Release`: the owner let the run go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReleaseRecord {
    pub(crate) reason: String,
    /// When time moves the run on, if nothing else can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wake: Option<Timestamp>,
    /// Whether a message moves it before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) receiving: bool,
    /// Attempts that must not be repeated and had begun, though the store lost the records that said so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) begun: Vec<Intent>,
    /// The waits for a message, as of a rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) receivers: Vec<Receiver>,
    /// When the run waits for children: `wake` is when they are looked at, unless time moves the run before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) looks: Option<ChildPolls>,
    /// Whether the owner ended in order: then the claim before it was no try that came to nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) orderly: bool,
}
