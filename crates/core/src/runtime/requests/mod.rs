//! The requests of callers: they start, claim and fork runs, and write to runs from outside of their drivers.

pub(crate) mod bulk;
pub(crate) mod drive;
pub(crate) mod fork;
pub(crate) mod held_start;
pub(crate) mod import;
mod outbox;
pub(crate) mod resume;
pub(crate) mod runs;
mod same_input;
pub(crate) mod start;
pub(crate) mod start_extras;
mod start_many;
pub(crate) mod state_cell;
pub(crate) mod transactional_start;
pub(crate) mod waiting_runs;

pub use bulk::{BulkReport, BulkRequest};
pub use fork::{DriveRequest, ForkRequest, RepeatedEffect};
pub use resume::ResumeRequest;
pub use runs::RunsRequest;
pub use start::StartRequest;
pub use state_cell::{CellChanges, StateCell};
pub use transactional_start::{StartWithin, TransactionalStart};
