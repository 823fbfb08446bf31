//! For tests: a store that fails on purpose, a clock that stands still until it is told, and ids that are the same in every run.

mod clock;
mod fault;
mod headers;
mod ids;

pub use clock::ManualClock;
pub use fault::{Fault, FaultOdds, FaultPlan, FaultStore};
pub use headers::every_header;
pub use ids::SeqIds;
