//! The model, the engine, the store contract and the runtime of Ferrata.
//!
//! This crate opens no socket and no file. Applications depend on the facade crate `ferrata`. Authors of stores depend only on `ferrata-store`. This
//! crate re-exports the names of `ferrata-store`.

mod engine;
pub mod graph;
pub mod node;
pub mod runtime;
pub mod store;
mod telemetry;

mod compact;
mod kernel;
mod panics;
mod verify;

use ferrata_engine::claim;
use ferrata_engine::failure;
pub use ferrata_engine::{ask, record, state};
use ferrata_history as past;
pub use ferrata_history::{log_reader, wording};

// The store contract is a crate of its own. This crate re-exports it in modules with the same names.
mod clock {
    pub use ferrata_store::{Clock, SystemClock, Timestamp, within};
}
mod error {
    pub use ferrata_store::{Error, ErrorKind, Result};
}
mod id {
    pub use ferrata_store::{
        Epoch, ExecutorId, Fingerprint, HeadRef, IdSource, NodeName, RandomIds, RecordId, RunId, RunKey, Seq,
        TenantId, Visit, WorkflowName,
    };
}

pub use telemetry::catalogue as metrics;

pub use clock::{Clock, SystemClock, Timestamp, within};
pub use error::{Error, ErrorKind, Result};
pub use id::{
    Epoch, ExecutorId, Fingerprint, HeadRef, IdSource, NodeName, RandomIds, RecordId, RunId, RunKey, Seq,
    TenantId, Visit, WorkflowName,
};
