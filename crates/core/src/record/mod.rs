//! The entries of a run's log and their encoding.

pub(crate) mod body;
pub(crate) mod codec;
mod done;
mod facts;
mod header;
pub(crate) mod memo;
pub(crate) mod pause;
mod write;

pub use body::{Failure, FailureKind, Resolution};
pub use facts::{Labels, Parent, RunFacts};
pub use header::{FORMAT, Record, RecordHeader, RecordKind, RunStatus};
