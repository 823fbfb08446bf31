//! Operations on the logs of runs, which inspect, fork, check and prune them.

mod archive;
mod check;
mod checkpoint;
mod details;
mod diff;
mod explain;
mod lineage;
mod log_reader;
mod logged_graph;
mod origin;
mod phase;
mod position;
mod questions;
mod reason;
mod report;
pub(crate) mod retention;
pub(crate) mod run_tree;
mod sentence;
pub(crate) mod sweep;
mod verdict;
mod verify;

pub use check::CheckedLog;
pub use checkpoint::{
    Checkpoint, Diagnostic, MemorySnapshot, PastActivation, PendingActivation, PendingChild, ReplanEntry,
    WaitingToken,
};
pub use diff::{Change, Diff};
pub use explain::{ReasonCache, RunExplanation};
pub use lineage::Ancestor;
pub use logged_graph::LoggedGraph;
pub use origin::RunOrigin;
pub use phase::ActivationPhase;
pub use position::Position;
pub use reason::{ReasonKind, RunReason};
pub use report::TimelineEntry;
pub use retention::RetentionPolicy;
pub use run_tree::OpenQuestions;
pub use sweep::{SweepLimits, SweepReport};
pub use verdict::Verdict;
pub use verify::{Divergence, Verified};

pub(crate) use archive::{ImportedRun, export, import};
pub(crate) use check::check_log;
pub(crate) use checkpoint::checkpoint;
pub(crate) use explain::explain;
pub(crate) use lineage::lineage;
pub(crate) use log_reader::{folded_at, page, secrets, shown_at};
pub(crate) use position::{find_node, node_names};
pub(crate) use questions::questions;
pub(crate) use report::{post_mortem, timeline};
pub(crate) use verify::verify;
