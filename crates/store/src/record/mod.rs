//! What a store reads of a run: the headers of its records, and what is said once of it.

mod facts;
mod header;
mod words;

pub use facts::{Labels, Parent, RunFacts};
pub use header::{FORMAT, Record, RecordHeader, RecordKind, RunStatus};
