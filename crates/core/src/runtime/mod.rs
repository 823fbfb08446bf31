//! The runtime, which starts, drives, resumes and controls runs inside a tokio service.

mod api;
mod attempt;
mod builder;
mod child_control;
mod child_ends;
mod children;
mod claims;
mod driver;
mod fleet;
mod handle;
mod history;
mod inbox;
mod input_fingerprint;
mod load;
mod outbox;
mod outcome;
mod payload;
mod requests;
#[expect(clippy::module_inception, reason = "the type that the module is named after")]
mod runtime;
mod signals;
mod watch;
mod writes;

// After the methods for applications, because the documentation follows this order.
mod extension;

pub use self::builder::RuntimeBuilder;
pub use self::children::{
    ChildError, ChildFailure, ChildHandle, ChildRequest, ChildrenRequest, OnParentEnd, SpawnRequest,
};
pub use self::extension::{PollIntervals, WeakRuntime};
pub use self::fleet::SweeperOptions;
pub use self::handle::RunHandle;
pub use self::inbox::Message;
pub use self::outcome::Outcome;
pub use self::requests::{
    BulkReport, BulkRequest, CellChanges, DriveRequest, ForkRequest, RepeatedEffect, ResumeRequest,
    RunsRequest, StartRequest, StartWithin, StateCell, TransactionalStart,
};
pub use self::runtime::Runtime;
pub use self::watch::{SseFrames, StreamWriter, Watch, WatchRequest};
pub use crate::kernel::admission::RunLimits;
pub use crate::kernel::event::{Event, RunEvent};
pub use crate::kernel::feed::cursor::WatchCursor;
pub use crate::kernel::feed::watch_event::{
    Chunk, LiveEvent, RecordedEvent, WatchEvent, WatchEventKind, WatchKind,
};
pub use crate::kernel::outbox::{OutboxMessage, OutboxSink, SinkError};
pub use crate::kernel::recovery::StalledRun;
pub use crate::kernel::run_change::{LeftRun, RunChange};
pub use crate::kernel::subscribers::EventSubscription;
pub use crate::past::{
    ActivationPhase, Ancestor, Change, CheckedLog, Checkpoint, Diagnostic, Diff, LoggedGraph, MemorySnapshot,
    OpenQuestions, PastActivation, PendingActivation, PendingChild, Position, ReasonCache, ReasonKind,
    RedactedNumbers, ReplanEntry, RetentionPolicy, RunExplanation, RunOrigin, RunReason, SweepLimits,
    SweepReport, TimelineEntry, Verdict, WaitingToken,
};
pub use crate::runtime::signals::edit::EditRequest;
pub use crate::runtime::signals::send::SendRequest;
pub use crate::runtime::signals::signal::SignalRequest;
pub use crate::runtime::writes::system_runs::{
    is_internal_label, is_skipped_in_bulk, is_system, queue_name, queue_pause_reason,
};
pub use crate::telemetry::{TraceContext, TraceParent};
pub use crate::verify::{Divergence, Verified};
