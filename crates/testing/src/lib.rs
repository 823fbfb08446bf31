//! Test tools: a store that fails on purpose, a manual clock, reproducible ids, expected logs, a store with transactions, and varied headers.
//!
//! The feature `workflows` adds tools for tests of workflows: a `World` has one store, one clock, and processes that can crash. The other tools
//! depend only on the contract of stores, so the tests of a store do not compile a runtime.

mod clock;
mod fault;
mod headers;
mod ids;
mod ledger;
mod log;
mod variety;
#[cfg(feature = "workflows")]
mod workflows;

pub use clock::ManualClock;
pub use fault::{Fault, FaultOdds, FaultPlan, FaultStore};
pub use headers::every_header;
pub use ids::SeqIds;
pub use ledger::{LedgerDatabase, LedgerRows, LedgerStore, LedgerTransaction};
pub use log::{Log, facts};
pub use variety::{any_headers, headers_by_field};
#[cfg(feature = "workflows")]
pub use workflows::{
    CrashCase, CrashTest, Process, ScriptedAnswers, World, assert_replays, check_reads_back, verify_golden,
};
