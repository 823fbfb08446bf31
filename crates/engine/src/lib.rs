//! The engine of Ferrata: states, questions, records, plans of graphs, and the state machine of a run.
//!
//! The crate does no I/O, reads no clock, starts no task and does not depend on the runtime. Applications find its types in the facade crate
//! `ferrata`. Items that only the runtime uses are `#[doc(hidden)]`, and may change in any release.

pub mod ask;
#[doc(hidden)]
pub mod claim;
#[doc(hidden)]
pub mod compact;
#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod failure;
pub mod graph;
pub mod record;
pub mod state;

// The names of the contract of stores, by the modules that define them there.
mod clock {
    pub(crate) use ferrata_store::Timestamp;
}
mod error {
    pub(crate) use ferrata_store::{Error, ErrorKind, Result};
}
mod id {
    pub(crate) use ferrata_store::{
        Epoch, ExecutorId, Fingerprint, NodeName, RunId, RunKey, Seq, Visit, WorkflowName,
    };
}
