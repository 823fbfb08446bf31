//! The part of a runtime that coordinates with other processes: it sends heartbeats, limits, claims and releases runs.

pub(crate) mod background_tasks;
mod idle_orphans;
pub(crate) mod serve;
pub(crate) mod sweeper;
mod undriven;

pub use sweeper::SweeperOptions;
