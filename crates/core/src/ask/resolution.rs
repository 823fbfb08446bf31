//! What an operator says of work that must not be repeated.

use serde::{Deserialize, Serialize};

use crate::state::Patch;

/// What became of an activation that must not be repeated, where the log does not tell whether it was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resolution {
    /// It did not happen: run it again.
    Retry,
    /// It happened: this is the change of the state it made.
    Supply(Patch),
    /// Go on as if it had succeeded without changing anything.
    Skip,
    /// Treat it as failed, for this reason.
    Fail(String),
}
