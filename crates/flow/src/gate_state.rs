//! The state of the gate: the operations that wait at it and those that it has released.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;

use ferrata_core::node::NodeError;

use crate::entry::{FlowEntry, OperationKind};
use crate::gate::{GateDecision, OperationInfo};
use crate::recorded::{RecordedEntries, RecordedEntry};

#[derive(Debug, Default)]
pub(crate) struct GateState {
    pub(crate) recorded: RecordedEntries,
    /// The kind and the number of the operations of each name.
    pub(crate) numbers: HashMap<String, (OperationKind, u32)>,
    /// The buffer for keys with a number.
    pub(crate) numbered_key: String,
    pub(crate) last_id: u64,
    /// In boxes: a function that does one operation after the other allocates the memory of the map for each of them.
    pub(crate) operations: BTreeMap<u64, Box<GateOperation>>,
    pub(crate) waiting: WaitingOperations,
    /// The waiting operations with a recorded position in the order of ended operations, by this position.
    pub(crate) by_place: BTreeMap<usize, u64>,
    /// The released operation that must end before any other.
    pub(crate) granted: Option<u64>,
    /// The number of released operations that end without an event from outside.
    pub(crate) busy: usize,
    /// The number of released operations that wait for the driver, and do not execute the work of a step.
    pub(crate) in_core: usize,
    /// The errors that the function has seen or waits for, and that are not recorded yet.
    pub(crate) unrecorded: Vec<FailedOperation>,
    pub(crate) last_failure: u64,
    /// The errors that the function sees after they are recorded, by number. An error is removed when the function has seen it, so that a later error
    /// does not overtake it in the same poll.
    pub(crate) waiting_failures: BTreeMap<u64, WaitingFailure>,
    pub(crate) flush: FlushState,
    pub(crate) flush_waiters: Vec<Waker>,
    pub(crate) abort: Option<NodeError>,
    /// The input of the next pass.
    pub(crate) continuation: Option<serde_json::Value>,
    pub(crate) mode: GateMode,
    /// The number of released operations that the function itself executes: steps, values and compensations.
    pub(crate) working: usize,
    /// Whether compensations run after the replay, so that the replay does not wait for requests of recorded compensations.
    pub(crate) skips_undo: bool,
    /// Whether a replay in [`GateMode::Rewind`] has ended.
    pub(crate) is_rewound: bool,
    pub(crate) rewind_waker: Option<Waker>,
}

/// The mode of the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GateMode {
    #[default]
    Work,
    /// No operation continues without a record.
    Check,
    /// The run was cancelled before the attempt: the function replays its records, and starts no further operation.
    Rewind,
    /// The run was cancelled during the attempt: running steps end, and no operation starts.
    WindDown,
}

/// The operations that wait at the gate, in sets that the gate searches. A function may have thousands of waiting operations.
/// An operation with a recorded position is only in `all`: the gate finds it by its position, and decides about the others when no such operation
/// waits.
#[derive(Debug, Default)]
pub(crate) struct WaitingOperations {
    pub(crate) all: BTreeSet<u64>,
    pub(crate) recorded: BTreeSet<u64>,
    /// The recorded operations that end at once.
    pub(crate) ended: BTreeSet<u64>,
    pub(crate) safe: BTreeSet<u64>,
    /// The patches without a decision.
    pub(crate) patches: BTreeSet<u64>,
}

impl WaitingOperations {
    pub(crate) fn insert(&mut self, id: u64, operation: &GateOperation) {
        self.all.insert(id);
        if operation.place.is_some() {
            return;
        }
        if operation.is_recorded {
            self.recorded.insert(id);
            if operation.has_ended {
                self.ended.insert(id);
            }
        } else if operation.kind == OperationKind::Patch {
            self.patches.insert(id);
        }
        if operation.is_safe {
            self.safe.insert(id);
        }
    }

    pub(crate) fn remove(&mut self, id: u64) {
        for ids in [&mut self.all, &mut self.recorded, &mut self.ended, &mut self.safe, &mut self.patches] {
            ids.remove(&id);
        }
    }

    /// Returns whether an operation without a record waits.
    pub(crate) fn has_new(&self) -> bool {
        self.all.len() > self.recorded.len()
    }
}

/// An error that must be recorded.
#[derive(Clone, Debug)]
pub(crate) struct FailedOperation {
    pub(crate) number: u64,
    pub(crate) key: String,
    pub(crate) entry: FlowEntry<()>,
}

