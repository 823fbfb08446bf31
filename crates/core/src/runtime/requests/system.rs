//! Which runs are not work, but what a library keeps for all processes.

use crate::record::RunStatus;
use crate::store::RunHead;

/// The workflows of such runs, as they are named or as their names begin, with the label that tells them from others.
const QUEUE: (&str, &str, &str) = ("queue", "queue.role", "ledger");
const SCHEDULE: (&str, &str, &str) = ("schedule:", "schedule.role", "clock");

/// Tells whether a run is a queue or a schedule. What is done to all runs of a listing is not meant for these unless they are named: to let a
/// queue go on, to cancel or to purge it takes the places of all from those who hold them.
pub fn is_system(head: &RunHead) -> bool {
    let workflow = head.facts.workflow.as_str();
    let has = |key: &str, value: &str| head.facts.labels.get(key) == Some(value);
    // Labels are free: a run of another workflow is none of them, whatever it says.
    workflow == QUEUE.0 && has(QUEUE.1, QUEUE.2)
        || workflow.starts_with(SCHEDULE.0) && has(SCHEDULE.1, SCHEDULE.2)
}

/// Tells whether a run is not meant where all runs are. What a schedule leaves behind when it goes on in a new log is meant.
pub fn is_spared(head: &RunHead) -> bool {
    is_system(head) && head.status != RunStatus::Completed
}

/// Tells whether a label is one that Ferrata sets for itself. Lists of runs leave such labels out.
pub fn is_internal_label(key: &str) -> bool {
    let of_libraries = [QUEUE.1, "queue.life", SCHEDULE.1, "schedule.tick"];
    key.starts_with("ferrata.") || of_libraries.contains(&key)
}
