//! Whether an append changes what listings look for, which stands in the run's row and not in its head alone.

use ferrata_store::{RecordHeader, RecordKind, RunStatus};

/// How an append treats the run's row: its status, its owner, and when it is to be woken.
///
/// A guess costs nothing but time: a statement that leaves the row as it is writes nothing unless these are as before, which it
/// compares in the head that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowWriteMode {
    /// The row is left alone where a record tells of a run's work, as most do.
    AsItSeems,
    /// The row is written whatever the record is.
    Written,
}

impl RowWriteMode {
    /// Tells whether the row is to be written with a head that is this header.
    pub(crate) fn may_change(self, head: &RecordHeader) -> bool {
        let is_of_work = matches!(
            head.kind,
            RecordKind::Node | RecordKind::Attempt | RecordKind::Step | RecordKind::Intent
        );
        self == Self::Written || !is_of_work || head.status != RunStatus::InProgress || head.wake_at.is_some()
    }
}
