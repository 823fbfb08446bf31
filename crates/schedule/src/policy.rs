//! What becomes of ticks that find no process, and of those that find the run before still going on.

use serde::{Deserialize, Serialize};

/// How many ticks are looked at together, and may wait together: a schedule of every second that nobody served for a quarter of an hour.
pub(crate) const MOST: u32 = 1_000;

/// What becomes of ticks that are later than the [tolerance](crate::ScheduleRequest::tolerance): no process was there, or the schedule was
/// paused.
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

/// What becomes of a tick while the run of an earlier tick goes on. A run that waits for an answer goes on.
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
