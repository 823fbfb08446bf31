//! Turns events that the machine has absorbed into records that will be appended.

use super::RunDriver;
use crate::error::Result;
use crate::graph::NodeCheckpoint;
use crate::id::{NodeName, Seq, Visit};
use crate::kernel::event::Event as RunEventKind;
use crate::kernel::log::RecordOptions;
use crate::record::RunStatus;
use crate::record::body::{NodeDone, RecordEvent};
use crate::state::{Patch, State};

impl<S: State> RunDriver<S> {
    /// Holds back the end of an activation, and writes all held-back events if the checkpoint policy requires a record.
    pub(super) fn hold_end(
        &mut self,
        done: NodeDone,
        patch: Patch,
        checkpoint: NodeCheckpoint,
        must: bool,
    ) -> Result<()> {
        let due = self.journal.hold_end(done, patch, checkpoint)?;
        let after = matches!(checkpoint, NodeCheckpoint::After | NodeCheckpoint::Both);
        if must || due || after || self.journal.writes_status(self.machine.status()) {
            // A declared checkpoint is written, even if no record was written before.
            self.flush(must || after)?;
        }
        Ok(())
    }

    /// Writes all events that were delayed. If `whole` is set, it writes a checkpoint even if no record was ever written.
    pub(super) fn flush(&mut self, whole: bool) -> Result<()> {
        self.journal.flush(whole, &mut self.machine, &self.state)?;
        self.mark_sent_messages();
        Ok(())
    }

    /// Applies an event to the machine, and writes it after all events that were delayed.
    pub(super) fn write_event(
        &mut self,
        event: &RecordEvent,
        node: Option<(NodeName, Visit)>,
        release: bool,
    ) -> Result<Seq> {
        self.flush(true)?;
        let before = self.machine.status();
        self.machine.absorb(event)?;
        let is_alone = self.machine.in_flight().len() == 1;
        let is_to_stop = self.machine.cancel().is_some() || self.machine.paused().is_some();
        let wake_at = match event {
            // If this process dies, other processes claim the run when the time comes, not earlier. A sleeping node may have other work, and an
            // activation that stops the run waits for no attempt.
            RecordEvent::Attempt(attempt) if is_alone && !is_to_stop => {
                let deadline = self.stopping.deadline_at();
                attempt.retry_at.map(|at| deadline.map_or(at, |deadline| at.min(deadline)))
            }
            _ => None,
        };
        let options = RecordOptions { node, wake_at, release, base: false };
        let seq = self.journal.write(event, options, &mut self.machine, &self.state)?;
        self.announce(before);
        Ok(seq)
    }

    /// Notifies subscribers if the status of the run has changed.
    pub(super) fn announce(&self, before: RunStatus) {
        let status = self.machine.status();
        if status != before {
            self.emit(|| RunEventKind::Status { status });
        }
    }
}
