//! The stored entries of holders and waiters, with the size of each in the state.

use ferrata_core::{Epoch, ExecutorId, RunKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::debounce::{DebounceGroup, ReplacedStart};
use super::keys::KeyNote;
use super::once::OnceEntry;
use super::start_ids::{FoundRun, StartId};

/// The kind of a slot's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SlotKind {
    /// A section of a node, which releases the slot itself. The queue reclaims the slot if no process is in the node.
    Node,
    /// A whole run: the queue releases the slot when the run ends.
    Run,
}

/// A waiter for slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SlotWaiter {
    /// The run.
    pub run: RunKey,
    /// The kind of the slot's user.
    pub kind: SlotKind,
    /// The number of requested slots.
    pub places: u32,
    /// The key of the request: keys take turns.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The priority: higher values come first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// The time since which it waits.
    pub since: Timestamp,
    /// The process that requested the slots.
    pub executor: ExecutorId,
    /// In which epoch of the run its node asked; 0 for a run.
    #[serde(default, skip_serializing_if = "is_never")]
    pub epoch: Epoch,
    /// The question whose answer wakes it, if it is idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The earliest time of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The deadline of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The group of starts that may replace this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounced: Option<DebounceGroup>,
    /// Which starts of the run stand in it, unless it is the one of this process since this moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lives: Vec<StartId>,
    /// The newest record at which a run of it is known not to have ended; none for a start. An end at an earlier record is not one of this entry: the
    /// run was revived since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) alive: Option<FoundRun>,
}

/// A holder of slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SlotHolder {
    /// The run.
    pub run: RunKey,
    /// The kind of the slot's user.
    pub kind: SlotKind,
    /// The number of its slots.
    pub places: u32,
    /// The key of its request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The process that last requested the slots.
    pub executor: ExecutorId,
    /// In which epoch of the run its node asked; 0 for a run.
    #[serde(default, skip_serializing_if = "is_never")]
    pub epoch: Epoch,
    /// The time of the grant.
    pub at: Timestamp,
    /// The question whose answer wakes it, until it claims its slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// When that question was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken: Option<Timestamp>,
    /// Whether a run that began on hold is still to be started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_hold: bool,
    /// The starts of the run in this entry; any if the list is empty, as an older program writes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lives: Vec<StartId>,
    /// As in [`SlotWaiter`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) alive: Option<FoundRun>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_never(epoch: &Epoch) -> bool {
    *epoch == Epoch::NEVER
}

/// A run that came too late, until it is cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExpiredStart {
    // Beside the time, and not around it: an earlier program wrote the run alone.
    #[serde(flatten)]
    pub(crate) run: RunKey,
    #[serde(default)]
    pub(crate) at: Timestamp,
}

/// A value with a known maximum size in the state.
pub(crate) trait StoredSize {
    fn bytes(&self) -> usize;
}

/// Bytes for field names, numbers, a process id and a position in a list.
const FIELDS: usize = 256;

/// Returns the size of a text as JSON.
pub(super) fn text(text: &str) -> usize {
    text.len() + text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count() + 4
}

fn optional(one: Option<&String>) -> usize {
    one.map_or(0, |one| text(one) + 16)
}

/// Returns the size of starts: each has a process, a time and a number.
fn starts_size(lives: &[StartId], alive: Option<FoundRun>) -> usize {
    lives.len() * 96 + alive.map_or(0, |_| 160)
}

impl StoredSize for RunKey {
    fn bytes(&self) -> usize {
        text(self.tenant.as_str()) + text(self.run.as_str())
    }
}

impl StoredSize for SlotWaiter {
    fn bytes(&self) -> usize {
        let debounced = self.debounced.as_ref().map_or(0, |one| text(&one.key) + 64);
        self.run.bytes()
            + text(&self.key)
            + FIELDS
            + optional(self.question.as_ref())
            + debounced
            + starts_size(&self.lives, self.alive)
    }
}

impl StoredSize for SlotHolder {
    fn bytes(&self) -> usize {
        self.run.bytes()
            + text(&self.key)
            + FIELDS
            + optional(self.question.as_ref())
            + starts_size(&self.lives, self.alive)
    }
}

impl StoredSize for ExpiredStart {
    fn bytes(&self) -> usize {
        self.run.bytes() + FIELDS
    }
}

impl StoredSize for ReplacedStart {
    fn bytes(&self) -> usize {
        self.waiting.bytes() + self.by.bytes() + FIELDS
    }
}

impl StoredSize for OnceEntry {
    fn bytes(&self) -> usize {
        self.run.bytes() + 96
    }
}

impl StoredSize for KeyNote {
    fn bytes(&self) -> usize {
        64
    }
}

impl SlotWaiter {
    /// Returns whether it is a run that waits for its turn and for nothing else, as most do where many wait.
    pub(super) fn is_plain(&self) -> bool {
        self.kind == SlotKind::Run
            && self.places == 1
            && self.question.is_none()
            && self.not_before.is_none()
            && self.deadline.is_none()
            && self.debounced.is_none()
            && self.lives.is_empty()
            && self.alive.is_none()
    }
}
