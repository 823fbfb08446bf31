//! The entries of a run's log and their encoding.

mod facts;
mod header;

pub use facts::{Labels, Parent, RunFacts};
pub use header::{FORMAT, Record, RecordHeader, RecordKind, RunStatus};
