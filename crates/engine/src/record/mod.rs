//! The records of a run's log: the content of their bodies, and its encoding.

#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_errors_doc,
    reason = "only the runtime sees it"
)]

#[doc(hidden)]
pub mod body;
#[doc(hidden)]
pub mod child;
#[doc(hidden)]
pub mod chunks;
#[doc(hidden)]
pub mod codec;
mod done;
#[doc(hidden)]
pub mod effect;
#[doc(hidden)]
pub mod memo;
#[doc(hidden)]
pub mod node_data;
#[doc(hidden)]
pub mod outbox;
#[doc(hidden)]
pub mod parent_link;
#[doc(hidden)]
pub mod pause;
mod write;

pub use crate::ask::Resolution;
pub use crate::failure::{Failure, FailureKind};
pub use ferrata_store::{FORMAT, Labels, Parent, Record, RecordHeader, RecordKind, RunFacts, RunStatus};
