//! Checks that the folder is present. A missing file means a missing run only if its folders exist both before and after the search for the file.
//! Otherwise the runs of a folder that was moved or unmounted for a moment would look purged.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use ferrata_store::{RunKey, TenantId};

use crate::disk::FileIdent;
use crate::error::FsStoreError;
use crate::inner::{FsInner, MOVES};

/// Distinguishes a folder from its replacement, and from the same folder after it was away for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderStamp {
    root: FileIdent,
    /// The time of the last change of a name in the root.
    changed: (i64, i64),
    runs: FileIdent,
}

impl FsInner {
    fn existed_before(&self) -> bool {
        self.marked.load(Ordering::Relaxed) || self.ready.load(Ordering::Relaxed)
    }

    /// Returns an error if the folder is missing but existed before. Otherwise returns `done`. If the folder is missing, a missing file does not
    /// mean a missing run, and a failure may have another cause.
    ///
    /// No call creates the folder again by itself: an empty store in the place of an unmounted store would start every run a second time.
    pub(crate) fn check_still_there<T>(&self, done: Result<T, FsStoreError>) -> Result<T, FsStoreError> {
        if self.existed_before() && matches!(self.stat(&self.layout.marker()), Ok(None)) {
            // The machine may have crashed before the folder returns.
            self.require_recovery();
            return Err(FsStoreError::Gone { path: self.layout.root().into() });
        }
        done
    }

    /// Returns a stamp of the folder. Returns `None` if this instance never saw the folder set up, so that the folder cannot be missing.
    ///
    /// # Errors
    ///
    /// [`FsStoreError::Gone`] or [`FsStoreError::FolderGone`] if the root, the folder of runs, or the folder of a tenant in which this instance has
    /// created runs is missing.
    pub(crate) fn stamp(&self, tenant: Option<&TenantId>) -> Result<Option<FolderStamp>, FsStoreError> {
        if !self.existed_before() {
            return Ok(None);
        }
        self.check_still_there(Ok(()))?;
        let root = self.stat(self.layout.root())?;
        let root = root.ok_or_else(|| FsStoreError::Gone { path: self.layout.root().into() })?;
        let runs = self.check_exists(self.layout.runs())?;
        if let Some(tenant) = tenant.filter(|tenant| self.has_named(tenant, runs)) {
            self.check_exists(&self.layout.tenant(tenant))?;
        }
        Ok(Some(FolderStamp { root: FileIdent::of(&root), changed: (root.ctime(), root.ctime_nsec()), runs }))
    }

    /// Fails if a folder is missing although the store has created it.
    pub(crate) fn check_exists(&self, path: &Path) -> Result<FileIdent, FsStoreError> {
        match self.stat(path)? {
            Some(metadata) => Ok(FileIdent::of(&metadata)),
            None => {
                self.require_recovery();
                Err(FsStoreError::FolderGone { path: path.into() })
            }
        }
    }

    /// Returns whether a run has no log, after the caller found no log. The folders must exist before and after a second search.
    pub(crate) fn is_absent(&self, run: &RunKey) -> Result<bool, FsStoreError> {
        for _ in 0..MOVES {
            let before = self.stamp(Some(&run.tenant))?;
            if self.stat(&self.layout.log(run))?.is_some() {
                return Ok(false);
            }
            if self.stamp(Some(&run.tenant))? == before {
                return Ok(true);
            }
        }
        Err(FsStoreError::Restless { path: self.layout.root().into() })
    }

    /// Fails if the folder of executors is missing, so that its executors do not count as dead.
    pub(crate) fn check_executors(&self) -> Result<(), FsStoreError> {
        if self.existed_before() {
            self.check_exists(self.layout.executors())?;
        }
        Ok(())
    }
}
