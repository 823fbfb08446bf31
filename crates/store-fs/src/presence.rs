//! Whether the folder is there. A run without a file does not exist only if the folders that would hold the file are there, and were there while the
//! file was looked for: a folder that was moved or unmounted for a moment must not be taken for one whose runs were purged.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use ferrata_store::{RunKey, TenantId};

use crate::disk::Ident;
use crate::error::StoreError;
use crate::inner::{Inner, MOVES};

/// What tells a folder from one that was away meanwhile, or that took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderStamp {
    root: Ident,
    /// When a name in the root last changed.
    changed: (i64, i64),
    runs: Ident,
}

impl Inner {
    fn was_there(&self) -> bool {
        self.marked.load(Ordering::Relaxed) || self.ready.load(Ordering::Relaxed)
    }

    /// Says that the folder is gone, if it was there before: an absence is then not that of a run, nor is a failure what it seems.
    ///
    /// No caller makes it again unasked: an empty store in the place of one that was unmounted would start every run a second time.
    pub(crate) fn still_there<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if self.was_there() && matches!(self.stat(&self.layout.marker()), Ok(None)) {
            // What comes back may have been through a crash.
            self.doubt();
            return Err(StoreError::Gone { path: self.layout.root().into() });
        }
        done
    }

    /// Stamps the folder as it is; `None` if it was never seen set up, so that nothing can be missing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Gone`] or [`StoreError::FolderGone`] if the root, the folder of runs, or that of a tenant in which this instance has made
    /// runs is not there.
    pub(crate) fn stamp(&self, tenant: Option<&TenantId>) -> Result<Option<FolderStamp>, StoreError> {
        if !self.was_there() {
            return Ok(None);
        }
        self.still_there(Ok(()))?;
        let root = self.stat(self.layout.root())?;
        let root = root.ok_or_else(|| StoreError::Gone { path: self.layout.root().into() })?;
        let runs = self.must_exist(self.layout.runs())?;
        if let Some(tenant) = tenant.filter(|tenant| self.has_named(tenant, runs)) {
            self.must_exist(&self.layout.tenant(tenant))?;
        }
        Ok(Some(FolderStamp { root: Ident::of(&root), changed: (root.ctime(), root.ctime_nsec()), runs }))
    }

    /// Refuses a folder that is missing although the store has made it.
    pub(crate) fn must_exist(&self, path: &Path) -> Result<Ident, StoreError> {
        match self.stat(path)? {
            Some(metadata) => Ok(Ident::of(&metadata)),
            None => {
                self.doubt();
                Err(StoreError::FolderGone { path: path.into() })
            }
        }
    }

    /// Tells whether a run has no log, for a caller that found none: the folders must be there before and after another look.
    pub(crate) fn is_absent(&self, run: &RunKey) -> Result<bool, StoreError> {
        for _ in 0..MOVES {
            let before = self.stamp(Some(&run.tenant))?;
            if self.stat(&self.layout.log(run))?.is_some() {
                return Ok(false);
            }
            if self.stamp(Some(&run.tenant))? == before {
                return Ok(true);
            }
        }
        Err(StoreError::Restless { path: self.layout.root().into() })
    }

    /// Refuses executors to count as dead whose folder is gone.
    pub(crate) fn must_have_executors(&self) -> Result<(), StoreError> {
        if self.was_there() {
            self.must_exist(self.layout.executors())?;
        }
        Ok(())
    }
}
