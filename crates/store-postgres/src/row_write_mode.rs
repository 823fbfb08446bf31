//! Whether an append changes values that listings search, which are in the run's row and not only in its head.

use ferrata_store::{RecordHeader, RecordKind, RunStatus};

/// How an append treats the run's row: its status, its owner, and when it is to be woken.
///
/// A wrong guess costs only time. A statement that leaves the row unchanged writes nothing unless the listed values are the same as in the head that
/// it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowWriteMode {
    /// The row is left alone where a record tells of a run's work, as most do.
    AsItSeems,
    /// The statement writes the row for every record.
    Written,
}

impl RowWriteMode {
    /// Returns whether to write the row for a head with this header.
    pub(crate) fn may_change(self, head: &RecordHeader) -> bool {
        let is_of_work = matches!(
            head.kind,
            RecordKind::Node | RecordKind::Attempt | RecordKind::Step | RecordKind::Intent
        );
        self == Self::Written || !is_of_work || head.status != RunStatus::InProgress || head.wake_at.is_some()
    }
}
