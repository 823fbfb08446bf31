//! What nodes note while they run and what is said to them: steps, timers, messages, questions, and how a run comes to rest.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ask::Request;
use crate::clock::Timestamp;
use crate::id::{Fingerprint, NodeName, Visit};
use crate::record::RunStatus;
use crate::state::Patch;

/// `Step`: something inside an activation that is not to happen twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StepRecord {
    pub(crate) node: NodeName,
    pub(crate) visit: Visit,
    /// What the activation finds it again by.
    pub(crate) name: String,
    pub(crate) what: ActivationNote,
    /// Whether the activation had other work or waits when this ended, so that it must end first again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) first: bool,
}

/// What an activation notes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ActivationNote {
    /// What a step came to.
    Result(Arc<RawValue>),
    /// Until when a timer runs, or a message is waited for.
    Until(Timestamp),
    /// The message with this number was taken.
    Took(u64),
    /// The message with this number, which was taken, cannot be read and is set aside.
    Refused { message: u64, why: String },
    /// No message came in time.
    Idle,
}

/// A question was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct QuestionRecord {
    pub(crate) node: NodeName,
    pub(crate) visit: Visit,
    pub(crate) name: String,
    pub(crate) ask: Request,
}

/// The deadline of a question is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Expired {
    pub(crate) node: NodeName,
    pub(crate) visit: Visit,
    pub(crate) name: String,
    pub(crate) at: Timestamp,
}

/// Nothing can move the run but what is said to it, or time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdleRecord {
    /// The status it has until then.
    pub(crate) status: RunStatus,
    /// Whether a message moves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) receiving: bool,
    /// When time moves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wake: Option<Timestamp>,
    /// The waits for a message, the longest first, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) receivers: Vec<Receiver>,
}

/// A wait for a message: node, visit, and the name of the wait.
pub(crate) type Receiver = (NodeName, Visit, String);

/// When the children are looked at of a run that waits for them: what came of one may not have been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildPolls {
    /// How often they were looked at since the run came to rest.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) count: u32,
    /// When time moves the run, if nothing else does before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timer: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// `Edit`: an operator changed the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EditRecord {
    pub(crate) patch: Patch,
    /// The operator, if named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
}

/// What a conversation's node sends along its edge when it ends without a message.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConversationEnd {
    /// No message came for too long.
    Idle,
    /// A message said so.
    Command,
    /// It had all its messages before.
    Turns,
}

/// What tells the same message from another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MessageKey {
    pub(crate) name: String,
    /// The fingerprint of what was sent with it.
    pub(crate) print: Fingerprint,
}

/// A message that was sent to a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    /// How many were sent before it.
    pub(crate) number: u64,
    pub(crate) body: Arc<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    pub(crate) at: Timestamp,
}
