//! What an activation noted so that it does not happen twice, as a base keeps it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::pause::Message;
use crate::ask::{Answer, Request};
use crate::clock::Timestamp;

/// What an activation noted under one name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Memo {
    /// What a step came to.
    Result(Arc<RawValue>),
    /// Until when a timer runs, or a message is waited for.
    Until(Timestamp),
    /// The message that was taken.
    Message(Message),
    /// No message came in time.
    Idle,
    /// A question, and what became of it.
    Asked(Arc<Asked>),
}

/// A question, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) ask: Request,
    #[serde(default, skip_serializing_if = "Reply::is_open")]
    pub(crate) reply: Reply,
}

/// What became of a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// Nothing yet.
    #[default]
    Open,
    /// Somebody answered.
    Answered {
        answer: Answer,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        at: Timestamp,
    },
    /// Nobody answered in time.
    Expired { at: Timestamp },
}

impl Reply {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether the node got what it asked for; otherwise a retry by an operator asks anew.
    pub(crate) fn is_good(&self) -> bool {
        matches!(self, Self::Open | Self::Answered { answer: Answer::Accept(_), .. })
    }
}
