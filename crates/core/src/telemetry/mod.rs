//! What the library tells of itself to an operator's tools: every name, unit and label of its metrics.
//!
//! The driver, the committer, the fleet and the bound on store calls call small typed functions of a meter. Without the feature `metrics`
//! the same functions are empty (`off.rs`), so that a runtime without metrics reads no clock and holds nothing for them.

#[cfg(feature = "metrics")]
pub mod catalogue;
#[cfg(feature = "metrics")]
mod instrument;
#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod runs;
#[cfg(feature = "metrics")]
mod runtime;
pub(crate) mod spans;
#[cfg(feature = "metrics")]
mod stores;
mod trace;

#[cfg(not(feature = "metrics"))]
pub(crate) use self::off::{AttemptMeter, CommitterMeter, QueueMeter, RunMeter, StoreMeter, Telemetry};
#[cfg(feature = "metrics")]
pub(crate) use self::runs::{AttemptMeter, RunMeter};
#[cfg(feature = "metrics")]
pub(crate) use self::runtime::{QueueMeter, Telemetry};
#[cfg(feature = "metrics")]
pub(crate) use self::stores::{CommitterMeter, StoreMeter};

pub use self::trace::{TraceContext, TraceParent};

/// What is asked of a store.
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
    /// Returns the name that errors and spans have for it.
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

/// How an attempt stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptResult {
    Completed,
    Failed,
    /// It broke off because its run was to stop.
    Unfinished,
}

/// How a claim came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostClaim {
    /// Another claimer was faster.
    Late,
    /// It was refused: the graph changed, or the store failed.
    Failed,
}

/// What one heartbeat came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatResult {
    /// It succeeded.
    Alive,
    /// It failed, and there is time for another.
    Failed,
    /// It failed, and others may soon act: everything that was taken is lost.
    Lost,
    /// It is lost since before.
    StillLost,
}
