//! The events of running nodes and of idle runs: steps, timers, messages, questions, and the record of an idle run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ask::QuestionRequest;
use crate::clock::Timestamp;
use crate::id::{Fingerprint, NodeName, Visit};
use crate::record::RunStatus;
use crate::state::Patch;

/// The event of a `Step` record: a part of an activation that must not be repeated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepRecord {
    pub node: NodeName,
    pub visit: Visit,
    /// The name under which the result is recorded.
    pub name: String,
    pub what: ActivationNote,
    /// Whether the activation had other work or waits when this operation ended. If so, this operation must end first again when the activation runs
    /// again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
}

/// A result that an activation records under a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationNote {
    /// The result of a step.
    Result(Arc<RawValue>),
    /// The time at which a timer or a wait for a message ends.
    Until(Timestamp),
    /// The message with this number was taken.
    Took(u64),
    /// The message with this number was taken, but could not be decoded and is set aside.
    Refused { message: u64, why: String },
    /// No message arrived before the wait ended.
    Idle,
}

/// A question was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuestionRecord {
    pub node: NodeName,
    pub visit: Visit,
    pub name: String,
    pub ask: QuestionRequest,
}

impl QuestionRecord {
    /// Returns the id of the question.
    pub fn id(&self) -> String {
        question_id(&self.node, self.visit, &self.name)
    }
}

fn question_id(node: &NodeName, visit: Visit, name: &str) -> String {
    format!("{node}@{visit}:{name}")
}

/// The deadline of a question has passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredRecord {
    pub node: NodeName,
    pub visit: Visit,
    pub name: String,
    pub at: Timestamp,
}

impl ExpiredRecord {
    /// Returns the id of the question.
    pub fn id(&self) -> String {
        question_id(&self.node, self.visit, &self.name)
    }
}

/// The run is idle. It continues only after a signal or at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleRecord {
    /// The status of the run while it is idle.
    pub status: RunStatus,
    /// Whether the run continues when a message arrives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receiving: bool,
    /// The time at which the run continues if no event arrives earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
    /// The waits for a message if there are several, ordered from the longest wait to the shortest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<Receiver>,
}

/// A wait for a message, with the node, the visit, and the name of the wait.
pub type Receiver = (NodeName, Visit, String);

/// The polls by which an idle run checks its children, in case a notification was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildPolls {
    /// Number of polls since the run became idle.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: u32,
    /// The time at which the run continues because of a timer, if no event arrives earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// The event of an `Edit` record: an operator changed the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EditRecord {
    pub patch: Patch,
    /// The name of the operator, if the caller gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The reason why a conversation ended without a message. It is the output of the node.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationEnd {
    /// No message arrived before the idle timeout.
    Idle,
    /// A message with an exit text ended the conversation.
    Command,
    /// The maximum number of messages was reached.
    Turns,
}

/// The idempotency key of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageKey {
    pub name: String,
    /// The fingerprint of the content that was sent with the key.
    pub print: Fingerprint,
}

/// A message that was sent to a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MessageRecord {
    /// The number of messages that were sent to the run before this one.
    pub number: u64,
    pub body: Arc<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub at: Timestamp,
}
