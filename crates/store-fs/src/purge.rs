//! Removes a run with all of its files, whatever their state is.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ferrata_store::{HeadRef, Removed, RunKey};

use crate::backward::LogSource;
use crate::caller::CallerState;
use crate::disk::{FileAccess, FileIdent};
use crate::error::{FileOperation, FsStoreError};
use crate::inner::{FsInner, MOVES};
use crate::lock::FileLockMode;
use crate::log::CachedLog;
use crate::rewrite::tally;

/// A log whose name was removed. It stays open, so that no other file gets its inode number.
type UnlinkedLog = (Arc<fs::File>, FileIdent);

impl FsInner {
    /// Removes the run's log if its head is the expected head, and the remains of crashes.
    ///
    /// If the caller has stopped waiting, the purge removes nothing, because the run may be newer than the call.
    pub(crate) fn purge(
        &self,
        run: &RunKey,
        expected: Option<HeadRef>,
        caller: &CallerState,
    ) -> Result<Removed, FsStoreError> {
        let slot = self.slots.slot_of(run);
        let _turn = slot.lock_turn();
        slot.drop_cached_log();
        self.remove_unborn(&self.layout.unnamed_log(run))?;
        let path = self.layout.log(run);
        let mut purged = None;
        for _ in 0..MOVES {
            match self.purge_log(run, &path, expected, caller) {
                Ok(removed) => {
                    purged = Some(removed);
                    break;
                }
                Err(FsStoreError::Restless { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        let Some((purged, log)) = purged else { return Err(FsStoreError::Restless { path }) };
        self.suspect_runs().remove(run);
        // Do this even if no log existed: an earlier purge may have failed exactly here.
        let tenant = self.layout.tenant(&run.tenant);
        match self.disk.sync_dir(&tenant) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FsStoreError::io(FileOperation::Sync, &tenant, error))
            }
            _ => {
                // Only now: before the name is durably removed, a crash could restore it, and records that only the journal holds still belong to
                // the run.
                self.journal.forget_log(self, run, log.as_ref().map(|(_, ident)| *ident));
                Ok(purged)
            }
        }
    }

    fn purge_log(
        &self,
        run: &RunKey,
        path: &Path,
        expected: Option<HeadRef>,
        caller: &CallerState,
    ) -> Result<(Removed, Option<UnlinkedLog>), FsStoreError> {
        match self.stat(path)? {
            None if !self.is_absent(run)? => return Err(FsStoreError::Restless { path: path.into() }),
            None => {
                self.remove(&self.layout.copy(run))?;
                return Ok((Removed::default(), None));
            }
            Some(metadata) if expected.is_some() && !metadata.is_file() => {
                return Err(FsStoreError::damaged(path, 0, "the path is not a file"));
            }
            Some(metadata) if metadata.is_dir() => {
                // The store creates no directory with this name. The purge removes an empty directory, and never the contents of a foreign
                // directory.
                fs::remove_dir(path).map_err(|_| {
                    FsStoreError::io(FileOperation::Remove, path, io::ErrorKind::IsADirectory.into())
                })?;
                return Ok((Removed::default(), None));
            }
            Some(metadata) if !metadata.is_file() => {
                self.remove(path)?;
                return Ok((Removed::default(), None));
            }
            Some(_) => {}
        }
        // A file opened for reading can be locked and counted, so the purge needs no permission to write the file.
        let file = match self.disk.open(path, FileAccess::Read) {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FsStoreError::Restless { path: path.into() });
            }
            Err(error) => return Err(FsStoreError::io(FileOperation::Open, path, error)),
        };
        let _lock = self.lock(&file, path, FileLockMode::Exclusive)?;
        let metadata = file.metadata().map_err(|e| FsStoreError::io(FileOperation::Open, path, e))?;
        if self.stat(path)?.map(|named| FileIdent::of(&named)) != Some(FileIdent::of(&metadata)) {
            return Err(FsStoreError::Restless { path: path.into() });
        }
        caller.check_waiting()?;
        if expected.is_some() {
            let actual = CachedLog::read(&*self.disk, Arc::clone(&file), path, run, &metadata)?.head();
            if expected != Some(actual) {
                return Err(FsStoreError::Conflict { expected, actual: Some(actual) });
            }
        }
        let source = LogSource { disk: &*self.disk, file: &file, path };
        let (records, bytes) = tally(source, 0, metadata.len());
        self.remove(&self.layout.copy(run))?;
        self.remove(path)?;
        Ok((Removed { records, bytes }, Some((file, FileIdent::of(&metadata)))))
    }
}
