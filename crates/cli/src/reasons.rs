//! The reason for the status of a run, as a line for people.

use ferrata::Timestamp;
use ferrata::runtime::RunReason;

use crate::table::clean;

/// Formats a reason as a sentence that ends in its time.
pub(crate) fn sentence(reason: &RunReason, at: impl Fn(Timestamp) -> String) -> String {
    let text = clean(&reason.text);
    reason.until.map_or_else(|| text.clone(), |until| format!("{text} {}", at(until)))
}
