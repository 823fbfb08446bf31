//! Writes to runs from outside of their drivers: the writer of a run, the claims and releases of this process, and the events that pause a run.

pub(crate) mod pause_events;
pub(crate) mod registration;
pub(crate) mod release;
pub(crate) mod run_writer;
pub(crate) mod system_runs;
