//! The runtime: starts, drives, resumes and steers runs in a tokio service.

mod admission;
mod amend;
mod attempt;
mod bases;
mod builder;
mod committer;
mod drive;
mod driver;
mod edit;
mod event;
mod fork;
mod hand_over;
mod handle;
mod history;
mod inbox;
mod life;
mod load;
mod log;
mod outcome;
mod past;
mod print;
mod pulse;
mod recovery;
mod registry;
mod resting;
mod resume;
mod retention;
#[expect(clippy::module_inception, reason = "the type that the module is named after")]
mod runtime;
mod scales;
mod shared;
mod signal;
mod start;
mod sweep;
mod tasks;

pub use admission::Caps;
pub use builder::RuntimeBuilder;
pub use edit::EditRequest;
pub use event::{Event, Events, RunEvent};
pub use fork::{DriveRequest, ForkRequest};
pub use handle::RunHandle;
pub use inbox::Message;
pub use outcome::Outcome;
pub use past::{
    Ancestor, Change, CheckedLog, Checkpoint, Diagnostic, Diff, Divergence, Happened, Past, Pending,
    Position, Replanned, Verdict, Verified, Waiting,
};
pub use recovery::Stalled;
pub use resume::ResumeRequest;
pub use retention::{RetentionPolicy, SweepLimits, SweepReport};
pub use runtime::Runtime;
pub use signal::SignalRequest;
pub use start::StartRequest;
