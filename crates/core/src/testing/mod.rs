//! For tests: a clock that stands still until it is told, ids that are the same in every run, stored runs held against the
//! graph of today, and states held to what they must be.

mod clock;
mod golden;
mod ids;
mod reread;

pub use clock::ManualClock;
pub use golden::verify_golden;
pub use ids::SeqIds;
pub use reread::check_reads_back;
