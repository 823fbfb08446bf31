//! The entries of a run's log and their encoding.

pub(crate) mod body;
pub(crate) mod codec;
mod done;
pub(crate) mod memo;
pub(crate) mod pause;
mod write;

pub use body::{Failure, FailureKind, Resolution};
pub use ferrata_store::{FORMAT, Labels, Parent, Record, RecordHeader, RecordKind, RunFacts, RunStatus};
