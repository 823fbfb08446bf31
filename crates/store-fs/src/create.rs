//! Making a run's log: written and synced under another name, then renamed, so that no half-made run is ever seen.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::store::RunAppend;
use ferrata_core::{RunKey, Seq};

use crate::append::{Lines, last};
use crate::disk::{Access, Ident};
use crate::error::{Doing, Fault};
use crate::folder::{Folder, MOVES};
use crate::line::Opening;
use crate::lock::{Locked, Mode};
use crate::log::Log;
use crate::tail::Tail;

/// A file that is not yet a log, held by whoever makes it one.
struct Unborn {
    file: Arc<File>,
    ident: Ident,
    /// How long it was when it was found: what a crash left in it.
    len: u64,
    lock: Locked,
}

impl Folder {
    /// Writes the run's log under another name; `None` if somebody else made it meanwhile.
    ///
    /// The caller must have the slot's turn. A failure is plain: what did not become a log was not appended.
    pub(crate) fn create(
        &self,
        entry: &RunAppend,
        lines: &Lines,
        patience: Duration,
    ) -> Result<Option<(Log, Locked)>, Fault> {
        let run = &entry.run;
        let tenant = self.layout.tenant(&run.tenant);
        self.disk.make_dir(&tenant).map_err(|e| Fault::io(Doing::MakeDir, &tenant, e))?;
        let path = self.layout.unborn(run);
        let unborn = self.hold_unborn(&path, patience)?;
        if self.stat(&self.layout.log(run))?.is_some() {
            self.remove(&path)?;
            return Ok(None);
        }
        if let Err(fault) = self.fill(&unborn, &path, &lines.bytes) {
            // Should it stay, the next who makes or purges the run finds it.
            let _removed = self.remove(&path);
            return Err(fault);
        }
        let facts = entry.facts.clone().expect("a new run comes with facts, as was checked first");
        let log = Log {
            file: unborn.file,
            ident: unborn.ident,
            opening: Arc::new(Opening { run: run.clone(), first: Seq::new(0), facts }),
            floor: lines.floor,
            tail: Tail { end: lines.bytes.len() as u64, head: last(entry).header.clone() },
            named: false,
        };
        Ok(Some((log, unborn.lock)))
    }

    fn fill(&self, unborn: &Unborn, path: &Path, bytes: &[u8]) -> Result<(), Fault> {
        if unborn.len > 0 {
            self.disk.set_len(&unborn.file, 0).map_err(|e| Fault::io(Doing::Cut, path, e))?;
        }
        self.disk.write_at(&unborn.file, bytes, 0).map_err(|e| Fault::io(Doing::Write, path, e))
    }

    /// Gives a log that was made its name, if it could be synced. The run can be seen from then on.
    ///
    /// The name is free: all who make the run hold the same file first, and then look.
    pub(crate) fn give_name(&self, run: &RunKey, synced: io::Result<()>) -> Result<(), Fault> {
        let (from, to) = (self.layout.unborn(run), self.layout.log(run));
        let failed = |doing| move |e| (doing, e);
        let named = synced
            .map_err(failed(Doing::Sync))
            .and_then(|()| self.disk.rename(&from, &to).map_err(failed(Doing::Rename)));
        named.map_err(|(doing, source)| {
            // Should it stay, the next who makes or purges the run finds it.
            let _removed = self.remove(&from);
            Fault::io(doing, &from, source)
        })
    }

    /// Opens the file in which the run's log is made, and locks it against others who make or purge the same run.
    fn hold_unborn(&self, path: &Path, patience: Duration) -> Result<Unborn, Fault> {
        for _ in 0..MOVES {
            let file = self.disk.open(path, Access::Create).map_err(|e| Fault::io(Doing::Open, path, e))?;
            let file = Arc::new(file);
            let lock = Locked::wait(Arc::clone(&file), path, Mode::Exclusive, patience)?;
            let metadata = file.metadata().map_err(|e| Fault::io(Doing::Open, path, e))?;
            let ident = Ident::of(&metadata);
            if self.stat(path)?.map(|named| Ident::of(&named)) != Some(ident) {
                continue;
            }
            return Ok(Unborn { file, ident, len: metadata.len(), lock });
        }
        Err(Fault::Restless { path: path.into() })
    }

    /// Removes what a crash left of making the run, waiting for whoever is making it just now.
    pub(crate) fn remove_unborn(&self, path: &Path) -> Result<(), Fault> {
        if self.stat(path)?.is_some() {
            let _unborn = self.hold_unborn(path, self.options.lock_wait)?;
            self.remove(path)?;
        }
        Ok(())
    }
}
