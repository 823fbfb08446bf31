//! The part of a runtime that coordinates with other processes: it sends heartbeats, limits, claims and releases runs.

pub(crate) mod admission;
pub(crate) mod background_tasks;
pub(crate) mod heartbeat;
mod idle_orphans;
pub(crate) mod idle_runs;
mod orphan_ages;
pub(crate) mod prompt_claim;
pub(crate) mod read_budget;
pub(crate) mod recovery;
pub(crate) mod sweep;
pub(crate) mod sweeper;
pub(crate) mod tags;
mod undriven;

pub use admission::RunLimits;
pub use recovery::StalledRun;
pub use sweeper::SweeperOptions;
