//! For tests: a [world](World) of one store and one clock whose processes crash, [answers](Script) that are written down before, a clock that stands still until it is told, ids that are the same in every run, stored runs held against the
//! graph of today, and states held to what they must be.

mod golden;
mod reread;
mod script;
mod world;

pub use ferrata_store::testing::{Fault, ManualClock, SeqIds, every_header};
pub use golden::{assert_replays, verify_golden};
pub use reread::check_reads_back;
pub use script::Script;
pub use world::{Process, World};
