//! For tests: a clock that stands still until it is told, ids that are the same in every run, and stored runs held against the
//! graph of today.

mod clock;
mod golden;
mod ids;

pub use clock::ManualClock;
pub use golden::verify_golden;
pub use ids::SeqIds;
