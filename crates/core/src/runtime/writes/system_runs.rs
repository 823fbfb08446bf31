//! Recognizes the runs that libraries create: runs that hold the state of a queue or a schedule, and runs that use a queue.

use crate::clock::Timestamp;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::inner::RuntimeInner;
use crate::record::body::RecordEvent;
use crate::record::{RunFacts, RunStatus};
use crate::runtime::writes::pause_events::paused;
use crate::store::RunHead;

/// The workflow names or name prefixes of runs that hold the state of queues and schedules, with the label by which they are recognized.
const QUEUE: (&str, &str, &str) = ("queue", "queue.role", "ledger");
const SCHEDULE: (&str, &str, &str) = ("schedule:", "schedule.role", "clock");

/// Labels of a run that uses a queue: the queue, and the start id.
pub(crate) const QUEUE_NAME: &str = "queue";
pub(crate) const QUEUE_START: &str = "queue.start";

/// The author of holds for a queue, in the log.
const BY_QUEUE: &str = "queue";

/// Returns whether a run holds the state of a queue or a schedule. Bulk operations skip such runs unless they select them by name, because unpausing,
/// cancelling or purging the run of a queue takes the slots from all holders.
#[doc(hidden)]
pub fn is_system(head: &RunHead) -> bool {
    is_system_run(&head.facts)
}

/// Returns whether bulk operations skip a run. If a schedule continues in a new run, bulk operations do not skip its old run.
#[doc(hidden)]
pub fn is_skipped_in_bulk(head: &RunHead) -> bool {
    is_system(head) && head.status != RunStatus::Completed
}

/// Returns whether Ferrata uses a label internally. Displays of runs omit such labels.
#[doc(hidden)]
pub fn is_internal_label(key: &str) -> bool {
    let of_libraries = [QUEUE.1, QUEUE_START, SCHEDULE.1, "schedule.tick"];
    key.starts_with("ferrata.") || of_libraries.contains(&key)
}

fn is_system_run(facts: &RunFacts) -> bool {
    let workflow = facts.workflow.as_str();
    let has = |key: &str, value: &str| facts.labels.get(key) == Some(value);
    // Anyone can set labels, so the workflow must match as well.
    workflow == QUEUE.0 && has(QUEUE.1, QUEUE.2)
        || workflow.starts_with(SCHEDULE.0) && has(SCHEDULE.1, SCHEDULE.2)
}

/// Returns an error if a run holds the state of a queue or a schedule, because a copy of it would have the same state as the original.
///
/// # Errors
///
/// [`ErrorKind::Invalid`].
pub(crate) fn check_copy(facts: &RunFacts) -> Result<()> {
    if !is_system_run(facts) {
        return Ok(());
    }
    let message = match facts.workflow.as_str() {
        workflow if workflow == QUEUE.0 => {
            "the run is a queue and cannot be copied; declare a queue of another name"
        }
        _ => "the run is a schedule and cannot be copied; start a schedule of another name",
    };
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Returns the name of the queue that a run uses, or `None` if it uses no queue.
///
/// A run with a queue is active only while it holds a slot of the queue. A retry, a move of a failed run, a fork or an import would make the run
/// active without a slot. These operations therefore pause the run in the same append, until it gets a slot.
#[doc(hidden)]
pub fn queue_name(facts: &RunFacts) -> Option<&str> {
    facts.labels.get(QUEUE_START)?;
    facts.labels.get(QUEUE_NAME)
}

/// Returns the recorded reason of the pause while a run waits for a slot of the queue.
#[doc(hidden)]
pub fn queue_pause_reason(queue: &str) -> String {
    format!("it waits for a slot of queue `{queue}`")
}

/// Returns the events that pause a run until it gets a slot of its queue, when a retry, a move, a fork or an import makes it active. If the run uses
/// no queue, the list is empty.
///
/// If a person has paused the run, this pause remains: the queue grants the run a slot, but does not unpause it.
pub(crate) fn hold_for_queue(
    machine: &Machine,
    facts: Option<&RunFacts>,
    now: Timestamp,
) -> Vec<RecordEvent> {
    let Some(queue) = facts.and_then(queue_name) else { return Vec::new() };
    let hold = queue_pause_reason(queue);
    let reason = match machine.paused() {
        Some(before) if before.starts_with(&hold) => before.to_owned(),
        Some(before) => format!("{hold}; {before}"),
        None => hold,
    };
    paused(machine, &reason, Some(BY_QUEUE), now)
}

/// Returns whether a run is on hold for its queue.
pub(crate) fn is_held_for_queue(machine: &Machine, facts: &RunFacts) -> bool {
    let hold = queue_name(facts).map(queue_pause_reason);
    machine.paused().zip(hold).is_some_and(|(paused, hold)| paused.starts_with(&hold))
}

/// Creates the label that distinguishes a fork from every other start of its run id.
pub(crate) fn new_queue_start(shared: &RuntimeInner, now: Timestamp) -> String {
    // Starts count from 0; a fork takes a random number beyond them.
    let (_, random) = shared.ids.next(now).as_u64_pair();
    format!("{}.{}.{}", shared.executor, now.unix_ms(), random | 1 << 63)
}
