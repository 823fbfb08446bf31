//! The state of a queue: its holders, waiters and limits. This module performs no I/O and reads no clock. Each operation on the queue gets the time
//! as an argument, and the changes of the operation form a patch of the queue's run.

mod changes;
mod debounce;
mod enqueue_undo;
mod entry;
mod grants;
mod keys;
mod once;
mod slot_requests;
mod start_ids;
mod store;
mod tracked_map;
mod wait_queue;

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrata_core::runtime::{Runtime, StateCell};
use ferrata_core::{Epoch, ExecutorId, RunKey, Seq, Timestamp};
use serde::{Deserialize, Serialize};

pub use self::debounce::DebounceGroup;
pub(crate) use self::debounce::{DebounceOptions, ReplacedStart};
pub(crate) use self::enqueue_undo::EnqueueUndo;
pub(crate) use self::entry::ExpiredStart;
use self::entry::text;
pub use self::entry::{SlotHolder, SlotKind, SlotWaiter};
pub(crate) use self::grants::LONGEST_CLOSED;
use self::keys::KeyTable;
use self::once::OnceEntry;
pub(crate) use self::start_ids::{FoundRun, OverStart, StartId};
use self::tracked_map::TrackedMap;
use self::wait_queue::WaitQueue;
pub(crate) use self::wait_queue::{NODE, RUN};
use crate::settings::{QueueOverrides, QueueSettings};

/// Maximum number of bytes that the settings without the weights, the names and the counters of a queue take.
const FIXED: usize = 2_048;

/// The progress of the queue's grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GrantState {
    /// Number of grants so far.
    turn: u64,
    /// Next allowed grant at the queue's rate, in microseconds.
    next: i64,
    /// The queue grants no slot before this time, because a provider asked to back off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed_until: Option<Timestamp>,
}

/// A request for slots, from a node or from the start of a run.
#[derive(Clone, Debug)]
pub(crate) struct SlotRequest {
    pub(crate) id: String,
    pub(crate) waiting: SlotWaiter,
    /// The `once` key, and its window in milliseconds. The key prevents a second start.
    pub(crate) once: Option<(String, u64)>,
    /// The debounce options. Present if later starts may replace this start.
    pub(crate) debounce: Option<DebounceOptions>,
    /// Earlier starts of the run in this process, with unknown outcome.
    pub(crate) doubts: Vec<StartId>,
    /// Whether the run is stored and on hold. If so, the queue unpauses the run once it has a slot.
    pub(crate) is_on_record: bool,
}

