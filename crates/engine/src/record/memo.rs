//! The notes of an activation that prevent a repetition, as a base stores them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::codec::to_raw;
use super::pause::Message;
use crate::ask::{Answer, Request};
use crate::clock::Timestamp;
use crate::error::Result;

/// A note of an activation under one name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memo {
    /// The result of a step.
    Result(Arc<RawValue>),
    /// The end of a timer, or of a wait for a message.
    Until(Timestamp),
    /// The message that was taken.
    Message(Message),
    /// No message arrived in time.
    Idle,
    /// A question and its outcome.
    Asked(Arc<AskedQuestion>),
}

static NONE: BTreeMap<String, Memo> = BTreeMap::new();

/// The notes of an activation by name. Shared until they are changed, and without memory while empty.
#[derive(Clone, Debug, Default)]
pub struct Memos(Option<Arc<BTreeMap<String, Memo>>>);

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

/// The name of the last progress report of an attempt.
pub const PROGRESS: &str = "#progress";

/// The prefix of the memos that record the ends of waits; a number follows.
const ENDED: &str = "#ended";

/// Returns the position among the ended waits that a memo's name contains.
fn place_of(name: &str) -> Option<u64> {
    name.strip_prefix(ENDED)?.parse().ok()
}

impl Memos {
    /// Lists the waits that ended while the activation had other work or waits, in the order of their ends. If only one wait can end, its end is
    /// not noted.
    pub fn ended(&self) -> Vec<String> {
        let noted = self.range(ENDED.to_owned()..).take_while(|(name, _)| name.starts_with(ENDED));
        let mut ended: Vec<(u64, String)> = noted
            .filter_map(|(name, memo)| match memo {
                Memo::Result(of) => Some((place_of(name)?, serde_json::from_str(of.get()).ok()?)),
                _ => None,
            })
            .collect();
        ended.sort_unstable();
        ended.into_iter().map(|(_, of)| of).collect()
    }

    /// Returns whether the end of any wait is noted.
    pub fn say_order(&self) -> bool {
        self.range(ENDED.to_owned()..).next().is_some_and(|(name, _)| place_of(name).is_some())
    }

    /// Returns whether a memo with this name belongs to the node. Names of the library start with a character that step names cannot contain.
    pub fn is_of_node(name: &str) -> bool {
        !name.starts_with('#')
    }

    /// Returns the name for the note of the next ended wait.
    pub fn next_ended(&self) -> String {
        let noted = self.range(ENDED.to_owned()..).take_while(|(name, _)| name.starts_with(ENDED));
        let last = noted.filter_map(|(name, _)| place_of(name)).max().unwrap_or(0);
        format!("{ENDED}{}", last.saturating_add(1))
    }

    /// Drops the memo with this name, and the note of its end.
    pub(crate) fn forget(&mut self, name: &str) {
        if self.contains_key(name) {
            self.forget_if(|known, _| known == name);
        }
    }

    /// Drops all memos that match `gone`, and the notes of their ends.
    pub(crate) fn forget_if(&mut self, gone: impl Fn(&str, &Memo) -> bool) {
        if !self.iter().any(|(name, memo)| gone(name, memo)) {
            return;
        }
        self.retain(|name, memo| !gone(name, memo));
        let known: BTreeSet<String> = self.keys().cloned().collect();
        self.retain(|name, memo| match memo {
            Memo::Result(of) if place_of(name).is_some() => {
                serde_json::from_str::<String>(of.get()).is_ok_and(|of| known.contains(&of))
            }
            _ => true,
        });
    }
}

/// Returns the note that the wait with this name ended.
pub fn ended(name: &str) -> Result<Arc<RawValue>> {
    Ok(to_raw(&name)?.into())
}

impl From<BTreeMap<String, Memo>> for Memos {
    fn from(memos: BTreeMap<String, Memo>) -> Self {
        Self((!memos.is_empty()).then(|| Arc::new(memos)))
    }
}

/// A question and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskedQuestion {
    pub ask: Request,
    #[serde(default, skip_serializing_if = "Reply::is_open")]
    pub reply: Reply,
}

/// The outcome of a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// No outcome yet.
    #[default]
    Open,
    /// An answer arrived.
    Answered {
        answer: Answer,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        at: Timestamp,
    },
    /// No answer arrived in time.
    Expired { at: Timestamp },
}

impl Reply {
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Returns whether the node received a value. Otherwise an operator's retry asks again.
    pub(crate) fn is_good(&self) -> bool {
        matches!(self, Self::Open | Self::Answered { answer: Answer::Accept(_), .. })
    }
}
