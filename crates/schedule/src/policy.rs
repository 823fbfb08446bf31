//! Policies for late ticks, and for ticks during an active run.

use serde::{Deserialize, Serialize};

/// Maximum number of ticks that are decided together and may wait together: about a quarter of an hour of ticks every second.
pub(crate) const MOST: u32 = 1_000;

/// Policy for ticks that are later than the [tolerance](crate::ScheduleRequest::tolerance), because no process served the schedule or the schedule
/// was paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CatchUp {
    /// They are missed.
    None,
    /// The last of them starts a run, unless a tick in time does; the others are missed.
    #[default]
    Last,
    /// The last `n` of them start a run each; the others are missed. `n` is 1 to 1,000.
    All(u32),
}

/// Policy for a tick while the run of an earlier tick is active. A run that waits for an answer counts as active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// It waits for the end of that run. At most `n` ticks wait, 1 to 1,000; further ones are skipped.
    Queue(u32),
    /// That run is cancelled, and its own starts then.
    CancelOld,
    /// Its run starts beside.
    Allow,
}
