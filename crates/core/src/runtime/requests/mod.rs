//! The requests of callers: they start, claim and fork runs, and write to runs from outside of their drivers.

pub(crate) mod bulk;
pub(crate) mod drive;
pub(crate) mod edit;
pub(crate) mod fork;
pub(crate) mod held_start;
pub(crate) mod import;
pub(crate) mod resume;
pub(crate) mod run_writer;
pub(crate) mod runs;
mod same_input;
pub(crate) mod send;
pub(crate) mod signal;
pub(crate) mod start;
pub(crate) mod start_extras;
pub(crate) mod state_cell;
pub(crate) mod system;
pub(crate) mod transactional_start;
pub(crate) mod waiting_runs;

pub use bulk::{BulkReport, BulkRequest};
pub use edit::EditRequest;
pub use fork::{DriveRequest, ForkRequest, RepeatedEffect};
pub use resume::ResumeRequest;
pub use runs::RunsRequest;
pub use send::SendRequest;
pub use signal::SignalRequest;
pub use start::StartRequest;
pub use state_cell::{CellChanges, StateCell};
pub use system::{is_internal_label, is_skipped_in_bulk, is_system, queue_name, queue_pause_reason};
pub use transactional_start::{StartWithin, TransactionalStart};
