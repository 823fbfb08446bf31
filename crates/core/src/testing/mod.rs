//! Time and ids for tests: a clock that stands still until it is told, and ids that are the same in every run of a test.

mod clock;
mod ids;

pub use clock::ManualClock;
pub use ids::SeqIds;