/// An operation on a queue.
#[derive(Clone, Debug)]
pub(crate) enum QueueOp {
    Ask(Box<SlotRequest>),
    /// Records that a waiter becomes idle. The answer to this question then wakes it. If the waiter is no longer in the line, it enters the line
    /// again. Another process may have seen the run idle before this operation was recorded, and may have released its slot. If the run has moved to
    /// another process, the entry belongs to the node in that process and stays.
    Rest {
        id: String,
        waiting: Box<SlotWaiter>,
        question: String,
    },
    /// Removes the start of a run that ended at this record or was purged, unless the run was revived since. If the run or its entry names no
    /// start, the operation removes the whole entry. If the slot and the process that last requested it are known, it removes the entry only if
    /// both match.
    LeaveRun {
        id: String,
        start_id: Option<StartId>,
        ended_at: Seq,
        place: Option<(Timestamp, ExecutorId)>,
    },
    /// Removes starts that are over from an entry, and adds the start of a run that has not ended.
    Settle {
        id: String,
        gone: Vec<OverStart>,
        found: Option<FoundRun>,
    },
    /// Undoes the `once` key of a start, because the start found the run of an earlier start and started nothing.
    UndoOnce(Arc<EnqueueUndo>),
    /// Releases the slot of a node of this process, or removes it from the line. If the run has moved to another process, the entry belongs to the
    /// node in that process and stays.
    LeaveNode {
        id: String,
        executor: ExecutorId,
    },
    /// Removes the waiting nodes of a dead process from the line. Each node requests its slot again when its run is active in another process.
    LeaveExecutor(ExecutorId),
    /// Releases the slot of a run, or removes it from the line, because the start that entered it was rejected.
    TakeBack {
        id: String,
        start_id: StartId,
        entered: Arc<EnqueueUndo>,
    },
    /// Releases a slot if its entry is unchanged. If the entry has changed, the node has claimed its slot since.
    Gone {
        id: String,
        seen: Box<SlotHolder>,
    },
    /// Puts a run on hold that was to begin at once. A run is put on hold for one of two causes. The starter died before it recorded the run, and
    /// this process lacks a tag of the queue. Or the run was recorded on hold before the queue was purged.
    Hold(String),
    /// Removes the entry of a node whose claim is missing from the run's log, because the store has lost its last records.
    Lost {
        id: String,
        executor: ExecutorId,
        epoch: Epoch,
    },
    /// Records that a held run was started after it got its slot at this time. Later starts of the same id are unaffected.
    Begun {
        id: String,
        at: Timestamp,
        run: Option<FoundRun>,
    },
    /// Records that this question of an idle waiter or holder was answered. A later question of the same entry is unaffected.
    Woken {
        id: String,
        question: String,
    },
    /// Records that a run was cancelled, because it missed its deadline at this time or its entry was replaced. Later starts of the same id are
    /// unaffected.
    Forgotten {
        id: String,
        at: Timestamp,
    },
    /// Restores a start, because the start that replaced it was never recorded.
    Restore {
        id: String,
        by: RunKey,
    },
    /// Stops all grants until this time.
    Close(Timestamp),
    Declare(Box<QueueSettings>),
    Override(Box<QueueOverrides>),
}

/// The result of a [`QueueOp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpResult {
    Done,
    Granted,
    Waits,
    /// A later claim of the run, by this process and with this epoch, already made the request.
    Stale(ExecutorId, Epoch),
    /// The line is full, with this number of waiters.
    Full(usize),
    /// The queue already stores this number of `once` keys, which is the maximum.
    Seen(usize),
    /// The queue's state would exceed its maximum size.
    NoRoom {
        bytes: usize,
        room: usize,
    },
    /// The request exceeds this number of slots of the queue.
    TooMany(u32),
    /// The request exceeds this number of slots for one key.
    TooManyForKey(u32),
    /// The `once` key already started this run, or this run has replaced the start.
    Before(RunKey),
    /// The store has other settings under the same version. This value holds the stored settings.
    Differs(Box<QueueSettings>),
}

/// Changes since the last patch, other than changes of entries.
#[derive(Debug, Default)]
struct DirtyFlags {
    pulse: bool,
    settings: bool,
    overrides: bool,
}

/// The entries to which this process may grant slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantScope {
    All,
    /// Only nodes. The process lacks a tag of the queue, so it would not claim the runs.
    NodesAlone,
}

/// The holders, waiters and limits of one queue.
#[derive(Debug)]
pub(crate) struct QueueState {
    pub(crate) settings: QueueSettings,
    pub(crate) overrides: QueueOverrides,
    pub(crate) held: TrackedMap<SlotHolder>,
    pub(crate) waiting: WaitQueue,
    /// Runs that missed their deadline, to be cancelled.
    pub(crate) expired: TrackedMap<ExpiredStart>,
    /// Runs that another start replaced, to be cancelled.
    pub(crate) replaced: TrackedMap<ReplacedStart>,
    grants: GrantState,
    keys: KeyTable,
    /// The `once` keys, each with the run that it started.
    once_entries: TrackedMap<OnceEntry>,
    /// Number of slots in use.
    in_use: u32,
    /// Maximum number of bytes that the queue may take in the state.
    max_bytes: usize,
    dirty: DirtyFlags,
    /// The entries that this process may grant slots.
    scope: GrantScope,
    /// Entries that were granted slots since the last call.
    granted: Vec<String>,
    /// Changes of starts that have no reply yet.
    undos: Vec<(String, EnqueueUndo)>,
}

