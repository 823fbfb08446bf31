//! Limits the number of open files, for processes with a low limit. It bounds the number of concurrent calls, so that each call has enough
//! descriptors. If other code of the process uses up the descriptors, the store closes files that are open only as a cache, and retries.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::disk::{Disk, FileAccess, FileIdent};
use crate::slots::RunSlots;

/// The pause before the second attempt, and the longest pause. They are similar to the time in which a caller writes to a file and closes it.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The total time of the attempts. It is limited because a waiting call may keep files open that another waiting call needs.
const PATIENCE: Duration = Duration::from_secs(2);

/// The number of files that remain for other code of the process if the limit is low.
const OTHERS: u64 = 20;

/// The maximum number of files that one call has open. A listing has the most: two folders and a log.
const EACH: usize = 3;

/// The maximum number of concurrent calls, and the part of all files (one eighth) that bounds this number.
const CALLS: usize = 128;
const PART: usize = 8;

/// The maximum number of concurrent calls and of cached logs. The journal may keep as many logs open again.
pub(crate) struct FdLimits {
    pub(crate) calls: usize,
    pub(crate) logs: usize,
}

pub(crate) fn fd_limits() -> FdLimits {
    let most = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |limit| limit.saturating_sub(OTHERS));
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let calls = (most / PART).clamp(1, CALLS);
    FdLimits { calls, logs: (most.saturating_sub(calls * EACH) / 2).max(1) }
}

/// The permits of concurrent calls. With them, a call that needs a second file never waits for other calls that also do.
#[derive(Debug)]
pub(crate) struct CallPermits {
    most: usize,
    free: Mutex<usize>,
    changed: Condvar,
}

/// One permit or several permits. Dropping it returns them.
pub(crate) struct CallPermit<'t>(&'t CallPermits, usize);

impl CallPermits {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, free: Mutex::new(most), changed: Condvar::new() }
    }

    pub(crate) fn max(&self) -> usize {
        self.most
    }

    /// Waits for one permit.
    pub(crate) fn acquire(&self) -> CallPermit<'_> {
        self.take_some(1)
    }

    /// Waits until `number` permits are free, and takes them together. `number` must be at most the total.
    pub(crate) fn take_some(&self, number: usize) -> CallPermit<'_> {
        // A panic leaves the count valid.
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(free, |free| *free < number);
        *waited.unwrap_or_else(PoisonError::into_inner) -= number;
        CallPermit(self, number)
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += self.1;
        // The waiting callers need different numbers of permits, so wake all of them.
        self.0.changed.notify_all();
    }
}

/// Returns whether this process, or the machine, has too many open files: ENFILE and EMFILE have the same numbers on every Unix.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

/// Opens a file. If the process has too many open files, closes cached logs that no caller uses, and retries.
pub(crate) fn with_room<T>(slots: &RunSlots, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let (mut waited, mut pause) = (Duration::ZERO, FIRST_PAUSE);
    loop {
        match open() {
            Err(error) if is_exhaustion(&error) && waited < PATIENCE => {
                slots.close();
                std::thread::park_timeout(pause);
                waited += pause;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// A disk that closes cached logs if it has too many open files.
#[derive(Debug)]
pub(crate) struct FdLimitedDisk {
    pub(crate) inner: Arc<dyn Disk>,
    pub(crate) slots: Arc<RunSlots>,
}

impl Disk for FdLimitedDisk {
    fn open(&self, path: &Path, access: FileAccess) -> io::Result<File> {
        with_room(&self.slots, || self.inner.open(path, access))
    }

    fn stat(&self, path: &Path) -> io::Result<Metadata> {
        self.inner.stat(path)
    }

    fn ident(&self, path: &Path) -> io::Result<FileIdent> {
        self.inner.ident(path)
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.inner.read_at(file, buffer, at)
    }

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        self.inner.write_at(file, bytes, at)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        self.inner.set_len(file, len)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.inner.sync(file)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        with_room(&self.slots, || self.inner.sync_dir(path))
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.make_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }
}