/// An error that the function sees after it is recorded.
#[derive(Debug, Default)]
pub(crate) struct WaitingFailure {
    pub(crate) is_recorded: bool,
    pub(crate) waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FlushState {
    #[default]
    Idle,
    Wanted,
    Running,
}

// Large: each field is one fact about an operation by which the gate decides.
#[derive(Debug)]
pub(crate) struct GateOperation {
    pub(crate) key: Arc<str>,
    pub(crate) kind: OperationKind,
    pub(crate) location: &'static Location<'static>,
    pub(crate) place: Option<usize>,
    pub(crate) is_recorded: bool,
    pub(crate) has_ended: bool,
    /// Whether the result or the failure is recorded.
    pub(crate) has_result: bool,
    pub(crate) is_safe: bool,
    pub(crate) is_released: bool,
    pub(crate) ends_by_itself: bool,
    pub(crate) is_working: bool,
    /// Whether the code has the patch.
    pub(crate) patch: Option<bool>,
    pub(crate) waker: Option<Waker>,
}

impl GateState {
    /// Adds an operation with its recorded entry, if there is one. `has_ended` says whether a recorded operation has ended.
    pub(crate) fn add(
        &mut self,
        info: OperationInfo<'_>,
        place: Option<usize>,
        entry: Option<&RecordedEntry>,
        has_ended: bool,
    ) {
        let OperationInfo { id, key, kind, location, is_safe } = info;
        let operation = GateOperation {
            key: Arc::clone(key),
            kind,
            location,
            place,
            is_recorded: entry.is_some(),
            has_ended,
            has_result: entry.is_some_and(|entry| entry.has_result),
            is_safe: is_safe || kind.is_safe(),
            is_released: false,
            ends_by_itself: false,
            is_working: false,
            patch: None,
            waker: None,
        };
        self.waiting.insert(id, &operation);
        self.operations.insert(id, Box::new(operation));
        if let Some(place) = place {
            self.by_place.insert(place, id);
        }
    }

    /// Decides the patches that are not recorded. The code of the run has a patch if the function has requested every recorded operation.
    pub(crate) fn answer_patches(&mut self, is_confirmed: bool) -> Option<GateDecision> {
        if self.waiting.patches.is_empty() {
            return None;
        }
        let has_patch = self.recorded.unclaimed == 0;
        if !has_patch && !is_confirmed {
            return Some(GateDecision::Unsure);
        }
        for id in std::mem::take(&mut self.waiting.patches) {
            if let Some(operation) = self.operations.get_mut(&id) {
                operation.patch = Some(has_patch);
            }
            if !has_patch {
                self.release(id, true);
            }
        }
        (!has_patch).then_some(GateDecision::Progress)
    }

    /// Releases one operation. The next one is released after the function was polled, so that work starts in the order of the calls.
    pub(crate) fn release_next(&mut self, id: u64) -> GateDecision {
        let ends = self.operations.get(&id).is_some_and(|operation| match operation.is_recorded {
            true => operation.has_result,
            false => !matches!(
                operation.kind,
                OperationKind::Question | OperationKind::Message | OperationKind::Child
            ),
        });
        self.release(id, ends);
        GateDecision::Progress
    }

    pub(crate) fn release(&mut self, id: u64, ends_by_itself: bool) {
        self.waiting.remove(id);
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.is_released = true;
        self.working += usize::from(!operation.kind.is_wait());
        operation.ends_by_itself = ends_by_itself;
        self.busy += usize::from(ends_by_itself);
        self.in_core += 1;
        if let Some(place) = operation.place {
            self.by_place.remove(&place);
        }
        if let Some(waker) = operation.waker.take() {
            waker.wake();
        }
    }

    /// Returns whether the function has requested every recorded operation. If the function is certainly quiet, only operations with an effect count.
    pub(crate) fn is_replayed(&self, is_confirmed: bool) -> bool {
        let undos = if self.skips_undo { self.recorded.unclaimed_undos } else { 0 };
        match self.recorded.unclaimed - undos {
            0 => true,
            _ => is_confirmed && self.recorded.unclaimed_effects == undos,
        }
    }

    /// Decides at the end of the records of a cancelled run: ended operations continue, and then the compensations start.
    pub(crate) fn rewind(&mut self, is_confirmed: bool) -> GateDecision {
        if let Some(&first) = self.waiting.ended.first() {
            return self.release_next(first);
        }
        if self.operations.len() > self.waiting.all.len() {
            return GateDecision::Idle;
        }
        if !is_confirmed {
            return GateDecision::Unsure;
        }
        self.is_rewound = true;
        self.rewind_waker.take().into_iter().for_each(Waker::wake);
        GateDecision::Progress
    }

    pub(crate) fn begin_flush(&mut self) -> GateDecision {
        self.flush = FlushState::Running;
        GateDecision::Flush(std::mem::take(&mut self.unrecorded))
    }

    /// Removes an operation that ended or was dropped.
    pub(crate) fn end(&mut self, id: u64) {
        let Some(operation) = self.operations.remove(&id) else { return };
        self.waiting.remove(id);
        if self.granted == Some(id) {
            self.granted = None;
        }
        if let Some(place) = operation.place {
            self.by_place.remove(&place);
            self.recorded.open_places.remove(&place);
        }
        if operation.is_released {
            self.working -= usize::from(!operation.kind.is_wait());
            self.busy -= usize::from(operation.ends_by_itself);
            self.in_core -= usize::from(!operation.is_working);
        }
    }
}
