//! Decides when each operation of a function may continue, so that a replay takes the recorded path or stops.
//!
//! Each operation waits at the gate at its first poll. The runner calls [`ReplayGate::settle`] when the function is *quiet*: all its futures were
//! polled, and none can continue. Recorded operations then end one at a time, in the recorded order. An operation without a record continues only
//! after the function has requested every recorded operation. If the function is quiet, has not requested all recorded operations, and waits for
//! other operations, then its code was changed, and the gate aborts the attempt.

use std::fmt::Write as _;
use std::future::{pending, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::{Error, ErrorKind};

use crate::change::CodeChange;
use crate::entry::{FlowEntry, OperationKind};
use crate::error::FlowError;
use crate::gate_state::{FailedOperation, FlushState, GateMode, GateState, WaitingFailure};
use crate::names::{MAX_NAME_BYTES, slug};
use crate::recorded::{RecordedEntries, RecordedEntry};
use crate::ticket::GateTicket;

/// The gate of one attempt.
#[derive(Debug)]
pub(crate) struct ReplayGate {
    state: Mutex<GateState>,
}

/// The description of an operation that the function requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationInfo<'a> {
    /// The number of the operation in the order of the calls. `select!` polls in random order, so the order of polls cannot number operations.
    pub(crate) id: u64,
    pub(crate) key: &'a Arc<str>,
    pub(crate) kind: OperationKind,
    pub(crate) location: &'static Location<'static>,
    /// Whether the operation has no effect.
    pub(crate) is_safe: bool,
}

/// The next action of the runner.
#[derive(Debug)]
pub(crate) enum GateDecision {
    /// Poll the function again, because an operation continues.
    Progress,
    /// Record these errors, then poll the function again.
    Flush(Vec<FailedOperation>),
    /// Wait until something wakes the function.
    Idle,
    /// Call [`ReplayGate::settle`] again later, because the function may not be quiet.
    Unsure,
}

