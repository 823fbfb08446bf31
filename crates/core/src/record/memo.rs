//! What an activation noted so that it does not happen twice, as a base keeps it.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
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

static NONE: BTreeMap<String, Memo> = BTreeMap::new();

/// The notes of an activation by name; shared until somebody changes them, and nothing at all while there are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memos(Option<Arc<BTreeMap<String, Memo>>>);

impl Deref for Memos {
    type Target = BTreeMap<String, Memo>;

    fn deref(&self) -> &Self::Target {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Memos {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl From<BTreeMap<String, Memo>> for Memos {
    fn from(memos: BTreeMap<String, Memo>) -> Self {
        Self((!memos.is_empty()).then(|| Arc::new(memos)))
    }
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
