//! The metrics and spans of the library, with every name, unit and label.
//!
//! The driver, the committer, the fleet and the store wrapper call small typed functions of a meter. A meter holds handles of the
//! recorder that the application installed. Without a recorder, the handles are empty.

pub mod catalogue;
mod instrument;
mod runs;
mod runtime;
pub(crate) mod spans;
mod stores;
mod trace;

pub(crate) use self::runs::{AttemptMeter, RunMeter};
pub(crate) use self::runtime::{QueueMeter, Telemetry};
pub(crate) use self::stores::{CommitterMeter, StoreMeter};

pub use self::trace::{TraceContext, TraceParent};

/// An operation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Setup,
    Append,
    Begin,
    Commit,
    Load,
    Headers,
    Head,
    Runs,
    Prune,
    Purge,
    Heartbeat,
}

impl Operation {
    /// Returns the name of the operation in errors and spans.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Setup => "store.setup",
            Self::Append => "store.append",
            Self::Begin => "store.begin",
            Self::Commit => "store.commit",
            Self::Load => "store.load",
            Self::Headers => "store.headers",
            Self::Head => "store.head",
            Self::Runs => "store.runs",
            Self::Prune => "store.prune",
            Self::Purge => "store.purge",
            Self::Heartbeat => "store.heartbeat",
        }
    }
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptResult {
    Completed,
    Failed,
    /// The attempt stopped before its end, because its run stops in this process.
    Unfinished,
}

/// Why a claim failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostClaim {
    /// Another process claimed the run first.
    Late,
    /// The claim failed, because the graph has changed or the store failed.
    Failed,
}

/// The result of one heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatResult {
    /// The heartbeat succeeded.
    Alive,
    /// The heartbeat failed, but there is time for another heartbeat before the process loses its claims.
    Failed,
    /// The heartbeat failed, and other processes may soon claim the runs. This process gives up all its claims.
    Lost,
    /// The heartbeat failed, and this process had already lost its claims.
    StillLost,
}
