//! Creates a run's log. Writes and syncs the content under another name, then renames the file, so that no reader sees a partial run.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferrata_store::{RunAppend, RunKey, Seq};

use crate::append::AppendLines;
use crate::caller::CallerState;
use crate::disk::{FileAccess, FileIdent};
use crate::error::{FileOperation, FsStoreError};
use crate::inner::{FsInner, MOVES};
use crate::line::Opening;
use crate::lock::{FileLock, FileLockMode};
use crate::log::CachedLog;
use crate::tail::IntactTail;

/// A new file that does not have the name of a log yet. Its creator has it locked.
pub(crate) struct UnnamedLog {
    pub(crate) file: Arc<std::fs::File>,
    pub(crate) ident: FileIdent,
    /// The time of the write, in nanoseconds since the machine's start. If two logs had the same name, the log with the later time replaced the
    /// other.
    pub(crate) made: u64,
    /// The offset of the first record.
    floor: u64,
    lock: FileLock,
}

impl FsInner {
    /// Writes the content of a new log under another name. Returns `None` if another writer has created the run meanwhile.
    ///
    /// The caller must hold the turn of the slot. `patience` limits the wait for the file's lock.
    pub(crate) fn write_unborn(
        &self,
        run: &RunKey,
        lines: &AppendLines,
        patience: Duration,
    ) -> Result<Option<UnnamedLog>, FsStoreError> {
        let tenant = self.layout.tenant(&run.tenant);
        self.disk.make_dir(&tenant).map_err(|e| FsStoreError::io(FileOperation::MakeDir, &tenant, e))?;
        let path = self.layout.unnamed_log(run);
        let mut unborn = self.lock_unnamed_log(&path, patience)?;
        if self.stat(&self.layout.log(run))?.is_some() {
            self.remove(&path)?;
            return Ok(None);
        }
        let failed = |doing| {
            let path = &path;
            move |e| FsStoreError::io(doing, path, e)
        };
        let written =
            (self.disk.set_len(&unborn.file, 0).map_err(failed(FileOperation::Cut))).and_then(|()| {
                self.disk.write_at(&unborn.file, &lines.bytes, 0).map_err(failed(FileOperation::Write))
            });
        if let Err(fault) = written {
            // If the file remains, the next creation or purge of the run removes it.
            let _removed = self.remove(&path);
            return Err(fault);
        }
        unborn.made = u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        unborn.floor = lines.floor;
        Ok(Some(unborn))
    }

    /// Renames the file to the name of the log, once its content is durable. After an error, the append did not happen.
    ///
    /// No other file can have the name: every creator of the run locks the same file first, and then checks the name.
    pub(crate) fn name_log(
        &self,
        unborn: UnnamedLog,
        entry: &RunAppend,
        tail: IntactTail,
        synced: io::Result<()>,
        caller: &CallerState,
    ) -> Result<(CachedLog, FileLock), FsStoreError> {
        let (from, to) = (self.layout.unnamed_log(&entry.run), self.layout.log(&entry.run));
        let named = (synced.map_err(|e| FsStoreError::io(FileOperation::Sync, &from, e)))
            .and_then(|()| caller.check_waiting())
            .and_then(|()| {
                self.disk.rename(&from, &to).map_err(|e| FsStoreError::io(FileOperation::Rename, &from, e))
            });
        if let Err(fault) = named {
            let _removed = self.remove(&from);
            return Err(fault);
        }
        let facts = entry.facts.clone().expect("a new run comes with facts, as was checked first");
        let opening = Arc::new(Opening { run: entry.run.clone(), first: Seq::new(0), facts });
        let UnnamedLog { file, ident, floor, lock, .. } = unborn;
        // From here on, readers see the run, but its name is not synced yet.
        Ok((CachedLog { file, ident, opening, floor, tail, named: false }, lock))
    }

    /// Opens the file in which the run's log is created. Locks it against other creations and purges of the run.
    fn lock_unnamed_log(&self, path: &Path, patience: Duration) -> Result<UnnamedLog, FsStoreError> {
        for _ in 0..MOVES {
            let file = self
                .disk
                .open(path, FileAccess::Create)
                .map_err(|e| FsStoreError::io(FileOperation::Open, path, e))?;
            let file = Arc::new(file);
            let lock = FileLock::wait(Arc::clone(&file), path, FileLockMode::Exclusive, patience)?;
            let metadata = file.metadata().map_err(|e| FsStoreError::io(FileOperation::Open, path, e))?;
            let ident = FileIdent::of(&metadata);
            if self.stat(path)?.map(|named| FileIdent::of(&named)) != Some(ident) {
                continue;
            }
            return Ok(UnnamedLog { file, ident, made: 0, floor: 0, lock });
        }
        Err(FsStoreError::Restless { path: path.into() })
    }

    /// Removes the remains of a crashed creation of the run. Waits for a creation in progress.
    pub(crate) fn remove_unborn(&self, path: &Path) -> Result<(), FsStoreError> {
        if self.stat(path)?.is_some() {
            let _unborn = self.lock_unnamed_log(path, self.options.lock_wait)?;
            self.remove(path)?;
        }
        Ok(())
    }
}
