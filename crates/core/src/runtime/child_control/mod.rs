//! Controls the children of a run: waits for their ends, and pauses, unpauses and cancels them.

pub(crate) mod await_end;
pub(crate) mod child_backoff;
pub(crate) mod child_pause;
pub(crate) mod orphan;
pub(crate) mod parent_signals;
pub(crate) mod poll_children;

use std::time::Duration;

/// The time from the moment when a run becomes idle to the first poll of its children. The delay doubles before each further poll, up to
/// `LONGEST_LOOK`. Until this limit is reached, a lost notification at most doubles the time for which the run waits.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(5);

pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(3_600);

/// Returns the delay before the poll with this number. It doubles with each poll.
pub(crate) fn pause(count: u32) -> Duration {
    FIRST_LOOK.saturating_mul(1 << count.min(16)).min(LONGEST_LOOK)
}
