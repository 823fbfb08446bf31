//! The parts of a run that a store reads: record headers, and the facts of the run's start.

mod facts;
mod header;
mod words;

pub use facts::{Labels, Parent, RunFacts};
pub use header::{FORMAT, Record, RecordHeader, RecordKind, RunStatus};
