//! From what was absorbed to records on their way.

use super::RunDriver;
use crate::error::Result;
use crate::graph::NodeCheckpoint;
use crate::id::{NodeName, Seq, Visit};
use crate::record::RunStatus;
use crate::record::body::{Event, NodeDone};
use crate::runtime::event::Event as RunEventKind;
use crate::runtime::log::RecordOptions;
use crate::state::{Patch, State};

impl<S: State> RunDriver<S> {
    /// Holds an end that was absorbed, and writes what is held if the policy says so.
    pub(super) fn hold(
        &mut self,
        done: NodeDone,
        patch: Patch,
        checkpoint: NodeCheckpoint,
        must: bool,
    ) -> Result<()> {
        let due = self.journal.hold(done, patch, checkpoint)?;
        let after = matches!(checkpoint, NodeCheckpoint::After | NodeCheckpoint::Both);
        if must || due || after || self.journal.writes_status(self.machine.status()) {
            // What is declared to be on record is, even if nothing was before.
            self.flush(must || after)?;
        }
        Ok(())
    }

    /// Writes what is held back. `whole` asks for a checkpoint even if nothing has been written at all.
    pub(super) fn flush(&mut self, whole: bool) -> Result<()> {
        self.journal.flush(whole, &mut self.machine, &self.state)?;
        self.note_sent();
        Ok(())
    }

    /// Absorbs an event and writes it, after everything that is held back.
    pub(super) fn note(
        &mut self,
        event: &Event,
        node: Option<(NodeName, Visit)>,
        release: bool,
    ) -> Result<Seq> {
        self.flush(true)?;
        let before = self.machine.status();
        self.machine.absorb(event)?;
        let is_alone = self.machine.in_flight().len() == 1;
        let is_to_stop = self.machine.cancel().is_some() || self.machine.paused().is_some();
        let wake_at = match event {
            // Should this process end, the run is taken up when the time has come, and not before. A node that sleeps may do something else
            // beside, and what stops the run waits for no attempt.
            Event::Attempt(attempt) if is_alone && !is_to_stop => {
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

    /// Tells subscribers if the status changed.
    pub(super) fn announce(&self, before: RunStatus) {
        let status = self.machine.status();
        if status != before {
            self.emit(|| RunEventKind::Status { status });
        }
    }
}
