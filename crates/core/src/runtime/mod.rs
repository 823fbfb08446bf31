//! The runtime: starts, drives, resumes and steers runs in a tokio service.

mod attempt;
mod committer;
mod driver;
mod edit;
mod event;
mod handle;
mod load;
mod log;
mod outcome;
mod recovery;
mod resume;
#[expect(clippy::module_inception, reason = "the type that the module is named after")]
mod runtime;
mod shared;
mod signal;
mod start;
mod tasks;

pub use edit::EditRequest;
pub use event::{Event, Events, RunEvent};
pub use handle::RunHandle;
pub use outcome::Outcome;
pub use recovery::Stalled;
pub use resume::ResumeRequest;
pub use runtime::{Runtime, RuntimeBuilder};
pub use signal::SignalRequest;
pub use start::StartRequest;
