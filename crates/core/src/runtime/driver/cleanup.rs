//! The cleanup of a cancelled run. Activations that require a cleanup run once more before the run ends.

use super::RunDriver;
use crate::engine::frontier::{Activation, ActivationKey};
use crate::error::Result;
use crate::record::RunStatus;
use crate::record::codec::to_raw;
use crate::record::memo::CLEANUP;
use crate::record::pause::ActivationNote;
use crate::state::State;

impl<S: State> RunDriver<S> {
    /// Returns whether activations of the cancelled run must run once more (a cleanup) before the run ends.
    pub(super) fn owes_cleanup(&self) -> bool {
        self.machine.cancel().is_some()
            && self.machine.status() == RunStatus::InProgress
            && !self.stopping.is_exceeding()
            && self.machine.requires_cleanup()
    }

    /// Returns whether this process is doing the cleanup of the run.
    pub(super) fn is_cleaning_up(&self) -> bool {
        self.owes_cleanup() && !self.stopping.is_ending()
    }

    /// Returns whether an activation may start. In a cancelled run, it may start only for a cleanup.
    pub(super) fn may_start(&self, key: ActivationKey) -> bool {
        self.machine.cancel().is_none() || self.machine.requires_cleanup_of(key)
    }

    /// Aborts the attempts that began before the cancellation, so that the cleanup can begin. Returns false if this process has no cleanup to do, or
    /// if all running attempts are cleanups.
    pub(super) fn begin_cleanup(&mut self) -> bool {
        let machine = &self.machine;
        self.is_cleaning_up() && self.ready_queue.abort_before_cleanup(|key| machine.requires_cleanup_of(key))
    }

    /// Records which activations need a cleanup, before the run becomes idle. A process without the graph can then decide how to cancel the run.
    pub(super) fn note_cleanups(&mut self) -> Result<()> {
        if self.machine.cancel().is_some() || !self.machine.requires_cleanup() {
            return Ok(());
        }
        let is_new = |key: &ActivationKey| {
            let is_noted = |activation: &Activation| activation.memos.require_cleanup();
            let is_needed =
                self.ready_queue.running(*key).is_none_or(|running| running.scope().cleanup.is_needed());
            is_needed
                && self.machine.requires_cleanup_of(*key)
                && !self.machine.in_flight().get(key).is_some_and(is_noted)
        };
        let keys: Vec<_> = self.machine.in_flight().keys().copied().filter(is_new).collect();
        for key in keys {
            self.write_note(key, CLEANUP, ActivationNote::Result(to_raw(&true)?.into()), false)?;
        }
        Ok(())
    }
}
