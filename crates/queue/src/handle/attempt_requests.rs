//! Slot requests of the nodes in this process. An attempt has at most one request at a time for each slot name.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata_core::Epoch;

use super::{QueueCommand, QueueHandle};

/// The id of a slot, and the attempt that requests it, by epoch and number. A detached task of an earlier attempt may still hold the slot.
pub(crate) type RequestKey = (String, Epoch, u32);

/// The attempts of this process that hold slots or wait for them.
#[derive(Debug, Default)]
pub(super) struct AttemptRequests(Mutex<BTreeSet<RequestKey>>);

impl AttemptRequests {
    fn lock_requests(&self) -> MutexGuard<'_, BTreeSet<RequestKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registers an attempt that holds a slot or waits for it. After the guard is dropped, the attempt may request the slot again.
#[derive(Debug)]
pub(crate) struct AttemptRequestGuard {
    desk: Arc<QueueHandle>,
    asked: RequestKey,
}

impl AttemptRequestGuard {
    /// Registers a slot request; returns `None` if the attempt already has the slot or waits for it.
    pub(crate) fn new(desk: &Arc<QueueHandle>, asked: RequestKey) -> Option<Arc<Self>> {
        let is_new = desk.askers.lock_requests().insert(asked.clone());
        is_new.then(|| Arc::new(Self { desk: Arc::clone(desk), asked }))
    }

    /// Sends the command that releases the slot, and returns `true`. If a later attempt has requested the slot, the slot belongs to that attempt, and
    /// the method only returns `false`.
    pub(crate) fn release(&self, command: QueueCommand) -> bool {
        // Hold the lock until the command is sent, so that no later attempt requests the slot in between.
        let all = self.desk.askers.lock_requests();
        let is_last = self.is_last_of(&all);
        if is_last {
            self.desk.send(command);
        }
        is_last
    }

    /// Returns whether no later attempt has requested the slot.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last_of(&self.desk.askers.lock_requests())
    }

    fn is_last_of(&self, all: &BTreeSet<RequestKey>) -> bool {
        let later = all.range((Bound::Excluded(&self.asked), Bound::Unbounded)).next();
        later.is_none_or(|(id, ..)| *id != self.asked.0)
    }
}

impl Drop for AttemptRequestGuard {
    fn drop(&mut self) {
        self.desk.askers.lock_requests().remove(&self.asked);
    }
}
