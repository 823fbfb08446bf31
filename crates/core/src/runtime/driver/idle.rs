//! Makes a run idle when nothing in this process can advance it.

use super::children::StopProgress;
use super::{DriverExit, RunDriver};
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::error::{ErrorKind, Result};
use crate::record::RunStatus;
use crate::record::body::{RecordEvent, ReleaseRecord, StatusChange};
use crate::record::pause::{ChildPolls, IdleRecord, Receiver};
use crate::state::State;

impl<S: State> RunDriver<S> {
    /// Makes the run idle if nothing in this process can advance it. Returns the reason if the driver must stop.
    pub(super) async fn try_become_idle(&mut self) -> Result<Option<DriverExit>> {
        if self.machine.cancel().is_some() && self.machine.status() == RunStatus::InProgress {
            self.ready_queue.note_cancel();
            self.stopping.cancel_within(self.shared.limits.cancel_grace);
        }
        if self.machine.status().is_finished() {
            // Attempts that must not be repeated finish and are recorded. Others are not awaited.
            self.stopping.notify_nodes();
            self.ready_queue.abort_repeatable();
        }
        let is_at_work = self.ready_queue.is_at_work(|key| self.waits.waits(key));
        let settling = self.sync_child_pauses(is_at_work);
        if is_at_work {
            return Ok(None);
        }
        let stopping = self.is_stopping();
        let none_in_line = self.ready_queue.is_empty();
        if !(stopping || none_in_line) {
            return Ok(None);
        }
        if self.machine.status() == RunStatus::InProgress {
            let idle = self.answerer_tasks.is_idle()
                && self.journal.has_no_deferred_reply()
                && self.commands.is_empty();
            if !(stopping || idle) {
                return Ok(None);
            }
            if self.is_cleaning_up() {
                if self.begin_cleanup() || !self.fall_asleep()? {
                    return Ok(None);
                }
                return Box::pin(self.drain()).await.map(|settled| settled.then_some(DriverExit::Settled));
            }
            if self.owes_cleanup() {
                self.release(
                    "the runtime was shut down before the cleanup of the run had ended",
                    None,
                    None,
                )?;
                return Box::pin(self.drain()).await.map(|settled| settled.then_some(DriverExit::Released));
            }
            if self.machine.cancel().is_some() {
                let reason = format!("its parent {} was cancelled", self.journal.run());
                match self.stop_children(&reason) {
                    // The next owner cancels the remaining children.
                    StopProgress::Telling if self.stopping.is_shutdown_over() => {
                        self.release(
                            "the runtime was shut down while it cancelled its children",
                            None,
                            None,
                        )?;
                        return Box::pin(self.drain())
                            .await
                            .map(|settled| settled.then_some(DriverExit::Released));
                    }
                    StopProgress::Telling => return Ok(None),
                    StopProgress::Waiting if !self.stopping.is_shutdown_over() => return Ok(None),
                    StopProgress::Waiting | StopProgress::Done => {}
                }
                self.write_event(&RecordEvent::Status(StatusChange::Cancelled), None, false)?;
            } else if settling && !self.stopping.has_grace() {
                // A parent that becomes idle while paused has paused its children. Otherwise it has unpaused them.
                return Ok(None);
            } else if settling && self.machine.paused().is_some() {
                self.release("the runtime was shut down while it paused its children", None, None)?;
                return Box::pin(self.drain()).await.map(|settled| settled.then_some(DriverExit::Released));
            } else if self.machine.paused().is_some() {
                let status = RunStatus::Interrupted;
                let (receiving, receivers) = (self.waits.is_receiving(), self.receivers());
                self.write_idle(IdleRecord { status, receiving, wake: None, receivers })?;
            } else if self.stopping.has_grace() {
                self.flush(false)?;
                if self.journal.has_begun() {
                    self.release_for_shutdown(none_in_line)?;
                }
                return Box::pin(self.drain()).await.map(|settled| settled.then_some(DriverExit::Released));
            } else if self.stopping.is_exceeding() || !self.fall_asleep()? {
                return Ok(None);
            } else if self.machine.status() == RunStatus::InProgress {
                return Box::pin(self.drain()).await.map(|settled| settled.then_some(DriverExit::Settled));
            }
        }
        if self.journal.writes_status(self.machine.status()) {
            self.flush(false)?;
        }
        Box::pin(self.drain()).await.map(|settled| settled.then_some(DriverExit::Settled))
    }

