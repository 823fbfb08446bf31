//! The memos of an activation about its children. A memo is a result that is recorded under a name.
//!
//! The names of these memos cannot be names of steps. `#child1.review` is recorded before the child `review` starts, `#began1.review` is recorded
//! after its start, and `#told1.review` contains its result. The number counts the starts of the child. Every version of Ferrata can replay these
//! memos, because they have the form of step results.
//!
//! | Name | Result |
//! |---|---|
//! | `#child1.review` | [`ChildNote`] |
//! | `#began1.review` | `true` |
//! | `#told1.review` | `{"completed":{"state":…,"version":…}}`, `{"failed":failure}`, `{"cancelled":{"reason":text}}` or `"gone"` |
//! | `#again…` | made by a retry of the run, for each `#told…` that is not completed |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Failure;
use super::codec::to_raw;
use super::memo::{Memo, Memos};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{RunId, WorkflowName};

const CHILD: &str = "#child";
const BEGAN: &str = "#began";
const TOLD: &str = "#told";
const AGAIN: &str = "#again";

/// The bond of a child, which decides what happens to the child when the activation that started it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParentBond {
    /// The child is cancelled if the activation ends before it.
    #[default]
    Cancel,
    /// The child continues if the activation ends before it.
    Leave,
    /// The run is detached: no parent waits for it.
    Detached,
}

impl ParentBond {
    /// Returns the text of the bond in the child's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Leave => "leave",
            Self::Detached => "detached",
        }
    }
}

/// The memo about a child that is recorded before the child starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildNote {
    /// The child's id, in the tenant of its parent.
    pub run: RunId,
    pub workflow: WorkflowName,
    /// The attempt of the activation that started the child or continued with it.
    pub attempt: u32,
    #[serde(default)]
    pub bond: ParentBond,
    /// The time at which the child is cancelled if its parent still waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// The recorded end of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildEnd {
    /// The child completed. The fields contain its final state and the version of this state.
    Completed {
        state: Box<RawValue>,
        version: u32,
    },
    Failed(Failure),
    Cancelled {
        reason: String,
    },
    /// The child was purged.
    Gone,
}

impl ChildEnd {
    pub fn to_raw(&self) -> Result<Arc<RawValue>> {
        Ok(to_raw(self)?.into())
    }

    /// Returns whether this stored text of a `ChildEnd` means that the child completed.
    pub fn is_good(text: &RawValue) -> bool {
        text.get().starts_with("{\"completed\"")
    }
}

/// A child, as the memos of its activation describe it.
#[derive(Clone, Debug)]
pub struct ActivationChild {
    pub name: String,
    /// The number of starts of the child, including the first.
    pub round: u32,
    pub note: ChildNote,
    /// Whether the start is recorded.
    pub began: bool,
    /// The end of the child, if it is recorded.
    pub told: Option<Arc<RawValue>>,
    /// Whether the run was retried after the child was started.
    again: bool,
}

impl ActivationChild {
    /// Creates a child that is about to start.
    pub fn new(name: &str, round: u32, note: ChildNote) -> Self {
        Self { name: name.to_owned(), round, note, began: false, told: None, again: false }
    }

    /// Returns whether the activation waits or may wait for the end of this child.
    pub fn is_open(&self) -> bool {
        self.told.is_none() && self.note.bond != ParentBond::Detached
    }

    /// Returns whether the child is cancelled when its activation ends.
    pub fn ends_with_parent(&self) -> bool {
        self.told.is_none() && self.note.bond == ParentBond::Cancel
    }

    /// Returns whether the child still must be started, because its start is not recorded.
    pub fn begins(&self) -> bool {
        !self.began && self.told.is_none()
    }

    pub fn is_completed(&self) -> bool {
        self.told.as_deref().is_some_and(ChildEnd::is_good)
    }

    /// Returns whether the child was started by an earlier attempt, or before a retry of the run.
    pub fn is_of_before(&self, attempt: u32) -> bool {
        self.again || self.note.attempt < attempt
    }

    /// Returns the name of the memo that is recorded before the start.
    pub fn note_name(&self) -> String {
        child(self.round, &self.name)
    }

    pub fn began_name(&self) -> String {
        began(self.round, &self.name)
    }

    pub fn end_note_name(&self) -> String {
        end_note_name(self.round, &self.name)
    }
}

/// Returns the name of the memo that is recorded before the start of a child.
pub fn child(round: u32, name: &str) -> String {
    format!("{CHILD}{round}.{name}")
}

/// Returns the name of the memo that is recorded after the start.
pub(crate) fn began(round: u32, name: &str) -> String {
    format!("{BEGAN}{round}.{name}")
}

/// Returns the name of the memo with the end of the child, which is also the name of the wait for it.
pub(crate) fn end_note_name(round: u32, name: &str) -> String {
    format!("{TOLD}{round}.{name}")
}

/// The kind of a memo about a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    Child,
    Began,
    Told,
    Again,
}

/// Parses the name of a memo about a child. Returns its kind, the number of the start, and the name of the child, or `None` for any other name.
pub fn parse_note_name(text: &str) -> Option<(Note, u32, &str)> {
    let all = [(Note::Child, CHILD), (Note::Began, BEGAN), (Note::Told, TOLD), (Note::Again, AGAIN)];
    all.into_iter().find_map(|(note, prefix)| split(text, prefix).map(|(round, name)| (note, round, name)))
}

