//! What an activation noted so that it does not happen twice, as a base keeps it.

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
    Asked(Arc<AskedQuestion>),
}

static NONE: BTreeMap<String, Memo> = BTreeMap::new();

/// The notes of an activation by name; shared until they are changed, and nothing at all while there are none.
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

/// The name of what an attempt said last of how far it has come.
pub(crate) const PROGRESS: &str = "#progress";

/// What the names of those memos begin with that say which wait ended, and their number follows.
const ENDED: &str = "#ended";

/// Returns the place among the waits that ended that a memo of this name says.
fn place_of(name: &str) -> Option<u64> {
    name.strip_prefix(ENDED)?.parse().ok()
}

impl Memos {
    /// Lists the waits that ended while the activation had other work or waits, in the order in which they did. Where only one thing
    /// can end, nothing is noted.
    pub(crate) fn ended(&self) -> Vec<String> {
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

    /// Whether it is noted of any wait when it ended.
    pub(crate) fn say_order(&self) -> bool {
        self.range(ENDED.to_owned()..).next().is_some_and(|(name, _)| place_of(name).is_some())
    }

    /// Whether a memo of this name is one of the node's own: names of the library begin with a sign that no name of a step has.
    pub(crate) fn is_of_node(name: &str) -> bool {
        !name.starts_with('#')
    }

    /// Returns under which name the next wait that ends is noted.
    pub(crate) fn next_ended(&self) -> String {
        let noted = self.range(ENDED.to_owned()..).take_while(|(name, _)| name.starts_with(ENDED));
        let last = noted.filter_map(|(name, _)| place_of(name)).max().unwrap_or(0);
        format!("{ENDED}{}", last.saturating_add(1))
    }

    /// Forgets the memo under this name, and when it ended.
    pub(crate) fn forget(&mut self, name: &str) {
        if self.contains_key(name) {
            self.forget_if(|known, _| known == name);
        }
    }

    /// Forgets all memos of which this holds, and when they ended.
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

/// Says that the wait of this name ended.
pub(crate) fn ended(name: &str) -> Result<Arc<RawValue>> {
    Ok(to_raw(&name)?.into())
}

impl From<BTreeMap<String, Memo>> for Memos {
    fn from(memos: BTreeMap<String, Memo>) -> Self {
        Self((!memos.is_empty()).then(|| Arc::new(memos)))
    }
}

/// A question, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AskedQuestion {
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
    /// An answer came.
    Answered {
        answer: Answer,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        at: Timestamp,
    },
    /// No answer came in time.
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
