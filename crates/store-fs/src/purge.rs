//! Removes a run with all of its files, in any state.

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

/// A log that has no name any more, held open so that no other file gets its number.
type UnlinkedLog = (Arc<fs::File>, FileIdent);

impl FsInner {
    /// Removes the run's log if its head is the expected one, and the remains of crashes.
    ///
    /// If the caller stopped waiting, nothing newer is removed.
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
        // Also if nothing was there: a purge before this one may have failed just here.
        let tenant = self.layout.tenant(&run.tenant);
        match self.disk.sync_dir(&tenant) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FsStoreError::io(FileOperation::Sync, &tenant, error))
            }
            _ => {
                // Before that, a crash could bring the name back, and what only the journal holds is still part of the run.
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
                // This store creates no directory of this name. It removes an empty one, and never a foreign directory's contents.
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
        // Reading is enough to lock and to count, so that a file without the right to write goes as well.
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
