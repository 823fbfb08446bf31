//! The reason for a run's status, as a line for people.

use ferrata::Timestamp;
use ferrata::runtime::RunReason;

use crate::table::clean;

/// Writes a reason with the time at its end.
pub(crate) fn sentence(reason: &RunReason, at: impl Fn(Timestamp) -> String) -> String {
    let text = clean(&reason.text);
    reason.until.map_or_else(|| text.clone(), |until| format!("{text} {}", at(until)))
}
