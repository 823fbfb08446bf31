//! The notes of an activation that prevent a repetition, as a base stores them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::codec::to_raw;
use super::pause::MessageRecord;
use crate::ask::{Answer, QuestionRequest};
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
    Message(MessageRecord),
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

/// The name of the memo of an idle activation that runs once more if the run is cancelled. Only a process with the graph knows that otherwise.
pub const CLEANUP: &str = "#cleanup";

/// The prefix of the memos that record the ends of waits. A number of [`ENDED_DIGITS`] digits follows, so that the names sort by it.
const ENDED: &str = "#ended";
const ENDED_DIGITS: usize = 10;

/// The first name after those of the ends of waits.
const AFTER_ENDED: &str = "#endee";

/// Returns the position among the ended waits that a memo's name contains.
fn place_of(name: &str) -> Option<u64> {
    name.strip_prefix(ENDED)?.parse().ok()
}

impl Memos {
    /// Lists the waits that ended while the activation had other work or waits, in the order of their ends. If only one wait can end, its end is
    /// not noted.
    pub fn ended_waits(&self) -> Vec<String> {
        let noted = self.ends().filter_map(|(_, memo)| match memo {
            Memo::Result(of) => serde_json::from_str(of.get()).ok(),
            _ => None,
        });
        noted.collect()
    }

    /// Returns whether the end of any wait is noted.
    pub fn has_order(&self) -> bool {
        self.ends().next().is_some()
    }

    /// Lists the notes of ended waits, in the order of their ends.
    fn ends(&self) -> impl DoubleEndedIterator<Item = (&String, &Memo)> {
        let bounds = (Bound::Excluded(ENDED), Bound::Excluded(AFTER_ENDED));
        self.range::<str, _>(bounds).inspect(|_| visits::count())
    }

    /// Returns whether the notes say that the activation runs once more if the run is cancelled.
    pub fn require_cleanup(&self) -> bool {
        self.contains_key(CLEANUP)
    }

    /// Returns whether a memo with this name belongs to the node. Names of the library start with a character that step names cannot contain.
    pub fn is_of_node(name: &str) -> bool {
        !name.starts_with('#')
    }

    /// Returns the name for the note of the next ended wait.
    pub fn next_ended(&self) -> String {
        let last = self.ends().next_back().and_then(|(name, _)| place_of(name)).unwrap_or(0);
        format!("{ENDED}{:0ENDED_DIGITS$}", last.saturating_add(1))
    }

    /// Drops the memo with this name, and the note of its end.
    pub(crate) fn remove_memo(&mut self, name: &str) {
        if self.contains_key(name) {
            self.remove_memos(|known, _| known == name);
        }
    }

    /// Drops all memos that match `gone`, and the notes of their ends.
    pub(crate) fn remove_memos(&mut self, gone: impl Fn(&str, &Memo) -> bool) {
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
pub fn end_note(name: &str) -> Result<Arc<RawValue>> {
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
    pub ask: QuestionRequest,
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

/// Counts the notes that [`Memos::ends`] visits, for tests: the work of a replay is a number, not a time.
mod visits {
    #[cfg(test)]
    thread_local! {
        static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    pub(super) fn count() {
        #[cfg(test)]
        COUNT.with(|count| count.set(count.get() + 1));
    }

    #[cfg(test)]
    pub(super) fn take() -> u64 {
        COUNT.with(|count| count.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes so many ends of racing waits, as a load does, and lists them, as an attempt does. Returns how many notes were visited.
    fn visits_of(count: u64) -> u64 {
        let mut memos = Memos::default();
        for number in 0..count {
            let (place, name) = (memos.next_ended(), format!("step.{number}"));
            memos.insert(place, Memo::Result(end_note(&name).unwrap()));
            memos.insert(name, Memo::Idle);
        }
        assert!(memos.has_order());
        let names = memos.ended_waits();
        assert_eq!(names.len() as u64, count);
        assert!(names.iter().enumerate().all(|(at, name)| *name == format!("step.{at}")));
        visits::take()
    }

    /// Guarantees: FLOW-10.
    #[test]
    fn racing_ends_are_noted_in_linear_work() {
        for count in [10, 1_000, 20_000] {
            let visits = visits_of(count);
            assert!(visits <= 2 * count + 1, "{count} ends took {visits} visits");
        }
    }
}
