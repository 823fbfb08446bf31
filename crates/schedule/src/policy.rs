//! Policies for late ticks, and for ticks during an active run.

use serde::{Deserialize, Serialize};

/// Maximum number of ticks that are decided together, and of ticks that wait together. With a tick every second, this is about a quarter of an hour.
pub(crate) const MOST: u32 = 1_000;

/// The policy for ticks that are later than the [tolerance](crate::ScheduleRequest::tolerance). Ticks are late if no process served the schedule, or
/// if the schedule was paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CatchUp {
    /// Late ticks start no run and count as missed.
    None,
    /// The last late tick starts a run, unless a tick in time does. The other late ticks are missed.
    #[default]
    Last,
    /// Each of the last `n` late ticks starts a run. The other late ticks are missed. `n` is 1 to 1,000.
    All(u32),
}

/// The policy for a tick that comes while the run of an earlier tick is active. A run that waits for an answer counts as active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overlap {
    /// The new tick is skipped.
    #[default]
    Skip,
    /// The new tick waits until the earlier run ends. At most `n` ticks wait (1 to 1,000), and further ticks are skipped.
    Queue(u32),
    /// The earlier run is cancelled, and then the run of the new tick starts.
    CancelOld,
    /// The run of the new tick starts at once, next to the earlier run.
    Allow,
}
