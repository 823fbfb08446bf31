//! The events of running nodes and idle runs: steps, timers, messages, questions, and the idle record.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ask::QuestionRequest;
use crate::clock::Timestamp;
use crate::id::{Fingerprint, NodeName, Visit};
use crate::record::RunStatus;
use crate::state::Patch;

/// `Step`: a part of an activation that must not be repeated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepRecord {
    pub node: NodeName,
    pub visit: Visit,
    /// The name of the note.
    pub name: String,
    pub what: ActivationNote,
    /// Whether the activation had other work or waits at this end, so that this must end first again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
}

/// A note of an activation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationNote {
    /// The result of a step.
    Result(Arc<RawValue>),
    /// The end of a timer, or of a wait for a message.
    Until(Timestamp),
    /// The message with this number was taken.
    Took(u64),
    /// The taken message with this number was unreadable and is set aside.
    Refused { message: u64, why: String },
    /// No message arrived in time.
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

/// The deadline of a question has passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredRecord {
    pub node: NodeName,
    pub visit: Visit,
    pub name: String,
    pub at: Timestamp,
}

/// The run is idle: only a signal or a time moves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleRecord {
    /// The status during the idle time.
    pub status: RunStatus,
    /// Whether a message moves the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receiving: bool,
    /// When time moves the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
    /// The waits for a message, if there are several, the longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<Receiver>,
}

/// A wait for a message: node, visit, and the name of the wait.
pub type Receiver = (NodeName, Visit, String);

/// The polls of an idle run for its children, in case a notification was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildPolls {
    /// Number of polls since the run became idle.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: u32,
    /// When time moves the run, if no event does earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// `Edit`: an operator changed the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EditRecord {
    pub patch: Patch,
    /// The operator, if named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The output of a conversation node that ends without a message.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationEnd {
    /// No message arrived before the timeout.
    Idle,
    /// A message ended the conversation.
    Command,
    /// The node already had all its messages.
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
    /// Number of earlier messages.
    pub number: u64,
    pub body: Arc<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub at: Timestamp,
}
