//! The memos of an activation: results that it recorded under names, so that their work is not repeated. This module has the form in which a base (a
//! record with the full state) stores them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::codec::to_raw;
use super::pause::MessageRecord;
use crate::ask::{Answer, QuestionRequest};
use crate::clock::Timestamp;
use crate::error::Result;

/// A result that an activation recorded under a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memo {
    /// The result of a step.
    Result(Arc<RawValue>),
    /// The time at which a timer or a wait for a message ends.
    Until(Timestamp),
    /// The message that was taken.
    Message(MessageRecord),
    /// No message arrived before the wait ended.
    Idle,
    /// A question and its outcome.
    Asked(Arc<AskedQuestion>),
}

static NONE: BTreeMap<String, Memo> = BTreeMap::new();

/// The memos of an activation by name. Clones share the memos until one of them is changed. Empty memos use no memory.
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

/// The name of the memo with the last progress value of an attempt.
pub const PROGRESS: &str = "#progress";

/// The name of the memo which says that an idle activation needs a cleanup if the run is cancelled. Without this memo, only a process that has the
/// graph would know this.
pub const CLEANUP: &str = "#cleanup";

/// The prefix of the names of memos that record which wait ended. A number with [`ENDED_DIGITS`] digits follows, so the names sort by this number.
const ENDED: &str = "#ended";
const ENDED_DIGITS: usize = 10;

/// The first name that sorts after all names with this prefix.
const AFTER_ENDED: &str = "#endee";

/// Returns the position among the ended waits that a memo's name contains.
fn place_of(name: &str) -> Option<u64> {
    name.strip_prefix(ENDED)?.parse().ok()
}

impl Memos {
    pub(crate) fn has_none(&self) -> bool {
        self.is_empty()
    }

    /// Lists the waits that ended while the activation had other work or waits, in the order in which they ended. If an activation has only one wait,
    /// the end of this wait is not in the list.
    pub fn ended_waits(&self) -> Vec<String> {
        let noted = self.ends().filter_map(|(_, memo)| match memo {
            Memo::Result(of) => serde_json::from_str(of.get()).ok(),
            _ => None,
        });
        noted.collect()
    }

    /// Returns whether the order of ended waits is recorded for at least one wait.
    pub fn has_order(&self) -> bool {
        self.ends().next().is_some()
    }

    /// Lists the memos that record which wait ended, in the order in which the waits ended.
    fn ends(&self) -> impl DoubleEndedIterator<Item = (&String, &Memo)> {
        let bounds = (Bound::Excluded(ENDED), Bound::Excluded(AFTER_ENDED));
        self.range::<str, _>(bounds).inspect(|_| visits::count())
    }

    /// Returns whether a memo says that the activation needs a cleanup if the run is cancelled.
    pub fn require_cleanup(&self) -> bool {
        self.contains_key(CLEANUP)
    }

    /// Returns whether the node itself chose this name of a memo. Names that Ferrata chooses start with a character that names of steps cannot
    /// contain.
    pub fn is_of_node(name: &str) -> bool {
        !name.starts_with('#')
    }

    /// Returns the name of the memo for the next wait that ends.
    pub fn next_ended(&self) -> String {
        let last = self.ends().next_back().and_then(|(name, _)| place_of(name)).unwrap_or(0);
        format!("{ENDED}{:0ENDED_DIGITS$}", last.saturating_add(1))
    }

    /// Drops the memo with this name, and the memo which says that its wait ended.
    pub(crate) fn remove_memo(&mut self, name: &str) {
        if self.contains_key(name) {
            self.remove_memos(|known, _| known == name);
        }
    }

    /// Drops all memos for which `gone` returns true, and the memos which say that their waits ended.
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

/// Returns the content of the memo which says that the wait with this name ended.
pub fn end_note(name: &str) -> Result<Arc<RawValue>> {
    Ok(to_raw(&name)?.into())
}

impl From<BTreeMap<String, Memo>> for Memos {
    fn from(memos: BTreeMap<String, Memo>) -> Self {
        Self((!memos.is_empty()).then(|| Arc::new(memos)))
    }
}

impl Serialize for Memos {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Memos {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
}

/// A question and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskedQuestion {
    pub ask: QuestionRequest,
    #[serde(default, skip_serializing_if = "Reply::is_open")]
    pub reply: Reply,
}

/// The outcome of a question: open, answered or expired.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The question is open.
    #[default]
    Open,
    /// The question was answered.
    Answered {
        answer: Answer,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        at: Timestamp,
    },
    /// The deadline passed without an answer.
    Expired { at: Timestamp },
}

impl Reply {
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Returns whether the question was answered with a value. If it was not, a retry of the run asks it again.
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

    /// Notes `count` ends of racing waits, as a load does, and lists them, as an attempt does. Returns the number of visited notes.
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
