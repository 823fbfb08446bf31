//! A run's log as something to look into, branch off, check and keep small.

mod archive;
mod check;
mod checkpoint;
mod diff;
mod lineage;
mod position;
mod report;
mod verdict;
mod verify;
mod walk;

pub use check::CheckedLog;
pub use checkpoint::{Checkpoint, Diagnostic, Past, Pending, Replanned, Waiting};
pub use diff::{Change, Diff};
pub use lineage::Ancestor;
pub use position::Position;
pub use report::Happened;
pub use verdict::Verdict;
pub use verify::{Divergence, Verified};

pub(crate) use archive::{export, import};
pub(crate) use check::check_log;
pub(crate) use checkpoint::checkpoint;
pub(crate) use lineage::lineage;
pub(crate) use report::{happened, post_mortem};
pub(crate) use verify::verify;
pub(crate) use walk::{folded_at, page};
