//! What an activation notes of its children: under which names, and what.
//!
//! All of it are results under names that no step can have, so any reader folds them: `#child1.review` is noted before the child is
//! started, `#began1.review` after it, and `#told1.review` is what came of it. The number counts how often the child was started anew.

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

/// What binds a child to the activation that started it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bond {
    /// It is cancelled when the activation ends before it.
    #[default]
    Cancel,
    /// It goes on when the activation ends before it.
    Leave,
    /// No parent waits for it.
    Detached,
}

impl Bond {
    /// How the labels of a child say it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Leave => "leave",
            Self::Detached => "detached",
        }
    }
}

/// What is noted of a child before it is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildNote {
    /// Its id, in the tenant of its parent.
    pub(crate) run: RunId,
    pub(crate) workflow: WorkflowName,
    /// Which attempt of the activation started it, or went on with it.
    pub(crate) attempt: u32,
    #[serde(default)]
    pub(crate) bond: Bond,
    /// When it is cancelled if its parent still waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Timestamp>,
}

/// What came of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChildEnd {
    /// It is completed, with this state of this version.
    Completed {
        state: Box<RawValue>,
        version: u32,
    },
    Failed(Failure),
    Cancelled {
        reason: String,
    },
    /// There is no such run any more: it was purged.
    Gone,
}

impl ChildEnd {
    pub(crate) fn to_raw(&self) -> Result<Arc<RawValue>> {
        Ok(to_raw(self)?.into())
    }

    /// Whether the text of an end says that the child is completed.
    pub(crate) fn is_good(text: &RawValue) -> bool {
        text.get().starts_with("{\"completed\"")
    }
}

/// A child as an activation knows it.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) name: String,
    /// How often it was started anew, the first time included.
    pub(crate) round: u32,
    pub(crate) note: ChildNote,
    /// Whether it is on record that it was started.
    pub(crate) began: bool,
    /// What came of it.
    pub(crate) told: Option<Arc<RawValue>>,
    /// Whether an operator retried the run since.
    again: bool,
}

impl Child {
    /// Makes one that is about to be started.
    pub(crate) fn new(name: &str, round: u32, note: ChildNote) -> Self {
        Self { name: name.to_owned(), round, note, began: false, told: None, again: false }
    }

    /// Whether its activation waits, or may wait, for what comes of it.
    pub(crate) fn is_open(&self) -> bool {
        self.told.is_none() && self.note.bond != Bond::Detached
    }

    /// Whether it ends with its activation.
    pub(crate) fn ends_with_parent(&self) -> bool {
        self.told.is_none() && self.note.bond == Bond::Cancel
    }

    /// Whether it is not on record yet that it was started, and is to be.
    pub(crate) fn begins(&self) -> bool {
        !self.began && self.told.is_none()
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.told.as_deref().is_some_and(ChildEnd::is_good)
    }

    /// Whether it is of an attempt before this one, or of before a retry.
    pub(crate) fn is_of_before(&self, attempt: u32) -> bool {
        self.again || self.note.attempt < attempt
    }

    /// Returns the name of the note that it is about to be started.
    pub(crate) fn noted_name(&self) -> String {
        child(self.round, &self.name)
    }

    pub(crate) fn began_name(&self) -> String {
        began(self.round, &self.name)
    }

    pub(crate) fn told_name(&self) -> String {
        told(self.round, &self.name)
    }
}

/// The name of the note that a child is about to be started.
pub(crate) fn child(round: u32, name: &str) -> String {
    format!("{CHILD}{round}.{name}")
}

/// The name of the note that it was started.
pub(crate) fn began(round: u32, name: &str) -> String {
    format!("{BEGAN}{round}.{name}")
}

/// The name of the note of what came of it, and of the wait for that.
pub(crate) fn told(round: u32, name: &str) -> String {
    format!("{TOLD}{round}.{name}")
}

/// Which of the notes of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Child,
    Began,
    Told,
    Again,
}

/// Reads the name of a note: which it is, of which start, and the child's name; `None` for any other name.
pub(crate) fn note_of(text: &str) -> Option<(Note, u32, &str)> {
    let all = [(Note::Child, CHILD), (Note::Began, BEGAN), (Note::Told, TOLD), (Note::Again, AGAIN)];
    all.into_iter().find_map(|(note, prefix)| split(text, prefix).map(|(round, name)| (note, round, name)))
}

