//! The runtime: starts, drives, resumes and steers runs in a tokio service.

mod attempt;
mod committer;
mod driver;
mod edit;
mod event;
mod fork;
mod handle;
mod history;
mod inbox;
mod load;
mod log;
mod outcome;
mod past;
mod recovery;
mod resume;
mod retention;
#[expect(clippy::module_inception, reason = "the type that the module is named after")]
mod runtime;
mod shared;
mod signal;
mod start;
mod tasks;
mod untyped;

pub use edit::EditRequest;
pub use event::{Event, Events, RunEvent};
pub use fork::ForkRequest;
pub use handle::RunHandle;
pub use inbox::Message;
pub use outcome::Outcome;
pub use past::{
    Ancestor, Change, CheckedLog, Checkpoint, Diagnostic, Diff, Divergence, Happened, Past, Pending,
    Position, Replanned, Verified, Waiting,
};
pub use recovery::Stalled;
pub use resume::ResumeRequest;
pub use retention::{RetentionPolicy, SweepLimits, SweepReport};
pub use runtime::{Runtime, RuntimeBuilder};
pub use signal::SignalRequest;
pub use start::StartRequest;
pub use untyped::{UntypedEditRequest, UntypedForkRequest};
