//! Whether an append changes the values that listings search. These values are also in the run's row, not only in its head.

use ferrata_store::{RecordHeader, RecordKind, RunStatus};

/// How an append treats the run's row, which has the status, the owner and the wake-up time.
///
/// A wrong choice only costs time. A statement that does not write the row has a condition: it writes nothing if the values in the row would have
/// to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowWriteMode {
    /// The statement does not write the row for records of a run's normal work. Most records are of this kind.
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
