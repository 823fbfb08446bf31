//! Finds and claims runs that no process drives.

mod orphan_ages;
pub(crate) mod prompt_claim;
pub(crate) mod sweep;