/// Splits the name of a note into its round and the child's name.
fn split<'a>(text: &'a str, prefix: &str) -> Option<(u32, &'a str)> {
    let (round, name) = text.strip_prefix(prefix)?.split_once('.')?;
    Some((round.parse().ok()?, name))
}

impl Memos {
    /// Lists the children of the activation by name, each as it was started last.
    pub(crate) fn children(&self) -> Vec<Child> {
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

    fn child_of(&self, name: &str, round: u32, note: ChildNote) -> Child {
        Child {
            name: name.to_owned(),
            round,
            note,
            began: self.contains_key(&began(round, name)),
            told: match self.get(&told(round, name)) {
                Some(Memo::Result(end)) => Some(Arc::clone(end)),
                _ => None,
            },
            again: self.contains_key(&format!("{AGAIN}{round}.{name}")),
        }
    }

    /// Finds the child that is this run, whichever start of it that was.
    pub(crate) fn child_that_is(&self, run: &RunId) -> Option<Child> {
        let notes = self.range(CHILD.to_owned()..).take_while(|(text, _)| text.starts_with(CHILD));
        let of = notes.filter_map(|(text, memo)| {
            let Memo::Result(note) = memo else { return None };
            let note: ChildNote = serde_json::from_str(note.get()).ok()?;
            let (round, name) = split(text, CHILD).filter(|_| note.run == *run)?;
            Some(self.child_of(name, round, note))
        });
        of.max_by_key(|child| child.round)
    }

    /// Finds a child by its name, as it was started last.
    pub(crate) fn child(&self, name: &str) -> Option<Child> {
        if self.is_empty() {
            // Most that start a child have noted nothing before, and are to make no name for it.
            return None;
        }
        let rounds = self.child_names().filter_map(|(round, known)| (known == name).then_some(round));
        // What is asked of each of many children is not to read the notes of all.
        let round = if self.contains_key(&child(2, name)) { None } else { Some(1) };
        let round = match round.filter(|&first| self.contains_key(&child(first, name))) {
            Some(first) => first,
            None => rounds.max()?,
        };
        let Some(Memo::Result(note)) = self.get(&child(round, name)) else { return None };
        Some(self.child_of(name, round, serde_json::from_str(note.get()).ok()?))
    }

    /// Tells whether a note says that a run is about to be started, and not that a further attempt goes on with the same.
    pub(crate) fn is_start(&self, text: &str, memo: &Memo) -> bool {
        let (Some((round, name)), Memo::Result(note)) = (split(text, CHILD), memo) else { return false };
        if round < 2 {
            return !self.contains_key(text);
        }
        let run = |note: &RawValue| serde_json::from_str(note.get()).ok().map(|note: ChildNote| note.run);
        self.child(name).is_none_or(|known| run(note).is_some_and(|run| run != known.note.run))
    }

    /// Counts the children.
    pub(crate) fn count_children(&self) -> usize {
        self.child_names().map(|(_, name)| name).collect::<BTreeSet<_>>().len()
    }

    /// Lists the starts of children: of each the round, and the name.
    fn child_names(&self) -> impl Iterator<Item = (u32, &str)> {
        let notes = self.range(CHILD.to_owned()..).take_while(|(text, _)| text.starts_with(CHILD));
        notes.filter_map(|(text, _)| split(text, CHILD))
    }

    /// Notes that the children which are not completed are of before a retry: those that fail are started anew.
    ///
    /// # Errors
    ///
    /// None that what is noted can cause.
    pub(crate) fn retry_children(&mut self) -> Result<()> {
        for child in self.children() {
            if !(child.is_completed() || child.note.bond == Bond::Detached) {
                let name = format!("{AGAIN}{}.{}", child.round, child.name);
                self.insert(name, Memo::Result(to_raw(&true)?.into()));
            }
        }
        Ok(())
    }

    /// Forgets the children that did not complete: another run starts its own. What was started to go on alone stays started.
    pub(crate) fn forget_children(&mut self) {
        for Child { name, round, note, began, told, .. } in self.children() {
            let stays = match note.bond {
                Bond::Detached => began,
                _ => told.as_deref().is_some_and(ChildEnd::is_good),
            };
            let is_of = |text: &str, prefix| split(text, prefix).is_some_and(|(_, of)| of == name);
            let is_last =
                |text: &str, prefix| stays && split(text, prefix).is_some_and(|(at, _)| at == round);
            self.forget_if(|text, _| {
                [CHILD, BEGAN, TOLD, AGAIN]
                    .into_iter()
                    .any(|prefix| is_of(text, prefix) && !is_last(text, prefix))
            });
        }
    }
}
