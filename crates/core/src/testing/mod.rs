//! For tests: a clock that stands still until it is told, ids that are the same in every run, stored runs held against the
//! graph of today, and states held to what they must be.

mod golden;
mod reread;

pub use ferrata_store::testing::{ManualClock, SeqIds, every_header};
pub use golden::verify_golden;
pub use reread::check_reads_back;
