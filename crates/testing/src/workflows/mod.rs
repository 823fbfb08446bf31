//! Tools for testing workflows.
//!
//! A [`World`] has one store, one clock, and processes that can crash. A [`CrashTest`] crashes a workflow at each of its writes. A [`ScriptedAnswers`]
//! answers questions. [`assert_replays`] compares a stored run with the current graph, and [`check_reads_back`] checks a state.

mod crash_test;
mod golden;
mod process;
mod reread;
mod script;
mod standstill;
mod world;

pub use crash_test::{CrashCase, CrashTest};
pub use golden::{assert_replays, verify_golden};
pub use process::Process;
pub use reread::check_reads_back;
pub use script::ScriptedAnswers;
pub use world::World;
