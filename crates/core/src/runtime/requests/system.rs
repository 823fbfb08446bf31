//! What core knows of the libraries beside it: which runs keep the state of a queue or a schedule, and which runs go through a queue.

use crate::clock::Timestamp;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::record::body::Event;
use crate::record::{RunFacts, RunStatus};
use crate::runtime::requests::signal::paused;
use crate::runtime::shared::RuntimeInner;
use crate::store::RunHead;

/// The workflows of such runs, as they are named or as their names begin, with the label that tells them from others.
const QUEUE: (&str, &str, &str) = ("queue", "queue.role", "ledger");
const SCHEDULE: (&str, &str, &str) = ("schedule:", "schedule.role", "clock");

/// The labels of a run that goes through a queue: the queue, and the start of the run id.
pub(crate) const QUEUE_NAME: &str = "queue";
pub(crate) const QUEUE_START: &str = "queue.life";

/// Who puts a run on hold for its queue, as its log says.
const BY_QUEUE: &str = "queue";

/// Tells whether a run is a queue or a schedule. What is done to all runs of a listing is not meant for these unless they are named: to let a
/// queue go on, to cancel or to purge it takes the places of all from those who hold them.
pub fn is_system(head: &RunHead) -> bool {
    is_system_run(&head.facts)
}

/// Tells whether a run is not meant where all runs are. What a schedule leaves behind when it goes on in a new log is meant.
pub fn is_spared(head: &RunHead) -> bool {
    is_system(head) && head.status != RunStatus::Completed
}

/// Tells whether a label is one that Ferrata sets for itself. Lists of runs leave such labels out.
pub fn is_internal_label(key: &str) -> bool {
    let of_libraries = [QUEUE.1, QUEUE_START, SCHEDULE.1, "schedule.tick"];
    key.starts_with("ferrata.") || of_libraries.contains(&key)
}

fn is_system_run(facts: &RunFacts) -> bool {
    let workflow = facts.workflow.as_str();
    let has = |key: &str, value: &str| facts.labels.get(key) == Some(value);
    // Labels are free: a run of another workflow is none of them, whatever it says.
    workflow == QUEUE.0 && has(QUEUE.1, QUEUE.2)
        || workflow.starts_with(SCHEDULE.0) && has(SCHEDULE.1, SCHEDULE.2)
}

/// Refuses to copy a run that is a queue or a schedule: two runs would keep the state of one.
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

/// Returns the queue that a run goes through; `None` if it goes through none.
///
/// Such a run is active only while it holds a slot of the queue. So what makes it active without a slot puts it on hold in the same append: a
/// retry, a move of a failed run, a fork, an import.
pub fn queue_of(facts: &RunFacts) -> Option<&str> {
    facts.labels.get(QUEUE_START)?;
    facts.labels.get(QUEUE_NAME)
}

/// Returns the reason for which a run is paused while it waits for a slot of this queue.
pub fn queue_hold(queue: &str) -> String {
    format!("it waits for its turn in the queue `{queue}`")
}

/// Returns what puts a run on hold that a retry, a move, a fork or an import makes active; nothing if it goes through no queue.
///
/// A run that was paused by hand keeps that reason, behind the one of the queue: the queue grants it a slot, and does not unpause it.
pub(crate) fn hold_for_queue(machine: &Machine, facts: Option<&RunFacts>, now: Timestamp) -> Vec<Event> {
    let Some(queue) = facts.and_then(queue_of) else { return Vec::new() };
    let hold = queue_hold(queue);
    let reason = match machine.paused() {
        Some(before) if before.starts_with(&hold) => before.to_owned(),
        Some(before) => format!("{hold}; {before}"),
        None => hold,
    };
    paused(machine, &reason, Some(BY_QUEUE), now)
}

/// Tells whether a run is on hold for its queue.
pub(crate) fn is_held_for_queue(machine: &Machine, facts: &RunFacts) -> bool {
    let hold = queue_of(facts).map(queue_hold);
    machine.paused().zip(hold).is_some_and(|(paused, hold)| paused.starts_with(&hold))
}

/// Makes the label that tells a fork from every other start of its run id.
pub(crate) fn new_queue_start(shared: &RuntimeInner, now: Timestamp) -> String {
    // Starts count from 0; a fork takes a random number beyond them.
    let (_, random) = shared.ids.next(now).as_u64_pair();
    format!("{}.{}.{}", shared.executor, now.unix_ms(), random | 1 << 63)
}
