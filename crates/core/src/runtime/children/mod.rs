//! Runs that nodes start. A child has a parent run that waits for its result. No run waits for a detached run.
//!
//! Protocol: before a child starts, the parent's log records the start. The first process that sees the end of the child records this end in the
//! parent's log. Three mechanisms only shorten the delay. `EndWaiters` report an end within a process. `notify` reports an end from the child's
//! process to an idle parent. Parents that have been idle for a long time poll their children.

mod bounds;
mod child_backoff;
mod child_end;
mod child_group;
mod child_pause;
mod child_start;
mod error;
mod gather;
mod names;
mod node;
mod notify;
mod orphan;
mod parent_signals;
mod pending_starts;
mod request;

use std::time::Duration;

pub(crate) use child_end::{
    TOLD_AT_ONCE, await_end, await_in_time, closing, end_as, next_deadline, record_cancel,
};
pub use child_group::ChildrenRequest;
pub(crate) use child_pause::set_pause;
pub use error::{ChildError, ChildFailure};
pub(crate) use notify::{
    check_children_of_idle, notify_parent, notify_parent_after_signal, poll_children, wake,
};
pub(crate) use orphan::{check_parent_after_start, is_wanted};
pub(crate) use parent_signals::SendCondition;
pub(crate) use pending_starts::ChildStarts;
pub use request::{ChildHandle, ChildRequest, OnParentEnd, SpawnRequest};

/// The time from the moment when a run becomes idle to the first poll of its children. The delay doubles before each further poll, up to
/// `LONGEST_LOOK`. Until this limit is reached, a lost notification at most doubles the time for which the run waits.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(5);
pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(3_600);

/// Returns the delay before the poll with this number. It doubles with each poll.
pub(crate) fn pause(count: u32) -> Duration {
    FIRST_LOOK.saturating_mul(1 << count.min(16)).min(LONGEST_LOOK)
}
