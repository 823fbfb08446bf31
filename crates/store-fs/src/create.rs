//! Making a run's log: written and synced under another name, then renamed, so that no half-made run is ever seen.

use std::path::Path;
use std::sync::Arc;

use ferrata_store::{HeadRef, RunAppend, Seq};

use crate::append::{Lines, last};
use crate::caller::Caller;
use crate::disk::{Access, Ident};
use crate::error::{Doing, StoreError};
use crate::inner::{Inner, MOVES};
use crate::line::Opening;
use crate::lock::{Locked, Mode};
use crate::log::Log;
use crate::slots::Slot;
use crate::tail::Tail;

/// A file that is not yet a log, held by whoever makes it one.
struct Unborn {
    file: Arc<std::fs::File>,
    ident: Ident,
    _lock: Locked,
}

impl Inner {
    /// Makes the run's log; `None` if another writer did meanwhile.
    ///
    /// The caller must have the slot's turn.
    pub(crate) fn create(
        &self,
        slot: &Slot,
        entry: &RunAppend,
        lines: &Lines,
        caller: &Caller,
    ) -> Result<Option<HeadRef>, StoreError> {
        let run = &entry.run;
        let tenant = self.layout.tenant(&run.tenant);
        self.disk.make_dir(&tenant).map_err(|e| StoreError::io(Doing::MakeDir, &tenant, e))?;
        let (path, unborn_path) = (self.layout.log(run), self.layout.unborn(run));
        let unborn = self.hold_unborn(&unborn_path)?;
        if self.stat(&path)?.is_some() {
            self.remove(&unborn_path)?;
            return Ok(None);
        }
        let named = caller.must_wait().and_then(|()| self.name(&unborn, &unborn_path, &path, &lines.bytes));
        if let Err(fault) = named {
            // Should it stay, the next who makes or purges the run finds it.
            let _removed = self.remove(&unborn_path);
            return Err(fault);
        }
        // The run can be seen from here on, so a failure leaves it in doubt.
        self.sync_name(run).map_err(|fault| self.suspect_name(slot, run, fault))?;
        let head = last(entry);
        let facts = entry.facts.clone().expect("a new run comes with facts, as was checked first");
        slot.keep(Log {
            file: unborn.file,
            ident: unborn.ident,
            opening: Arc::new(Opening { run: run.clone(), first: Seq::new(0), facts }),
            floor: lines.floor,
            tail: Tail { end: lines.bytes.len() as u64, head: head.header.clone() },
            named: true,
        });
        Ok(Some(head.header.head()))
    }

    /// Writes and syncs the file and gives it its name. A failure is plain: what did not become a log was not appended.
    ///
    /// The name is free: all who make the run hold the same file first, and then look.
    fn name(&self, unborn: &Unborn, from: &Path, to: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        let failed = |doing| move |e| StoreError::io(doing, from, e);
        self.disk.set_len(&unborn.file, 0).map_err(failed(Doing::Cut))?;
        self.disk.write_at(&unborn.file, bytes, 0).map_err(failed(Doing::Write))?;
        self.disk.sync(&unborn.file).map_err(failed(Doing::Sync))?;
        self.disk.rename(from, to).map_err(failed(Doing::Rename))
    }

    /// Opens the file in which the run's log is made, and locks it against others who make or purge the same run.
    fn hold_unborn(&self, path: &Path) -> Result<Unborn, StoreError> {
        for _ in 0..MOVES {
            let file =
                self.disk.open(path, Access::Create).map_err(|e| StoreError::io(Doing::Open, path, e))?;
            let file = Arc::new(file);
            let lock = self.lock(&file, path, Mode::Exclusive)?;
            let metadata = file.metadata().map_err(|e| StoreError::io(Doing::Open, path, e))?;
            let ident = Ident::of(&metadata);
            if self.stat(path)?.map(|named| Ident::of(&named)) != Some(ident) {
                continue;
            }
            return Ok(Unborn { file, ident, _lock: lock });
        }
        Err(StoreError::Restless { path: path.into() })
    }

    /// Removes what a crash left of making the run, waiting for whoever is making it just now.
    pub(crate) fn remove_unborn(&self, path: &Path) -> Result<(), StoreError> {
        if self.stat(path)?.is_some() {
            let _unborn = self.hold_unborn(path)?;
            self.remove(path)?;
        }
        Ok(())
    }
}
