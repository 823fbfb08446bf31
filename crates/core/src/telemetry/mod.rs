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
    /// The attempt broke off because its run stops.
    Unfinished,
}

/// Why a claim failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostClaim {
    /// Another claimer was faster.
    Late,
    /// The claim was refused: the graph changed, or the store failed.
    Failed,
}

/// The result of one heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatResult {
    /// The heartbeat succeeded.
    Alive,
    /// The heartbeat failed, and there is time for another.
    Failed,
    /// The heartbeat failed, and other processes may soon act: all claims of this process are lost.
    Lost,
    /// The claims were lost before.
    StillLost,
}