    /// Makes the run idle if it waits only for a time, answers or messages. Returns false if the wait is short and the driver waits in this process
    /// instead.
    fn fall_asleep(&mut self) -> Result<bool> {
        let wake = self.next_time();
        if wake.is_some_and(|at| at <= self.shared.clock.now()) {
            // A claimer of a run whose time has come would find it unchanged, so the driver continues with it.
            self.stopping.meet_deadline();
            return Ok(false);
        }
        let timed = self.ready_queue.next_time().is_some() || self.waits.is_sleeping();
        let wake_of_timer = wake.filter(|_| timed && !self.waits.is_for_child());
        let is_near = |at: Timestamp| at.since(self.shared.clock.now()) <= self.shared.limits.release_after;
        if wake_of_timer.is_some_and(is_near) && !self.shared.is_closing() {
            return Ok(false);
        }
        // A node marks itself as waiting shortly before it notifies the driver. In between, its next result may not be delivered, because the node
        // was still polled at the last check. The notice follows.
        if self.has_news() {
            return Ok(false);
        }
        if self.waits.is_for_child() {
            return self.rest_on_children();
        }
        if wake_of_timer.is_some() {
            self.release("only time moves the run", wake, None)?;
            return Ok(true);
        }
        let (asked, receiving) = (!self.machine.posed().is_empty(), self.waits.is_receiving());
        if !(asked || receiving) {
            return Err(self.stuck_error());
        }
        let status = if asked { RunStatus::Interrupted } else { RunStatus::AwaitingInput };
        self.write_idle(IdleRecord { status, receiving, wake, receivers: self.receivers() })?;
        Ok(true)
    }

    /// Releases the run because the runtime shuts down. If all activations wait, the run becomes idle until an event arrives. Otherwise another
    /// process can claim it at once.
    fn release_for_shutdown(&mut self, none_in_line: bool) -> Result<()> {
        let reason = match self.shared.is_closing() {
            true => "the runtime was shut down",
            false => "another graph serves the workflow",
        };
        let waits = |key: &ActivationKey| self.ready_queue.waits(*key, self.waits.waits(*key));
        // Broken-off activations are not in the ready queue.
        let all_wait = none_in_line && self.machine.in_flight().keys().all(waits);
        if !all_wait || self.has_news() {
            return self.release(reason, None, None);
        }
        if self.waits.is_for_child() {
            return self.release_until_poll(reason);
        }
        self.release(reason, self.next_time(), None)
    }

    /// Lists the waits for a message, ordered from the longest wait to the shortest. If there is only one wait, the list is empty, because it is
    /// clear that this wait takes the next message.
    fn receivers(&self) -> Vec<Receiver> {
        let waiting = self.waits.receivers();
        if waiting.len() < 2 {
            return Vec::new();
        }
        let named =
            |((node, visit), name): (ActivationKey, String)| (self.machine.name(node).clone(), visit, name);
        waiting.into_iter().map(named).collect()
    }

    /// Returns the time at which the run continues if no event arrives earlier.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        // A cancelled run has no deadline.
        let deadline = self.stopping.deadline_at().filter(|_| self.machine.cancel().is_none());
        let times = [self.ready_queue.next_time(), self.waits.next_time(), deadline];
        times.into_iter().flatten().min()
    }

    /// Records that the run is idle, whatever its checkpoint policy is, together with the records that were delayed. So the log shows every wait of
    /// the run to other processes.
    fn write_idle(&mut self, rested: IdleRecord) -> Result<()> {
        self.note_cleanups()?;
        let plain = !rested.receiving && rested.wake.is_none() && rested.status == RunStatus::Interrupted;
        let event =
            RecordEvent::Status(if plain { StatusChange::Interrupted } else { StatusChange::Rested(rested) });
        self.write_event(&event, None, false).map(|_| ())
    }

    pub(super) fn release(
        &mut self,
        reason: &str,
        wake: Option<Timestamp>,
        looks: Option<ChildPolls>,
    ) -> Result<()> {
        self.note_cleanups()?;
        let (receiving, receivers) = (self.waits.is_receiving(), self.receivers());
        let (reason, orderly) = (reason.into(), self.stopping.is_ending());
        let released =
            ReleaseRecord { reason, wake, receiving, receivers, begun: Vec::new(), looks, orderly };
        self.write_event(&RecordEvent::Release(released), None, true).map(|_| ())
    }

    /// Waits until all records are acknowledged. Returns false after a write conflict, when the run must be checked again.
    async fn drain(&mut self) -> Result<bool> {
        self.break_transaction();
        while self.journal.pending() > 0 {
            match self.acknowledged().await {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    self.rebase().await?;
                    return Ok(false);
                }
                answer => self.acknowledge(answer).await?,
            }
        }
        Ok(true)
    }
}
