//! Making the root ready: its directories, and the marker that says which layout it has.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use crate::disk::Access;
use crate::error::{Doing, StoreError};
use crate::inner::Inner;
use crate::layout::{JOURNALED, PLAIN};
use crate::lock::{Locked, Mode};

/// Longer than any marker, so that a wrong file of any length is read no further.
const MARKER: usize = 4_096;

#[derive(Serialize, Deserialize)]
struct Marker {
    layout: u64,
}

impl Inner {
    /// Makes what is missing of the root. Any number of processes may do so at once, and where nothing is missing, one
    /// without the right to write as well.
    ///
    /// The marker is written last. So a root that has a marker and no folder of runs has lost it, and an empty one in its place would start every
    /// run a second time.
    pub(crate) fn set_up(&self) -> Result<(), StoreError> {
        let root = self.layout.root();
        if self.find_marker(&self.layout.marker())?.is_some() {
            self.must_exist(self.layout.runs())?;
        }
        for path in [root, self.layout.runs(), self.layout.executors()] {
            if !self.stat(path)?.is_some_and(|metadata| metadata.is_dir()) {
                self.disk.make_dir(path).map_err(|e| StoreError::io(Doing::SetUp, path, e))?;
            }
        }
        let path = self.layout.marker();
        if self.find_marker(&path)?.is_none() {
            self.write_marker(&path)?;
        }
        self.check_locks(&path)?;
        if self.stat(&self.layout.marker_in_capitals())?.is_some() {
            // Two runs whose ids differ in nothing else would share a file.
            return Err(StoreError::FoldsCase { path });
        }
        if let Some(above) = root.parent() {
            match self.disk.sync_dir(above) {
                // The root's own name is in a directory that may not be ours to read, and was there before in that case.
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
                done => done.map_err(|e| StoreError::io(Doing::SetUp, above, e))?,
            }
        }
        self.disk.sync_dir(root).map_err(|e| StoreError::io(Doing::SetUp, root, e))?;
        self.recover()?;
        self.ready.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that a lock excludes another open file, as everything here rests on it. Where locks belong to a process or
    /// mean nothing, as on many network file systems, the second is granted as well.
    fn check_locks(&self, path: &Path) -> Result<(), StoreError> {
        let open = || self.disk.open(path, Access::Read).map_err(|e| StoreError::io(Doing::Open, path, e));
        let (first, second) = (Arc::new(open()?), Arc::new(open()?));
        let _lock = self.lock(&first, path, Mode::Exclusive)?;
        match Locked::try_now(second, path, Mode::Exclusive)? {
            Some(_) => Err(StoreError::NoLocks { path: path.into() }),
            None => Ok(()),
        }
    }

    /// Makes the root ready before the first write, unless a reader has found it set up and it is gone.
    pub(crate) fn ready_to_write(&self) -> Result<(), StoreError> {
        if !self.ready.load(Ordering::Relaxed) {
            self.still_there(Ok(()))?;
            self.set_up()?;
        }
        self.recover()
    }

    /// Looks at the marker before the first read, and writes nothing but what a crash took, as a reader may have no right to.
    pub(crate) fn ready_to_read(&self) -> Result<(), StoreError> {
        if !self.marked.load(Ordering::Relaxed) && self.find_marker(&self.layout.marker())?.is_some() {
            self.marked.store(true, Ordering::Relaxed);
        }
        self.recover()
    }

    pub(crate) fn find_marker(&self, path: &Path) -> Result<Option<u64>, StoreError> {
        if self.stat(path)?.is_none() {
            return Ok(None);
        }
        let file = self.disk.open(path, Access::Read).map_err(|e| StoreError::io(Doing::Open, path, e))?;
        self.read_marker(&file, path)
    }

    fn write_marker(&self, path: &Path) -> Result<(), StoreError> {
        let failed = |e| StoreError::io(Doing::SetUp, path, e);
        let file = Arc::new(self.disk.open(path, Access::Create).map_err(failed)?);
        let _lock = self.lock(&file, path, Mode::Exclusive)?;
        if self.read_marker(&file, path)?.is_some() {
            return Ok(());
        }
        self.disk.set_len(&file, 0).map_err(failed)?;
        self.disk.write_at(&file, &marker(PLAIN), 0).map_err(failed)?;
        self.disk.sync(&file).map_err(failed)
    }

    /// Says in the marker that there may be journals.
    pub(crate) fn raise_layout(&self) -> Result<(), StoreError> {
        let path = &self.layout.marker();
        let failed = |e| StoreError::io(Doing::SetUp, path, e);
        let file = Arc::new(self.disk.open(path, Access::Write).map_err(failed)?);
        let _lock = self.lock(&file, path, Mode::Exclusive)?;
        if self.read_marker(&file, path)? != Some(JOURNALED) {
            // As long as the one that stands there, and within a sector: a crash leaves either.
            self.disk.write_at(&file, &marker(JOURNALED), 0).map_err(failed)?;
        }
        // Also if it stands there: its writer may have died before it was safe.
        self.disk.sync(&file).map_err(failed)
    }

    /// Reads the layout; `None` if the marker has not been written to its end.
    fn read_marker(&self, file: &std::fs::File, path: &Path) -> Result<Option<u64>, StoreError> {
        let mut bytes = vec![0; MARKER];
        let read =
            self.disk.read_at(file, &mut bytes, 0).map_err(|e| StoreError::io(Doing::Read, path, e))?;
        bytes.truncate(read);
        if bytes.is_empty() || (bytes.last() != Some(&b'\n') && read < MARKER) {
            return Ok(None);
        }
        let marker: Marker =
            serde_json::from_slice(&bytes).map_err(|e| StoreError::damaged(path, 0, e.to_string()))?;
        if marker.layout > JOURNALED {
            return Err(StoreError::NewerLayout {
                path: path.into(),
                found: marker.layout,
                known: JOURNALED,
            });
        }
        Ok(Some(marker.layout))
    }
}

fn marker(layout: u64) -> Vec<u8> {
    let mut bytes =
        serde_json::to_vec(&Marker { layout }).expect("a number has JSON, and memory takes every write");
    bytes.push(b'\n');
    bytes
}
