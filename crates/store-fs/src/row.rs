//! A row: some appends of a batch, which this module writes one after the other and syncs together.

use std::sync::Arc;
use std::time::Duration;

use ferrata_store::{RunAppend, check_append};

use crate::append::{AppendLines, AppendStart, encode};
use crate::batch::AppendBatch;
use crate::caller::CallerState;
use crate::error::FsStoreError;
use crate::inner::FsInner;
use crate::slots::RunSlot;

/// The maximum number of appends in a row. Each append keeps a log open until the row is synced, and all written appends return together, after the
/// last sync.
pub(crate) const LONGEST: usize = 64;

impl FsInner {
    /// Executes the appends of a row that can run at once. Returns the appends that would have to wait for another caller or process.
    ///
    /// A row holds the locks of all of its runs. So it must not wait for any lock: two rows with the same runs would wait for each other.
    pub(crate) fn append_row(
        &self,
        row: Vec<(usize, RunAppend)>,
        batch: &AppendBatch,
        caller: &CallerState,
    ) -> Vec<(usize, RunAppend)> {
        let _turns = self.turns.take_some(row.len());
        let done = |number: usize, entry: &RunAppend, done: Result<_, FsStoreError>| {
            // The folder existed when it was acknowledged, so a missing folder is an error.
            let done = done.or_else(|fault| self.check_still_there(Err(fault)));
            batch.set_result(number, done.map_err(|fault| fault.of_run("store.append", &entry.run)));
        };
        let mut parts = Vec::with_capacity(row.len());
        for (number, entry) in row {
            match self.prepare(&entry) {
                Ok((slot, lines)) => parts.push((number, entry, slot, lines)),
                Err(fault) => done(number, &entry, Err(fault)),
            }
        }
        let (mut turns, mut begun, mut at_work, mut later) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (number, entry, slot, lines) in &parts {
            let Some(turn) = slot.try_lock_turn() else {
                later.push(*number);
                continue;
            };
            match self.begin_append(slot, entry, lines, Duration::ZERO) {
                Ok(AppendStart::Begun(next)) => {
                    turns.push(turn);
                    begun.push(*next);
                    at_work.push((*number, entry));
                }
                Ok(AppendStart::Done(head)) => done(*number, entry, Ok(head)),
                Ok(AppendStart::Again) | Err(FsStoreError::Locked { .. }) => later.push(*number),
                Err(fault) => done(*number, entry, Err(fault)),
            }
        }
        for ((number, entry), settled) in at_work.into_iter().zip(self.sync_appends(begun, caller)) {
            done(number, entry, settled);
        }
        drop(turns);
        parts.into_iter().filter(|part| later.contains(&part.0)).map(|part| (part.0, part.1)).collect()
    }

    fn prepare(&self, entry: &RunAppend) -> Result<(Arc<RunSlot>, AppendLines), FsStoreError> {
        self.ready_to_write()?;
        check_append(entry).map_err(FsStoreError::Refused)?;
        Ok((self.slots.slot_of(&entry.run), encode(entry)?))
    }
}
