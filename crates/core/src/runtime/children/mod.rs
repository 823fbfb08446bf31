//! Runs that nodes start: children, which their parents wait for, and detached runs, which have no parent.
//!
//! The protocol is one sentence: the parent's log says first that a child is about to be started, and what came of it is noted there by
//! whoever sees first that the child has ended. Everything else is about seeing it soon: `EndWaiters` within a process, `notify` from the
//! child's process to a parent at rest, and looks at the children of parents that rest for long.

mod bounds;
mod child_start;
mod end;
mod error;
mod gather;
mod hold;
mod many;
mod names;
mod node;
mod notify;
mod orphan;
mod request;
mod starts;
mod tell;
mod tries;

use std::time::Duration;

pub(crate) use end::{TOLD_AT_ONCE, await_end, await_in_time, closing, end_as, next_deadline, tell_to_stop};
pub use error::{ChildError, ChildFailure};
pub(crate) use hold::hold;
pub use many::ChildrenRequest;
pub(crate) use notify::{look, look_after_rest, notify_parent, notify_parent_after_signal, wake};
pub(crate) use orphan::{is_wanted, look_after_start};
pub use request::{ChildHandle, ChildRequest, OnParentEnd, SpawnRequest};
pub(crate) use starts::ChildStarts;
pub(crate) use tell::SendCondition;

/// When the children of a run that has come to rest are looked at first, and how long is waited at most: twice as long each time, so what
/// was not told is late by no more than the run has waited.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(5);
pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(3_600);

/// Doubles a pause from look to look.
pub(crate) fn pause(count: u32) -> Duration {
    FIRST_LOOK.saturating_mul(1 << count.min(16)).min(LONGEST_LOOK)
}