impl QueueState {
    pub(crate) fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            overrides: QueueOverrides::default(),
            held: TrackedMap::new(BTreeMap::new()),
            waiting: WaitQueue::default(),
            expired: TrackedMap::new(BTreeMap::new()),
            replaced: TrackedMap::new(BTreeMap::new()),
            grants: GrantState::default(),
            keys: KeyTable::new(BTreeMap::new()),
            once_entries: TrackedMap::new(BTreeMap::new()),
            in_use: 0,
            max_bytes: usize::MAX,
            dirty: DirtyFlags::default(),
            scope: GrantScope::All,
            granted: Vec::new(),
            undos: Vec::new(),
        }
    }

    /// Limits grants to the entries that this process may serve: only nodes, if the process lacks a tag of the queue. Also limits the size of the
    /// queue's state, so that this process can read it at once.
    pub(crate) fn for_process(mut self, runtime: &Runtime) -> Self {
        let has_tags = runtime.has_tags(self.settings.tags.iter().map(String::as_str));
        self.scope = if has_tags { GrantScope::All } else { GrantScope::NodesAlone };
        // Keep an eighth free, so that the entries in a full queue can still change.
        let room = StateCell::size_limit(runtime);
        self.max_bytes = room - room / 8;
        self
    }

    /// Returns the entries that were granted slots since the last call.
    pub(crate) fn take_given(&mut self) -> Vec<String> {
        std::mem::take(&mut self.granted)
    }

    /// Returns the changes that the oldest unreported start of a run made in the queue; `None` if the run already had its entry.
    pub(crate) fn take_entered(&mut self, id: &str) -> Option<EnqueueUndo> {
        let at = self.undos.iter().position(|(entered, _)| entered == id)?;
        Some(self.undos.remove(at).1)
    }

    /// Returns the settings in effect, with the overrides.
    pub(crate) fn effective(&self) -> QueueSettings {
        self.overrides.apply_to(&self.settings)
    }

    /// Returns the time until which the queue grants no slot.
    pub(crate) fn closed_until(&self) -> Option<Timestamp> {
        self.grants.closed_until
    }

    /// Returns the maximum number of bytes that the queue can take in its stored form.
    pub(crate) fn bytes(&self) -> usize {
        let entries = [self.held.bytes(), self.waiting.bytes(), self.expired.bytes(), self.replaced.bytes()];
        let paused = self.overrides.paused.as_ref().map_or(0, |reason| text(reason));
        let weights = self.settings.weights.keys().map(|key| text(key) + 8).sum::<usize>();
        entries.iter().sum::<usize>()
            + weights
            + self.keys.bytes()
            + self.once_entries.bytes()
            + paused
            + FIXED
    }

    /// Applies an operation to the queue. [`grant`](Self::grant) then grants the free slots.
    pub(crate) fn apply(&mut self, op: QueueOp, now: Timestamp) -> OpResult {
        match op {
            QueueOp::Ask(ask) => return self.request_slot(*ask, now),
            QueueOp::Rest { id, waiting, question } => match self.last_requester(&id) {
                None => self.insert_waiter(id, SlotWaiter { question: Some(question), ..*waiting }),
                Some((_, epoch)) if epoch > waiting.epoch => {}
                Some(_) => self.repeat_request(&id, &waiting, Some(question)),
            },
            QueueOp::LeaveRun { id, start_id, ended_at, place } => {
                match start_id.filter(|_| self.starts_of(&id).is_some()) {
                    Some(start) => self.resolve_starts(&id, &[OverStart { start, ended_at }], None),
                    None => {
                        let has =
                            |place| self.held.get(&id).is_some_and(|held| (held.at, held.executor) == place);
                        if place.is_none_or(has) {
                            self.remove_entry(&id);
                        }
                    }
                }
            }
            QueueOp::Settle { id, gone, found } => self.resolve_starts(&id, &gone, found),
            QueueOp::UndoOnce(entered) => self.undo_once(&entered),
            QueueOp::LeaveNode { id, executor } => {
                if self.last_requester(&id).is_some_and(|(by, _)| by == executor) {
                    self.remove_entry(&id);
                }
            }
            QueueOp::LeaveExecutor(executor) => {
                for id in self.waiting_nodes(executor) {
                    self.remove_entry(&id);
                }
            }
            QueueOp::TakeBack { id, start_id, entered } => self.take_back(&id, start_id, &entered, now),
            QueueOp::Gone { id, seen } => {
                if self.held.get(&id) == Some(&*seen) {
                    self.remove_entry(&id);
                }
            }
            QueueOp::Lost { id, executor, epoch } => {
                if self.last_requester(&id) == Some((executor, epoch)) {
                    self.remove_entry(&id);
                }
            }
            QueueOp::Hold(id) => {
                if self.held.get(&id).is_some_and(|held| held.kind == SlotKind::Run && !held.on_hold) {
                    self.held.update(&id, |held| held.on_hold = true);
                }
            }
            QueueOp::Begun { id, at, run } => {
                if self.held.get(&id).is_some_and(|held| held.on_hold && held.at == at) {
                    self.resolve_starts(&id, &[], run);
                    // The run of another start is also on hold, or is about to be.
                    let is_alone =
                        run.is_none() || self.starts_of(&id).is_none_or(|start_ids| start_ids.len() == 1);
                    self.held.update(&id, |held| held.on_hold = !is_alone);
                }
            }
            QueueOp::Woken { id, question } => {
                let waits =
                    |held: &SlotHolder| held.question.as_ref() == Some(&question) && held.woken.is_none();
                if self.held.get(&id).is_some_and(waits) {
                    self.held.update(&id, |held| held.woken = Some(now));
                }
            }
            QueueOp::Forgotten { id, at } => {
                if self.replaced.get(&id).is_some_and(|replaced| replaced.at == at) {
                    self.replaced.remove(&id);
                }
                if self.expired.get(&id).is_some_and(|late| late.at == at) {
                    self.expired.remove(&id);
                }
            }
            QueueOp::Restore { id, by } => self.restore(&id, &by, now),
            QueueOp::Close(until) => {
                if self.grants.closed_until.is_none_or(|closed| closed < until) {
                    self.grants.closed_until = Some(until);
                    self.dirty.pulse = true;
                }
            }
            QueueOp::Declare(settings) => return self.declare(*settings),
            QueueOp::Override(overrides) => {
                self.dirty.overrides |= self.overrides != *overrides;
                self.overrides = *overrides;
            }
        }
        OpResult::Done
    }

    /// Stores the settings if their version is higher than the stored version.
    fn declare(&mut self, settings: QueueSettings) -> OpResult {
        if settings.version == self.settings.version && settings != self.settings {
            return OpResult::Differs(Box::new(self.settings.clone()));
        }
        if settings.version > self.settings.version {
            self.settings = settings;
            self.dirty.settings = true;
        }
        OpResult::Done
    }

    /// Returns the nodes of a process that wait in its memory, not as idle runs.
    fn waiting_nodes(&self, executor: ExecutorId) -> Vec<String> {
        let nodes = self.waiting.nodes_in_memory().filter(|(_, waiting)| waiting.executor == executor);
        nodes.map(|(id, _)| id.clone()).collect()
    }

    fn insert_waiter(&mut self, id: String, waiting: SlotWaiter) {
        self.keys.count_arrival(&waiting.key, self.grants.turn);
        self.waiting.insert(id, waiting);
    }

    /// Removes a holder or a waiter.
    fn remove_entry(&mut self, id: &str) {
        if let Some(held) = self.held.remove(id) {
            self.in_use = self.in_use.saturating_sub(held.places);
            self.keys.count_departure(&held.key, held.places);
        } else if let Some(waiting) = self.waiting.remove(id) {
            self.keys.count_departure(&waiting.key, 0);
        }
    }
}

#[cfg(test)]
mod tests;
