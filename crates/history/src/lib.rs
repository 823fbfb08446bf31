//! The past of runs: checkpoints, reasons, comparisons, checks, archives and retention.
//!
//! The crate reads logs from a store, and changes them only to prune and import. It drives no run, reads no clock and knows no runtime.
//! Applications find its types in the module `runtime` of the facade crate `ferrata`. Items that only the runtime uses are `#[doc(hidden)]`, and may
//! change in any release.

mod archive;
mod check;
mod checkpoint;
mod details;
mod diff;
mod ended;
mod explain;
mod lineage;
#[doc(hidden)]
pub mod log_reader;
mod logged_graph;
mod origin;
mod phase;
mod position;
mod questions;
mod reason;
mod redact;
mod report;
#[doc(hidden)]
pub mod retention;
#[doc(hidden)]
pub mod run_tree;
mod sentence;
#[doc(hidden)]
pub mod sweep;
mod verdict;
#[doc(hidden)]
pub mod wording;

use ferrata_engine::{ask, engine, graph, record, state};

// Re-exports of the store contract, in modules with the same names as in `ferrata-store`.
mod clock {
    pub(crate) use ferrata_store::{Clock, Timestamp};
}
mod error {
    pub(crate) use ferrata_store::{Error, ErrorKind, Result};
}
mod id {
    pub(crate) use ferrata_store::{
        Epoch, ExecutorId, Fingerprint, HeadRef, NodeName, RecordId, RunId, RunKey, Seq, TenantId, Visit,
        WorkflowName,
    };
}
mod store {
    pub(crate) use ferrata_store::{
        At, CheckpointStore, Cursor, HeaderRange, Listing, Order, Page, Paged, PruneCut, Removed, RunAppend,
        RunHead, RunQuery,
    };
}

pub use check::CheckedLog;
pub use checkpoint::{
    Checkpoint, MemorySnapshot, PendingActivation, PendingChild, ReplanEntry, WaitingToken,
};
pub use diff::{Change, Diff};
pub use ended::{Diagnostic, PastActivation};
pub use explain::{ReasonCache, RunExplanation};
pub use lineage::Ancestor;
pub use logged_graph::LoggedGraph;
pub use origin::RunOrigin;
pub use phase::ActivationPhase;
pub use position::Position;
pub use reason::{ReasonKind, RunReason};
pub use redact::RedactedNumbers;
pub use report::TimelineEntry;
pub use retention::RetentionPolicy;
pub use run_tree::OpenQuestions;
pub use sweep::{SweepLimits, SweepReport};
pub use verdict::Verdict;

#[doc(hidden)]
pub use self::{
    archive::{ImportedRun, export, import},
    check::check_log,
    checkpoint::checkpoint,
    explain::explain,
    lineage::lineage,
    log_reader::{folded_at, page, secrets, shown_at},
    position::{find_node, node_names},
    questions::questions,
    report::{post_mortem, timeline},
};
