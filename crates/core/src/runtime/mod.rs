//! The runtime, which starts, drives, resumes and controls runs inside a tokio service.

mod attempt;
mod builder;
mod children;
mod committer;
mod driver;
mod event;
mod extension;
mod fleet;
mod handle;
mod history;
mod inbox;
mod input_fingerprint;
mod load;
mod log;
mod outbox;
mod outcome;
mod registry;
mod requests;
#[expect(clippy::module_inception, reason = "the type that the module is named after")]
mod runtime;
mod shared;
mod tasks;
mod watch;

pub use self::builder::RuntimeBuilder;
pub use self::children::{
    ChildError, ChildFailure, ChildHandle, ChildRequest, ChildrenRequest, OnParentEnd, SpawnRequest,
};
pub use self::event::{Event, EventSubscription, RunEvent};
pub use self::extension::{LeftRun, PollIntervals, RunChange, WeakRuntime};
pub use self::fleet::{RunLimits, StalledRun, SweeperOptions};
pub use self::handle::RunHandle;
pub use self::inbox::Message;
pub use self::outbox::{OutboxMessage, OutboxSink, SinkError};
pub use self::outcome::Outcome;
pub use self::requests::{
    BulkReport, BulkRequest, CellChanges, DriveRequest, EditRequest, ForkRequest, RepeatedEffect,
    ResumeRequest, RunsRequest, SendRequest, SignalRequest, StartRequest, StartWithin, StateCell,
    TransactionalStart, is_internal_label, is_skipped_in_bulk, is_system, queue_name, queue_pause_reason,
};
pub use self::runtime::Runtime;
pub use self::watch::{
    Chunk, LiveEvent, RecordedEvent, SseFrames, StreamWriter, Watch, WatchCursor, WatchEvent, WatchEventKind,
    WatchKind, WatchRequest,
};
pub use crate::past::{
    ActivationPhase, Ancestor, Change, CheckedLog, Checkpoint, Diagnostic, Diff, LoggedGraph, MemorySnapshot,
    OpenQuestions, PastActivation, PendingActivation, PendingChild, Position, ReasonCache, ReasonKind,
    ReplanEntry, RetentionPolicy, RunExplanation, RunOrigin, RunReason, SweepLimits, SweepReport,
    TimelineEntry, Verdict, WaitingToken,
};
pub use crate::telemetry::{TraceContext, TraceParent};
pub use crate::verify::{Divergence, Verified};
