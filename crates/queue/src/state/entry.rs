//! The stored entries of holders and waiters, with the size of each in the state.

use ferrata_core::{Epoch, ExecutorId, RunKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::debounce::{DebounceGroup, ReplacedStart};
use super::keys::KeyNote;
use super::once::OnceEntry;
use super::start_ids::{FoundRun, StartId};

/// The kind of a slot's user: a node or a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SlotKind {
    /// A part of a node's work, which releases the slot itself. The queue reclaims the slot if no process executes the node.
    Node,
    /// A whole run. The queue releases the slot when the run ends.
    Run,
}

/// A waiter for slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SlotWaiter {
    /// The run that waits for slots, or the run of the node that waits.
    pub run: RunKey,
    /// Whether the waiter is the run itself or a node of the run.
    pub kind: SlotKind,
    /// The number of requested slots.
    pub places: u32,
    /// The key of the request. Requests with different keys take turns.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The priority. The queue serves higher values first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// The time since which the run or node waits.
    pub since: Timestamp,
    /// The process that requested the slots.
    pub executor: ExecutorId,
    /// The epoch of the run in which its node requested the slots; 0 for a run.
    #[serde(default, skip_serializing_if = "is_never")]
    pub epoch: Epoch,
    /// The question of the waiter, if the waiter is idle. The answer to the question wakes the waiter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The earliest time at which the queue may grant the slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The deadline for the grant: a run without its slot at this time is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The debounce group of this start: a later start of the same group may replace it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounced: Option<DebounceGroup>,
    /// The starts of the run that this entry belongs to. Empty for the default: the first start that `executor` requested at `since`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) start_ids: Vec<StartId>,
    /// The newest record at which a run of this entry is known not to have ended; `None` for a start without a known run. An end at an earlier record
    /// does not concern this entry, because the run was revived after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) alive: Option<FoundRun>,
}

/// A holder of slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SlotHolder {
    /// The run that holds the slots, or the run of the node that holds the slots.
    pub run: RunKey,
    /// Whether the holder is the run itself or a node of the run.
    pub kind: SlotKind,
    /// The number of slots that it holds.
    pub places: u32,
    /// The key of the request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The process that last requested the slots.
    pub executor: ExecutorId,
    /// The epoch of the run in which its node requested the slots; 0 for a run.
    #[serde(default, skip_serializing_if = "is_never")]
    pub epoch: Epoch,
    /// The time of the grant.
    pub at: Timestamp,
    /// The question of the holder. The answer to the question wakes the holder. Present until the holder claims its slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The time at which that question was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken: Option<Timestamp>,
    /// Whether the run is on hold and the queue still has to start it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_hold: bool,
    /// The starts of the run that this entry belongs to. An older version writes an empty list, which stands for any start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) start_ids: Vec<StartId>,
    /// The newest record at which a run of this entry is known not to have ended, as in [`SlotWaiter`].
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

/// A run that missed its deadline. The entry remains until the run is cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExpiredStart {
    // The fields of the run are stored next to the time, because an earlier version stored the run alone.
    #[serde(flatten)]
    pub(crate) run: RunKey,
    #[serde(default)]
    pub(crate) at: Timestamp,
}

/// A value whose maximum size in the state is known.
pub(crate) trait StoredSize {
    fn bytes(&self) -> usize;
}

/// Bytes for the field names, the numbers, a process id and a position in a list.
const FIELDS: usize = 256;

/// Returns the size of a text in JSON.
pub(super) fn text(text: &str) -> usize {
    text.len() + text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count() + 4
}

fn optional(one: Option<&String>) -> usize {
    one.map_or(0, |one| text(one) + 16)
}

/// Returns the size of a list of starts. A start in the list has a process, a time and a number.
fn starts_size(start_ids: &[StartId], alive: Option<FoundRun>) -> usize {
    start_ids.len() * 96 + alive.map_or(0, |_| 160)
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
            + starts_size(&self.start_ids, self.alive)
    }
}

impl StoredSize for SlotHolder {
    fn bytes(&self) -> usize {
        self.run.bytes()
            + text(&self.key)
            + FIELDS
            + optional(self.question.as_ref())
            + starts_size(&self.start_ids, self.alive)
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
        80
    }
}

impl SlotWaiter {
    /// Returns whether this is a plain run: it waits for one slot and has no option except key and priority. Most waiters of a long line are plain.
    pub(super) fn is_plain(&self) -> bool {
        self.kind == SlotKind::Run
            && self.places == 1
            && self.question.is_none()
            && self.not_before.is_none()
            && self.deadline.is_none()
            && self.debounced.is_none()
            && self.start_ids.is_empty()
            && self.alive.is_none()
    }
}
