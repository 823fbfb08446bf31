//! The data that all parts of a runtime share: access to the store, the clock, the log writer, the committer, the registry of drivers, the claims and
//! the heartbeat.
//!
//! The kernel starts no run and drives none. The layers above it read and change its data.

pub(crate) mod admission;
pub(crate) mod child_starts;
pub(crate) mod commands;
pub(crate) mod committer;
pub(crate) mod end_waiters;
pub(crate) mod event;
pub(crate) mod extensions;
pub(crate) mod feed;
pub(crate) mod heartbeat;
pub(crate) mod idle_runs;
pub(crate) mod inner;
pub(crate) mod log;
pub(crate) mod notices;
pub(crate) mod outbox;
pub(crate) mod read_budget;
pub(crate) mod recovery;
pub(crate) mod registry;
pub(crate) mod resources;
pub(crate) mod run_change;
pub(crate) mod run_writer;
pub(crate) mod subscribers;
pub(crate) mod tags;
pub(crate) mod tasks;
