//! The entries of a run's log and their encoding.

pub(crate) mod body;
pub(crate) mod child;
pub(crate) mod chunks;
pub(crate) mod codec;
mod done;
pub(crate) mod effect;
pub(crate) mod letter;
pub(crate) mod memo;
pub(crate) mod parent_link;
pub(crate) mod pause;
pub(crate) mod prints;
mod write;

pub use crate::ask::Resolution;
pub use crate::failure::{Failure, FailureKind};
pub use ferrata_store::{FORMAT, Labels, Parent, Record, RecordHeader, RecordKind, RunFacts, RunStatus};
