//! The identity of one claim of a run.

use uuid::Uuid;

use crate::id::Epoch;

/// Identifies a claim of a run by its generation and its epoch. Epochs start again with each generation, so compare both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimId {
    pub(crate) life: Uuid,
    pub(crate) epoch: Epoch,
}
