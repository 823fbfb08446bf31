//! Setup of the root: its directories, and the marker that names its layout.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use crate::disk::FileAccess;
use crate::error::{FileOperation, FsStoreError};
use crate::inner::FsInner;
use crate::layout::VERSION;
use crate::lock::{FileLock, FileLockMode};

/// The maximum number of bytes to read from a marker. It is more than the length of any marker, and limits the read of a wrong file.
const MARKER: usize = 4_096;

#[derive(Serialize)]
struct RootMarker {
    version: u64,
}

/// The fields of a marker. Folders from before the first release have `layout` instead of the version.
#[derive(Deserialize)]
struct FoundMarker {
    version: Option<u64>,
    layout: Option<u64>,
}

impl FsInner {
    /// Creates the missing parts of the root. Any number of processes may do so at the same time. If nothing is missing, a process needs no
    /// permission to write.
    ///
    /// The setup writes the marker last. So if a root has a marker but lacks a folder, the folder was lost. The store must not replace a lost
    /// folder with an empty one: without the folder of runs it would start every run a second time, and without the folder of journals it would
    /// lose the data of a crash.
    pub(crate) fn set_up(&self) -> Result<(), FsStoreError> {
        let root = self.layout.root();
        if self.has_marker(&self.layout.marker())? {
            self.check_exists(self.layout.runs())?;
            self.check_exists(self.layout.journals())?;
        }
        for path in [root, self.layout.runs(), self.layout.executors(), self.layout.journals()] {
            if !self.stat(path)?.is_some_and(|metadata| metadata.is_dir()) {
                self.disk.make_dir(path).map_err(|e| FsStoreError::io(FileOperation::SetUp, path, e))?;
            }
        }
        let path = self.layout.marker();
        if !self.has_marker(&path)? {
            self.write_marker(&path)?;
        }
        self.check_locks(&path)?;
        if self.stat(&self.layout.marker_in_capitals())?.is_some() {
            // Two runs whose ids differ only in case would share a file.
            return Err(FsStoreError::FoldsCase { path });
        }
        if let Some(above) = root.parent() {
            match self.disk.sync_dir(above) {
                // The root's name is in a directory that this process may not be allowed to read. In that case, the root existed before.
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
                done => done.map_err(|e| FsStoreError::io(FileOperation::SetUp, above, e))?,
            }
        }
        self.disk.sync_dir(root).map_err(|e| FsStoreError::io(FileOperation::SetUp, root, e))?;
        self.recover()?;
        self.ready.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that a lock excludes another open file of this process, because the safety of the store relies on locks. On file systems where locks
    /// belong to a process or have no effect, such as many network file systems, the second lock succeeds as well.
    fn check_locks(&self, path: &Path) -> Result<(), FsStoreError> {
        let open = || {
            self.disk.open(path, FileAccess::Read).map_err(|e| FsStoreError::io(FileOperation::Open, path, e))
        };
        let (first, second) = (Arc::new(open()?), Arc::new(open()?));
        let _lock = self.lock(&first, path, FileLockMode::Exclusive)?;
        match FileLock::try_now(second, path, FileLockMode::Exclusive)? {
            Some(_) => Err(FsStoreError::NoLocks { path: path.into() }),
            None => Ok(()),
        }
    }

    /// Sets up the root before the first write. Fails if a reader has seen the root set up and the root is now gone.
    pub(crate) fn ready_to_write(&self) -> Result<(), FsStoreError> {
        if !self.ready.load(Ordering::Relaxed) {
            self.check_still_there(Ok(()))?;
            self.set_up()?;
        }
        self.recover()
    }

    /// Checks the marker before the first read. Writes nothing except data restored after a crash, because a reader may lack the permission to
    /// write.
    pub(crate) fn ready_to_read(&self) -> Result<(), FsStoreError> {
        if !self.marked.load(Ordering::Relaxed) && self.has_marker(&self.layout.marker())? {
            self.marked.store(true, Ordering::Relaxed);
        }
        self.recover()
    }

    /// Returns whether the root was set up.
    pub(crate) fn has_marker(&self, path: &Path) -> Result<bool, FsStoreError> {
        if self.stat(path)?.is_none() {
            return Ok(false);
        }
        let file = self
            .disk
            .open(path, FileAccess::Read)
            .map_err(|e| FsStoreError::io(FileOperation::Open, path, e))?;
        self.read_marker(&file, path)
    }

    fn write_marker(&self, path: &Path) -> Result<(), FsStoreError> {
        let failed = |e| FsStoreError::io(FileOperation::SetUp, path, e);
        let file = Arc::new(self.disk.open(path, FileAccess::Create).map_err(failed)?);
        let _lock = self.lock(&file, path, FileLockMode::Exclusive)?;
        if self.read_marker(&file, path)? {
            return Ok(());
        }
        self.disk.set_len(&file, 0).map_err(failed)?;
        self.disk.write_at(&file, &marker(), 0).map_err(failed)?;
        self.disk.sync(&file).map_err(failed)
    }

    /// Reads the marker. Returns `false` if it is incomplete.
    fn read_marker(&self, file: &std::fs::File, path: &Path) -> Result<bool, FsStoreError> {
        let mut bytes = vec![0; MARKER];
        let read = self
            .disk
            .read_at(file, &mut bytes, 0)
            .map_err(|e| FsStoreError::io(FileOperation::Read, path, e))?;
        bytes.truncate(read);
        if bytes.is_empty() || (bytes.last() != Some(&b'\n') && read < MARKER) {
            return Ok(false);
        }
        let marker: FoundMarker =
            serde_json::from_slice(&bytes).map_err(|e| FsStoreError::damaged(path, 0, e.to_string()))?;
        match (marker.version, marker.layout) {
            (Some(VERSION), _) => Ok(true),
            (Some(found), _) if found > VERSION => {
                Err(FsStoreError::NewerLayout { path: path.into(), found, known: VERSION })
            }
            (None, Some(_)) => Err(FsStoreError::Unreleased { path: path.into() }),
            _ => Err(FsStoreError::damaged(path, 0, "the file has no layout version")),
        }
    }
}

fn marker() -> Vec<u8> {
    let marker = RootMarker { version: VERSION };
    let mut bytes = serde_json::to_vec(&marker).expect("a number has JSON, and memory takes every write");
    bytes.push(b'\n');
    bytes
}
