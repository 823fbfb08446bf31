//! Runs that nodes start. A child has a parent run that waits for its result. No run waits for a detached run.
//!
//! Protocol: before a child starts, the parent's log records the start. The first process that sees the end of the child records this end in the
//! parent's log. Three mechanisms only shorten the delay. `EndWaiters` report an end within a process. `notify_parent` reports an end from the
//! child's process to an idle parent. Parents that have been idle for a long time poll their children.

mod bounds;
mod child_group;
mod child_start;
mod error;
mod gather;
mod names;
mod node;
mod request;

pub use child_group::ChildrenRequest;
pub use error::{ChildError, ChildFailure};
pub use request::{ChildHandle, ChildRequest, OnParentEnd, SpawnRequest};
