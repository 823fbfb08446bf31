//! Handles to operations that are registered at the replay gate.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use crate::gate::ReplayGate;
use crate::recorded::RecordedEntry;

/// A handle to an operation that is registered at the replay gate. Dropping the handle ends the operation at the gate.
#[derive(Debug)]
pub(crate) struct GateTicket {
    gate: Arc<ReplayGate>,
    id: u64,
    /// The records of the operation from earlier attempts, if there are any.
    pub(crate) entry: Option<RecordedEntry>,
}

impl GateTicket {
    pub(crate) fn new(gate: &Arc<ReplayGate>, id: u64, entry: Option<RecordedEntry>) -> Self {
        Self { gate: Arc::clone(gate), id, entry }
    }

    /// Waits until the gate lets the operation continue.
    pub(crate) async fn released(&self) {
        poll_fn(|context| match self.gate.poll_release(self.id, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Tells whether no other operation can end before this one, which is released and recorded.
    pub(crate) fn is_next(&self) -> bool {
        self.gate.is_next(self.id)
    }

    /// Returns whether the code has the patch. Returns `None` if that is not decided yet, or if a record already says so.
    pub(crate) fn patch(&self) -> Option<bool> {
        self.gate.patch(self.id)
    }

    /// Marks the step as running until the returned guard is dropped.
    pub(crate) fn work(&self) -> WorkGuard<'_> {
        self.gate.set_working(self.id, true);
        WorkGuard(self)
    }
}

impl Drop for GateTicket {
    fn drop(&mut self) {
        self.gate.end(self.id);
    }
}

/// A guard that marks a step as running. Dropping the guard removes the mark.
pub(crate) struct WorkGuard<'a>(&'a GateTicket);

impl Drop for WorkGuard<'_> {
    fn drop(&mut self) {
        self.0.gate.set_working(self.0.id, false);
    }
}
