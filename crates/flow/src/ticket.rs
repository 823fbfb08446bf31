//! Tickets of operations at the gate.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use crate::gate::ReplayGate;
use crate::recorded::RecordedEntry;

/// The place of an operation at the gate, until it has ended or is dropped.
#[derive(Debug)]
pub(crate) struct GateTicket {
    gate: Arc<ReplayGate>,
    id: u64,
    /// The records of the operation.
    pub(crate) entry: Option<RecordedEntry>,
}

impl GateTicket {
    pub(crate) fn new(gate: &Arc<ReplayGate>, id: u64, entry: Option<RecordedEntry>) -> Self {
        Self { gate: Arc::clone(gate), id, entry }
    }

    /// Waits until the operation may go on.
    pub(crate) async fn released(&self) {
        poll_fn(|context| match self.gate.poll_release(self.id, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Tells whether the code has the patch.
    pub(crate) fn patch(&self) -> Option<bool> {
        self.gate.patch(self.id)
    }

    /// Marks the step as working until the guard is dropped.
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

/// The work of a step.
pub(crate) struct WorkGuard<'a>(&'a GateTicket);

impl Drop for WorkGuard<'_> {
    fn drop(&mut self) {
        self.0.gate.set_working(self.0.id, false);
    }
}
