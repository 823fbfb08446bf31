//! For tests of workflows: a [world](World) of one store and one clock whose processes crash, a [test](CrashTest) that crashes them at each write,
//! [answers](Script) that are written down before, comparison of stored runs with the graph of today, and checks of states.

mod crash_test;
mod golden;
mod process;
mod reread;
mod script;
mod standstill;
mod world;

pub use crash_test::{CrashCase, CrashTest};
pub use ferrata_store::testing::{
    Fault, Ledger, LedgerRows, LedgerStore, LedgerTransaction, ManualClock, SeqIds, every_header,
};
pub use golden::{assert_replays, verify_golden};
pub use process::Process;
pub use reread::check_reads_back;
pub use script::Script;
pub use world::World;