impl ReplayGate {
    /// Creates the gate of the attempt of `node`. If `is_checking` is set, the gate only checks the function against its records.
    pub(crate) fn new(node: &NodeContext, is_checking: bool) -> Self {
        let recorded = RecordedEntries::read(node);
        let skips_undo = node.is_cleaning_up();
        let mode = match (is_checking, skips_undo) {
            (true, _) => GateMode::Check,
            (false, true) => GateMode::Rewind,
            (false, false) => GateMode::Work,
        };
        Self { state: Mutex::new(GateState { recorded, mode, skips_undo, ..GateState::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the attempt with this error, unless another error already ends it.
    pub(crate) fn abort(&self, error: impl Into<NodeError>) {
        let mut state = self.state();
        if state.abort.is_none() {
            state.abort = Some(error.into());
        }
    }

    /// Returns whether the replay only checks the function against the records.
    pub(crate) fn is_checking(&self) -> bool {
        self.state().mode == GateMode::Check
    }

    /// Returns whether the function has requested every recorded operation.
    pub(crate) fn is_replayed(&self) -> bool {
        self.state().recorded.unclaimed == 0
    }

    /// Starts no further operation, because the run was cancelled. The attempt ends when no step is running.
    pub(crate) fn wind_down(&self) {
        self.state().mode = GateMode::WindDown;
    }

    /// Waits until the replay of a cancelled run has reached the end of the records.
    pub(crate) async fn rewound(&self) {
        if self.state().mode != GateMode::Rewind {
            return pending().await;
        }
        poll_fn(|context| {
            let mut state = self.state();
            if state.is_rewound {
                return Poll::Ready(());
            }
            state.rewind_waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Permits compensations, after the replay of a cancelled run.
    pub(crate) fn begin_undo(&self) {
        let mut state = self.state();
        // A timer that ended since the last try of the cleanup may have added a compensation, so recorded compensations need not come first.
        state.mode = GateMode::Work;
    }

    pub(crate) fn take_abort(&self) -> Option<NodeError> {
        self.state().abort.take()
    }

    /// Ends the attempt, and sets the input of the next pass. Only the first call has an effect.
    pub(crate) fn continue_with(&self, input: serde_json::Value) {
        self.state().continuation.get_or_insert(input);
    }

    pub(crate) fn take_continuation(&self) -> Option<serde_json::Value> {
        self.state().continuation.take()
    }

    /// Returns the key of the next operation of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the name is not valid, or already belongs to operations of another kind.
    pub(crate) fn next_key(
        &self,
        name: &str,
        kind: OperationKind,
        location: &'static Location<'static>,
    ) -> Result<Arc<str>, Error> {
        let slug = slug(name).ok_or_else(|| {
            let message = format!(
                "`{}` at {location} cannot name an operation; use 1 to {MAX_NAME_BYTES} of A-Z a-z 0-9 _ - and spaces, but not `before` and `after`, \
                 which name the pauses of a node",
                name.escape_debug()
            );
            Error::new(ErrorKind::Invalid, message)
        })?;
        let mut state = self.state();
        let GateState { numbers, numbered_key, .. } = &mut *state;
        let Some((known, count)) = numbers.get_mut(&*slug) else {
            numbers.insert(slug.clone().into_owned(), (kind, 1));
            return Ok(slug.into());
        };
        if *known != kind {
            let message = format!(
                "`{name}` names a {known} and, at {location}, a {kind}; give operations of different kinds different names"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        *count += 1;
        numbered_key.clear();
        // Writing to a string never fails.
        let _ = write!(numbered_key, "{slug}.{count}");
        Ok(numbered_key.as_str().into())
    }

    /// Numbers an operation in the order of the calls.
    pub(crate) fn next_id(&self) -> u64 {
        let mut state = self.state();
        state.last_id += 1;
        state.last_id
    }

    /// Makes the last key that [`next_key`](Self::next_key) returned for a name available again.
    pub(crate) fn give_back(&self, key: &str) {
        let slug = key.split_once('.').map_or(key, |(slug, _)| slug);
        let mut state = self.state();
        if let Some((_, count)) = state.numbers.get_mut(slug) {
            *count -= 1;
            if *count == 0 {
                state.numbers.remove(slug);
            }
        }
    }

    /// Declares that the function may omit the recorded operations of this name.
    pub(crate) fn retire(&self, name: &str) {
        if let Some(slug) = slug(name) {
            self.state().recorded.retire(&slug);
        }
    }

    /// Registers an operation that the function polls for the first time.
    pub(crate) fn ask(self: &Arc<Self>, info: OperationInfo<'_>) -> GateTicket {
        let mut state = self.state();
        let entry = state.recorded.claim(info.key);
        if let Some(entry) = entry.as_ref().filter(|entry| entry.kind != info.kind) {
            let change = CodeChange::new(Some((entry.kind, info.key)), Some((info.kind, info.key)));
            state.abort.get_or_insert_with(|| changed(change.at(info.location)));
        }
        let place = entry.as_ref().and_then(|entry| entry.place);
        let has_ended = entry.as_ref().is_some_and(|entry| entry.has_ended);
        state.add(info, place, entry.as_ref(), has_ended);
        drop(state);
        GateTicket::new(self, info.id, entry)
    }

    /// Registers the wait for the end of a child.
    pub(crate) fn ask_end(
        self: &Arc<Self>,
        info: OperationInfo<'_>,
        entry: Option<RecordedEntry>,
    ) -> GateTicket {
        let place = entry.as_ref().and_then(|entry| entry.end_place);
        let has_ended = entry.as_ref().is_some_and(|entry| entry.has_result);
        self.state().add(info, place, entry.as_ref(), has_ended);
        GateTicket::new(self, info.id, entry)
    }

    /// Returns whether the operation is released. If not, the release wakes `waker`.
    pub(crate) fn poll_release(&self, id: u64, waker: &Waker) -> bool {
        let mut state = self.state();
        let Some(operation) = state.operations.get_mut(&id) else { return false };
        if !operation.is_released {
            operation.waker = Some(waker.clone());
        }
        operation.is_released
    }

    /// Returns whether no other operation can end before this one, which is released and recorded. The gate releases recorded positions one at a
    /// time, and an operation that is alone needs no order.
    pub(crate) fn is_next(&self, id: u64) -> bool {
        let state = self.state();
        let is_alone =
            state.operations.len() == state.waiting.all.len() + 1 && state.flush != FlushState::Running;
        state.operations.get(&id).is_some_and(|operation| operation.place.is_some() || is_alone)
    }

    /// Returns whether the code has the patch. Returns `None` if this is not decided yet, or is recorded.
    pub(crate) fn patch(&self, id: u64) -> Option<bool> {
        self.state().operations.get(&id).and_then(|operation| operation.patch)
    }

    /// Sets whether the operation currently executes the work of a step.
    pub(crate) fn set_working(&self, id: u64, is_working: bool) {
        let mut state = self.state();
        let Some(operation) = state.operations.get_mut(&id) else { return };
        if std::mem::replace(&mut operation.is_working, is_working) != is_working {
            if is_working { state.in_core -= 1 } else { state.in_core += 1 }
        }
    }

    /// Removes an operation that ended or was dropped.
    pub(crate) fn end(&self, id: u64) {
        self.state().end(id);
    }

    /// Returns the next action of the runner. `is_confirmed` says that the function is certainly quiet.
    pub(crate) fn settle(&self, is_confirmed: bool) -> GateDecision {
        let mut state = self.state();
        match state.flush {
            FlushState::Running => return GateDecision::Idle,
            FlushState::Wanted => return state.begin_flush(),
            FlushState::Idle => {}
        }
        if state.mode == GateMode::WindDown {
            if state.working == 0 {
                state.abort = Some(NodeError::new("the run was cancelled").unfinished());
                return GateDecision::Progress;
            }
            return GateDecision::Idle;
        }
        if state.granted.is_some() {
            return GateDecision::Idle;
        }
        let is_replayed = state.is_replayed(is_confirmed);
        if state.mode == GateMode::Rewind && !state.is_rewound && is_replayed && state.by_place.is_empty() {
            return state.rewind(is_confirmed);
        }
        if state.waiting.all.is_empty() {
            return GateDecision::Idle;
        }
        if let Some((&place, &id)) = state.by_place.first_key_value() {
            if state.recorded.open_places.first() != Some(&place) && !is_confirmed {
                return GateDecision::Unsure;
            }
            state.granted = Some(id);
            state.release(id, true);
            return GateDecision::Progress;
        }
        if let Some(settled) = state.answer_patches(is_confirmed) {
            return settled;
        }
        let recorded = match state.mode {
            GateMode::Rewind => &state.waiting.ended,
            _ => &state.waiting.recorded,
        };
        if !is_replayed && let Some(&first) = recorded.first() {
            return state.release_next(first);
        }
        if is_replayed {
            if state.mode == GateMode::Check && state.waiting.has_new() {
                // The next operations are not recorded, so the check ends.
                state.abort = Some(NodeError::new(ReplayEnd).fatal());
                return GateDecision::Progress;
            }
            // A recorded operation that has not ended, such as a timer, may end before the error is recorded.
            if !state.unrecorded.is_empty() && state.mode != GateMode::Check {
                return state.begin_flush();
            }
            return match state.waiting.all.first() {
                Some(&first) => state.release_next(first),
                None => GateDecision::Idle,
            };
        }
        if state.busy > 0 {
            return GateDecision::Idle;
        }
        if !is_confirmed {
            return GateDecision::Unsure;
        }
        if state.mode != GateMode::Check
            && let Some(&first) = state.waiting.safe.first()
        {
            return state.release_next(first);
        }
        let recorded = state.recorded.first_unclaimed(None);
        let first = state.waiting.all.first().and_then(|id| state.operations.get(id));
        if let Some(first) = first {
            let change = CodeChange::new(recorded, Some((first.kind, &first.key))).at(first.location);
            state.abort = Some(changed(change));
        }
        GateDecision::Progress
    }

    /// Checks the end of the function. If the function did not request every recorded operation with an effect, aborts the attempt and returns false.
    /// If the function failed, `skip` excludes recorded compensations, which are requested later.
    pub(crate) fn check_end(&self, skip: Option<OperationKind>) -> bool {
        let mut state = self.state();
        let change = match state.recorded.first_unclaimed(skip) {
            Some(recorded) => CodeChange::new(Some(recorded), None),
            None => return true,
        };
        state.abort.get_or_insert_with(|| changed(change));
        false
    }

    /// Registers an error that the function sees and no record contains. The error is recorded before the next operation of the function. If the
    /// driver may end another operation first, or an earlier error waits for its record, this call returns only after the error is recorded.
    pub(crate) async fn note_failure(&self, key: &str, kind: OperationKind, error: &FlowError) {
        let wait = {
            let mut state = self.state();
            state.last_failure += 1;
            let number = state.last_failure;
            let entry = FlowEntry::Failed(kind, error.record());
            state.unrecorded.push(FailedOperation { number, key: key.to_owned(), entry });
            let is_alone = state.in_core == 0 && state.waiting_failures.is_empty();
            (!is_alone).then(|| {
                state.waiting_failures.insert(number, WaitingFailure::default());
                FailureWait { gate: self, number }
            })
        };
        if let Some(wait) = wait {
            wait.await;
        }
    }

    /// Marks an error as recorded. The function then sees the error before the driver ends another operation.
    pub(crate) fn end_failure(&self, number: u64) {
        let mut state = self.state();
        let Some(failure) = state.waiting_failures.get_mut(&number) else { return };
        failure.is_recorded = true;
        failure.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Waits until all errors that the function has seen are recorded.
    pub(crate) async fn flushed(&self) {
        poll_fn(|context| {
            let mut state = self.state();
            if state.unrecorded.is_empty() && state.flush != FlushState::Running {
                return Poll::Ready(());
            }
            if state.flush == FlushState::Idle {
                state.flush = FlushState::Wanted;
            }
            state.flush_waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Marks the errors of the last flush as recorded.
    pub(crate) fn end_flush(&self) {
        let mut state = self.state();
        state.flush = match state.waiting_failures.values().all(|failure| failure.is_recorded) {
            true => FlushState::Idle,
            false => FlushState::Wanted,
        };
        state.flush_waiters.drain(..).for_each(Waker::wake);
    }
}

/// Waits until an error is recorded. Errors are recorded in the order in which the function saw them.
struct FailureWait<'a> {
    gate: &'a ReplayGate,
    number: u64,
}

impl Future for FailureWait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.gate.state();
        let Some(failure) =
            state.waiting_failures.get_mut(&self.number).filter(|failure| !failure.is_recorded)
        else {
            return Poll::Ready(());
        };
        failure.waker = Some(context.waker().clone());
        if state.flush == FlushState::Idle {
            state.flush = FlushState::Wanted;
        }
        Poll::Pending
    }
}

impl Drop for FailureWait<'_> {
    fn drop(&mut self) {
        self.gate.state().waiting_failures.remove(&self.number);
    }
}

fn changed(change: CodeChange) -> NodeError {
    NodeError::new(change).fatal()
}

/// The error that ends a check at the end of the records.
#[derive(Debug)]
pub(crate) struct ReplayEnd;

/// The text of [`ReplayEnd`].
pub(crate) const REPLAY_END: &str = "the records end here, and nothing more is checked";

impl std::fmt::Display for ReplayEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(REPLAY_END)
    }
}

impl std::error::Error for ReplayEnd {}
