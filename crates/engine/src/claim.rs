//! The identity of a run and of a claim of it: the id of a start, and the number of claims since.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::id::Epoch;

/// The id of one start of a run. A run id can be started again after a purge, and each start has another start id. It is never used again.
///
/// Temporal calls it the run id of a workflow id, and Kubernetes the uid of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StartId(Uuid);

impl StartId {
    /// The start id before the first record of a run.
    pub const NONE: Self = Self(Uuid::nil());

    /// Wraps a new id.
    pub const fn from_uuid(id: Uuid) -> Self {
        Self(id)
    }

    /// Returns the id as two numbers, which are random enough to spread work.
    pub fn as_u64_pair(&self) -> (u64, u64) {
        self.0.as_u64_pair()
    }
}

impl fmt::Display for StartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for StartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Identifies one claim of one start of a run. No other claim of any run with this id is equal to it, because epochs grow with each claim of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimId {
    /// The start of the run.
    pub start_id: StartId,
    /// The number of the claim since this start.
    pub epoch: Epoch,
}