/// Splits the name of a note into its round and the child's name.
fn split<'a>(text: &'a str, prefix: &str) -> Option<(u32, &'a str)> {
    let (round, name) = text.strip_prefix(prefix)?.split_once('.')?;
    Some((round.parse().ok()?, name))
}

impl Memos {
    /// Lists the children of the activation by name, each with its last start.
    pub fn children(&self) -> Vec<ActivationChild> {
        let mut found: BTreeMap<&str, (u32, ChildNote)> = BTreeMap::new();
        for (text, memo) in self.range(CHILD.to_owned()..).take_while(|(text, _)| text.starts_with(CHILD)) {
            let (Some((round, name)), Memo::Result(note)) = (split(text, CHILD), memo) else { continue };
            let Ok(note) = serde_json::from_str(note.get()) else { continue };
            if found.get(name).is_none_or(|(known, _)| *known < round) {
                found.insert(name, (round, note));
            }
        }
        found.into_iter().map(|(name, (round, note))| self.child_of(name, round, note)).collect()
    }

    fn child_of(&self, name: &str, round: u32, note: ChildNote) -> ActivationChild {
        ActivationChild {
            name: name.to_owned(),
            round,
            note,
            began: self.contains_key(&began(round, name)),
            told: match self.get(&end_note_name(round, name)) {
                Some(Memo::Result(end)) => Some(Arc::clone(end)),
                _ => None,
            },
            again: self.contains_key(&format!("{AGAIN}{round}.{name}")),
        }
    }

    /// Returns the child with this run id, even if the id belongs to an earlier start of the child.
    pub(crate) fn child_that_is(&self, run: &RunId) -> Option<ActivationChild> {
        let notes = self.range(CHILD.to_owned()..).take_while(|(text, _)| text.starts_with(CHILD));
        let of = notes.filter_map(|(text, memo)| {
            let Memo::Result(note) = memo else { return None };
            let note: ChildNote = serde_json::from_str(note.get()).ok()?;
            let (round, name) = split(text, CHILD).filter(|_| note.run == *run)?;
            Some(self.child_of(name, round, note))
        });
        of.max_by_key(|child| child.round)
    }

    /// Returns a child by its name, with its last start.
    pub fn child(&self, name: &str) -> Option<ActivationChild> {
        if self.is_empty() {
            // Most activations that start a child have no notes yet, and must not pay for a name.
            return None;
        }
        let rounds = self.child_names().filter_map(|(round, known)| (known == name).then_some(round));
        // A lookup of one child among many must not read the notes of all.
        let round = if self.contains_key(&child(2, name)) { None } else { Some(1) };
        let round = match round.filter(|&first| self.contains_key(&child(first, name))) {
            Some(first) => first,
            None => rounds.max()?,
        };
        let Some(Memo::Result(note)) = self.get(&child(round, name)) else { return None };
        Some(self.child_of(name, round, serde_json::from_str(note.get()).ok()?))
    }

    /// Returns whether a memo announces a new run, and not another attempt that continues with the same run.
    pub(crate) fn is_start(&self, text: &str, memo: &Memo) -> bool {
        let (Some((round, name)), Memo::Result(note)) = (split(text, CHILD), memo) else { return false };
        if round < 2 {
            return !self.contains_key(text);
        }
        let run = |note: &RawValue| serde_json::from_str(note.get()).ok().map(|note: ChildNote| note.run);
        self.child(name).is_none_or(|known| run(note).is_some_and(|run| run != known.note.run))
    }

    /// Counts the children.
    pub fn count_children(&self) -> usize {
        self.child_names().map(|(_, name)| name).collect::<BTreeSet<_>>().len()
    }

    /// Lists the starts of children: the round and the name of each.
    fn child_names(&self) -> impl Iterator<Item = (u32, &str)> {
        let notes = self.range(CHILD.to_owned()..).take_while(|(text, _)| text.starts_with(CHILD));
        notes.filter_map(|(text, _)| split(text, CHILD))
    }

    /// Marks the children that did not complete as started before a retry of the run, so that failed children are started again.
    ///
    /// # Errors
    ///
    /// No recorded note can cause an error.
    pub(crate) fn retry_children(&mut self) -> Result<()> {
        for child in self.children() {
            if !(child.is_completed() || child.note.bond == ParentBond::Detached) {
                let name = format!("{AGAIN}{}.{}", child.round, child.name);
                self.insert(name, Memo::Result(to_raw(&true)?.into()));
            }
        }
        Ok(())
    }

    /// Drops the children that did not complete, because a fork starts its own. Detached runs stay started.
    pub(crate) fn drop_unfinished_children(&mut self) {
        for ActivationChild { name, round, note, began, told, .. } in self.children() {
            let stays = match note.bond {
                ParentBond::Detached => began,
                _ => told.as_deref().is_some_and(ChildEnd::is_good),
            };
            let is_of = |text: &str, prefix| split(text, prefix).is_some_and(|(_, of)| of == name);
            let is_last =
                |text: &str, prefix| stays && split(text, prefix).is_some_and(|(at, _)| at == round);
            self.remove_memos(|text, _| {
                [CHILD, BEGAN, TOLD, AGAIN]
                    .into_iter()
                    .any(|prefix| is_of(text, prefix) && !is_last(text, prefix))
            });
        }
    }
}
