//! Making a run's log: written and synced under another name, then named, so that no half-made run is ever seen.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use ferrata_core::store::RunAppend;
use ferrata_core::{HeadRef, Seq};

use crate::append::{Lines, last};
use crate::disk::{Access, Ident};
use crate::error::{Doing, Fault};
use crate::folder::{Folder, MOVES};
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

impl Folder {
    /// Makes the run's log; `None` if somebody else did meanwhile.
    ///
    /// The caller must have the slot's turn.
    pub(crate) fn create(
        &self,
        slot: &Slot,
        entry: &RunAppend,
        lines: &Lines,
    ) -> Result<Option<HeadRef>, Fault> {
        let run = &entry.run;
        let tenant = self.layout.tenant(&run.tenant);
        self.disk.make_dir(&tenant).map_err(|e| Fault::io(Doing::MakeDir, &tenant, e))?;
        let (path, unborn_path) = (self.layout.log(run), self.layout.unborn(run));
        let unborn = self.hold_unborn(&unborn_path)?;
        let named = self.name(&unborn, &unborn_path, &path, &lines.bytes);
        // Whether it became a log or not. Should it stay, the next who makes or purges the run finds it.
        let _removed = self.remove(&unborn_path);
        if !named? {
            return Ok(None);
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

    /// Writes and syncs the file and gives it its name; returns whether the name was free.
    fn name(&self, unborn: &Unborn, from: &Path, to: &Path, bytes: &[u8]) -> Result<bool, Fault> {
        if self.stat(to)?.is_some() {
            return Ok(false);
        }
        self.disk.set_len(&unborn.file, 0).map_err(|e| Fault::io(Doing::Cut, from, e))?;
        self.disk.write_at(&unborn.file, bytes, 0).map_err(|e| Fault::io(Doing::Write, from, e))?;
        // A failure here is plain: what did not become a log was not appended.
        self.disk.sync(&unborn.file).map_err(|e| Fault::io(Doing::Sync, from, e))?;
        match self.disk.link(from, to) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(Fault::io(Doing::Link, to, error)),
        }
    }

    /// Opens the file in which the run's log is made, and locks it against others who make or purge the same run.
    fn hold_unborn(&self, path: &Path) -> Result<Unborn, Fault> {
        for _ in 0..MOVES {
            let file = self.disk.open(path, Access::Create).map_err(|e| Fault::io(Doing::Open, path, e))?;
            let file = Arc::new(file);
            let lock = self.lock(&file, path, Mode::Exclusive)?;
            let metadata = file.metadata().map_err(|e| Fault::io(Doing::Open, path, e))?;
            let ident = Ident::of(&metadata);
            if self.stat(path)?.map(|named| Ident::of(&named)) != Some(ident) {
                continue;
            }
            if metadata.nlink() > 1 {
                // Who made it died between naming it and removing this name: it is a run's log, not to be written over.
                self.remove(path)?;
                continue;
            }
            return Ok(Unborn { file, ident, _lock: lock });
        }
        Err(Fault::Restless { path: path.into() })
    }

    /// Removes what a crash left of making the run, waiting for whoever is making it just now.
    pub(crate) fn remove_unborn(&self, path: &Path) -> Result<(), Fault> {
        if self.stat(path)?.is_some() {
            let _unborn = self.hold_unborn(path)?;
            self.remove(path)?;
        }
        Ok(())
    }
}
