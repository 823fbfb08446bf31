//! The status of a run with its reason, the signals that are not carried out yet, and the events that wake the run from an idle time.

use super::frontier::ActivationKey;
use crate::clock::Timestamp;
use crate::record::pause::ChildPolls;
use crate::record::{Failure, RunStatus};

/// The reasons for which a run is paused: one pause of the run itself, and one by its parent. The two do not affect each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct PauseReasons {
    pub(crate) own: Option<String>,
    pub(crate) of_parent: Option<String>,
}

/// The status of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunState {
    status: RunStatus,
    failure: Option<Box<Failure>>,
    /// The reason of a cancellation request.
    cancel: Option<String>,
    /// The reasons of the pause. They are present if the run was ever paused, because its children may then still be paused.
    pauses: Option<Box<PauseReasons>>,
    /// Whether the idle run continues when a message arrives.
    receiving: bool,
    /// The activations that waited for a message when the run last became idle, with the names of their waits, if there were several. The longest
    /// wait comes first.
    receivers: Vec<(ActivationKey, String)>,
    /// The time at which the idle run continues if no event arrives earlier.
    wake: Option<Timestamp>,
    /// When the idle run polls its children.
    looks: Option<ChildPolls>,
}

impl RunState {
    pub(super) fn new() -> Self {
        Self {
            status: RunStatus::InProgress,
            failure: None,
            cancel: None,
            pauses: None,
            receiving: false,
            receivers: Vec::new(),
            wake: None,
            looks: None,
        }
    }

    pub(super) fn status(&self) -> RunStatus {
        self.status
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_deref()
    }

    pub(super) fn cancel(&self) -> Option<&str> {
        self.cancel.as_deref()
    }

    pub(super) fn paused(&self) -> Option<&str> {
        let pauses = self.pauses.as_ref()?;
        pauses.own.as_deref().or(pauses.of_parent.as_deref())
    }

    pub(super) fn pauses(&self) -> Option<&PauseReasons> {
        self.pauses.as_deref()
    }

    pub(super) fn is_receiving(&self) -> bool {
        self.receiving
    }

    pub(super) fn receivers(&self) -> &[(ActivationKey, String)] {
        &self.receivers
    }

    pub(super) fn wake(&self) -> Option<Timestamp> {
        self.wake
    }

    /// Makes the run idle with this status, and records the events that end the idle time.
    pub(super) fn become_idle(&mut self, status: RunStatus, receiving: bool, wake: Option<Timestamp>) {
        (self.status, self.receiving, self.wake, self.looks) = (status, receiving, wake, None);
    }

    /// Records when the idle run polls its children.
    pub(super) fn set_child_polls(&mut self, looks: Option<ChildPolls>) {
        self.looks = looks;
    }

    pub(super) fn child_polls(&self) -> Option<ChildPolls> {
        self.looks
    }

    /// Sets the activations that wait for a message. If the list is empty, the record does not contain this information.
    pub(super) fn set_receivers(&mut self, receivers: Vec<(ActivationKey, String)>) {
        if !receivers.is_empty() {
            self.receivers = receivers;
        }
    }

    /// Ends the idle time of the run, unless it is paused or has ended.
    pub(super) fn wake_up(&mut self) {
        if !(self.status.is_finished() || self.paused().is_some()) {
            self.become_idle(RunStatus::InProgress, false, None);
        }
    }

    pub(super) fn interrupt(&mut self) {
        self.status = RunStatus::Interrupted;
    }

    pub(super) fn complete(&mut self) {
        self.status = RunStatus::Completed;
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure = Some(Box::new(failure));
        self.become_idle(RunStatus::Failed, false, None);
    }

    pub(super) fn cancelled(&mut self) {
        self.become_idle(RunStatus::Cancelled, false, None);
    }

    /// Continues a failed run.
    pub(super) fn retry(&mut self) {
        (self.status, self.failure) = (RunStatus::InProgress, None);
    }

    /// Requests the cancellation of the run.
    pub(super) fn ask_to_cancel(&mut self, reason: String) {
        self.cancel = Some(reason);
    }

    /// Adds the failure of a cleanup to the reason of the cancellation.
    pub(super) fn fail_cleanup(&mut self, message: &str) {
        if let Some(reason) = &mut self.cancel {
            reason.push_str("; the cleanup failed: ");
            reason.push_str(message);
        }
    }

    pub(super) fn pause(&mut self, reason: String, of_parent: bool) {
        let pauses = self.pauses.get_or_insert_default();
        *(if of_parent { &mut pauses.of_parent } else { &mut pauses.own }) = Some(reason);
        if self.status == RunStatus::AwaitingInput {
            self.status = RunStatus::Interrupted;
        }
    }

    /// Ends a pause. If the parent unpauses the run, only the pause by the parent ends. In all other cases both pauses end.
    pub(super) fn unpause(&mut self, of_parent: bool) {
        if let Some(pauses) = &mut self.pauses {
            pauses.of_parent = None;
            if !of_parent {
                pauses.own = None;
            }
        }
        self.wake_up();
    }

    /// Makes an idle run claimable because its cancellation was requested.
    pub(super) fn allow_stop(&mut self) {
        let is_told = self.cancel.is_some() || self.paused().is_some();
        if is_told && matches!(self.status, RunStatus::Interrupted | RunStatus::AwaitingInput) {
            self.status = RunStatus::InProgress;
        }
    }

    /// Drops the signals to the run and their reasons, for a fork.
    pub(super) fn reset_signals(&mut self) {
        *self = Self { receivers: std::mem::take(&mut self.receivers), ..Self::new() };
    }

    /// Restores the status and its reasons from a base.
    pub(super) fn restore(
        &mut self,
        failure: Option<Failure>,
        cancel: Option<String>,
        pauses: Option<PauseReasons>,
    ) {
        (self.failure, self.cancel, self.pauses) = (failure.map(Box::new), cancel, pauses.map(Box::new));
    }
}
