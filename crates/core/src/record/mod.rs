//! The entries of a run's log and their encoding.

pub(crate) mod body;
pub(crate) mod codec;
mod facts;
mod header;
pub(crate) mod memo;
pub(crate) mod pause;

pub use body::{Failure, FailureKind, Resolution};
pub use facts::{Labels, Parent, RunFacts};
pub use header::{FORMAT, Record, RecordHeader, RecordKind, RunStatus};
