//! Polls the children of an idle run.

use std::sync::Arc;

use super::await_end::{OVERDUE, cancel_once, next_deadline};
use super::child_pause::unpause_child;
use super::parent_signals::SendCondition;
use super::pause;
use crate::clock::Timestamp;
use crate::error::{ErrorKind, Result};
use crate::kernel::inner::RuntimeInner;
use crate::kernel::run_writer::RunWriter;
use crate::record::pause::ChildPolls;
use crate::runtime::child_ends::notify_parent::{end_event, released, wake};
use crate::runtime::child_ends::read_end::{ChildStand, read_child_state};

/// Polls the children of an idle run, and records their ends or the time of the next poll. If a process must claim the run instead, it returns false
/// and writes nothing.
///
/// # Errors
///
/// Returns the errors of the store, and [`ErrorKind::Conflict`] if another process has written to the run.
pub(crate) async fn poll_children(shared: &Arc<RuntimeInner>, tip: &mut RunWriter) -> Result<bool> {
    let now = shared.clock.now();
    let machine = &tip.folded.machine;
    let Some(ChildPolls { count, timer }) = machine.child_polls() else { return Ok(false) };
    if timer.is_some_and(|timer| timer <= now) || machine.cancel().is_some() {
        return Ok(false);
    }
    let open: Vec<_> = machine.children().filter(|(_, child)| child.is_open()).collect();
    let mut events = Vec::new();
    for (key, child) in &open {
        let named = machine.child_ref(&tip.log.run, *key, child);
        match read_child_state(shared, &named).await? {
            // The node starts its own child.
            ChildStand::OfCopy => return Ok(false),
            ChildStand::Ended(end) => events.push(end_event(machine, *key, child, &end)?),
            // The end is reported like any other.
            ChildStand::Active if child.note.deadline.is_some_and(|deadline| deadline <= now) => {
                match cancel_once(shared, &named, SendCondition::Always, OVERDUE).await {
                    Err(error) if error.kind() != ErrorKind::WrongStatus => return Err(error),
                    _ => {}
                }
            }
            ChildStand::Active if machine.was_paused() => {
                let at = SendCondition::At(&tip.log.run, tip.folded.last.head());
                unpause_child(shared, &named, at).await?;
            }
            ChildStand::Active => {}
        }
    }
    if events.is_empty() {
        let next = now.plus(pause(count + 1));
        let wake = [timer, next_deadline(machine, now)].into_iter().flatten().fold(next, Timestamp::min);
        let looks = ChildPolls { count: count + 1, timer };
        events.push(released("no child has ended yet", Some(wake), Some(looks)));
    } else {
        events.push(wake());
    }
    tip.append(shared, None, &events).await?;
    Ok(true)
}
