//! Requests of callers: starts, claims and forks of runs, and writes from outside their drivers.

pub(crate) mod amend;
pub(crate) mod bulk;
pub(crate) mod cell;
pub(crate) mod drive;
pub(crate) mod edit;
pub(crate) mod fork;
pub(crate) mod given;
pub(crate) mod hold;
pub(crate) mod import;
pub(crate) mod line_up;
pub(crate) mod resume;
pub(crate) mod runs;
mod same_input;
pub(crate) mod send;
pub(crate) mod signal;
pub(crate) mod start;
pub(crate) mod system;
pub(crate) mod within;

pub use bulk::{BulkReport, BulkRequest};
pub use cell::{CellChanges, StateCell};
pub use edit::EditRequest;
pub use fork::{DriveRequest, ForkRequest, RepeatedEffect};
pub use resume::ResumeRequest;
pub use runs::RunsRequest;
pub use send::SendRequest;
pub use signal::SignalRequest;
pub use start::StartRequest;
pub use system::{is_internal_label, is_skipped_in_bulk, is_system, queue_name, queue_pause_reason};
pub use within::{StartWithin, TransactionalStart};
