//! The events that pause or end a run which no process drives.

use crate::ask::Answer;
use crate::clock::Timestamp;
use crate::engine::machine::Machine;
use crate::record::RunStatus;
use crate::record::body::{RecordEvent, Signal, SignalKind, StatusChange};
use crate::record::pause::IdleRecord;

/// Returns the change of the status by which a signal ends a run that no process drives, if there is one.
pub(crate) fn stop(machine: &Machine, what: &SignalKind) -> Option<StatusChange> {
    match what {
        SignalKind::Cancel { .. } | SignalKind::Answer { answer: Answer::Cancel(_), .. } => {
            Some(StatusChange::Cancelled)
        }
        SignalKind::Pause { .. } => Some(StatusChange::Rested(IdleRecord {
            status: RunStatus::Interrupted,
            receiving: machine.is_receiving(),
            wake: None,
            receivers: Vec::new(),
        })),
        _ => None,
    }
}

/// Returns the events that pause a run which has crashed its processes too often. It has no living owner.
pub(crate) fn parked(machine: &Machine, reason: &str, at: Timestamp) -> Vec<RecordEvent> {
    paused(machine, reason, Some("recovery"), at)
}

/// Returns the events that pause a run which no process drives.
pub(crate) fn paused(machine: &Machine, reason: &str, by: Option<&str>, at: Timestamp) -> Vec<RecordEvent> {
    let what = SignalKind::Pause { reason: reason.to_owned() };
    let stop = stop(machine, &what);
    let signal = Signal { what, by: by.map(str::to_owned), at, of_parent: false };
    [RecordEvent::Signal(signal)].into_iter().chain(stop.map(RecordEvent::Status)).collect()
}
