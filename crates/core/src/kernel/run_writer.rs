//! The data of a writer to a run that this process does not drive.

use super::log::LogWriter;
use crate::engine::fold::ReplayedRun;

/// A run in its state at its head, to which records can be appended.
pub(crate) struct RunWriter {
    pub(crate) folded: ReplayedRun,
    pub(crate) log: LogWriter,
    /// Whether the run has an owner while it is in progress.
    pub(crate) is_owned: bool,
    /// Whether the channels have a newer version than the last base. The next record must then be a base.
    pub(crate) is_migrated: bool,
}
