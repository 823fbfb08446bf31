//! The model, the engine, the store contract and the runtime of Ferrata.
//!
//! This crate opens no socket and no file. Applications depend on the facade crate `ferrata`; authors of stores depend on
//! this crate alone.

pub mod ask;
mod engine;
pub mod graph;
pub mod node;
pub mod record;
pub mod runtime;
pub mod state;
pub mod store;
pub mod testing;

mod clock;
mod error;
mod few;
mod few_map;
mod id;
mod latch;
mod queue;

pub use clock::{Clock, SystemClock, Timestamp, within};
pub use error::{Error, ErrorKind, Result};
pub use id::{
    Epoch, ExecutorId, Fingerprint, HeadRef, IdSource, NodeName, RandomIds, RecordId, RunId, RunKey, Seq,
    TenantId, Visit, WorkflowName,
};
