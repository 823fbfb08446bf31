//! Exclusive and shared locks on open files, with a timeout, released on drop.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{FileOperation, FsStoreError};

/// The pause before the second attempt: the typical time that an append has the lock.
const FIRST_PAUSE: Duration = Duration::from_micros(100);

/// The longest pause between attempts: it limits the delay of a waiter and the load of a long wait.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLockMode {
    /// No other holder may write or read under a lock.
    Exclusive,
    /// Others may read, too.
    Shared,
}

/// A lock on a file, among processes and among the open files of this one, until it is dropped.
#[derive(Debug)]
pub(crate) struct FileLock(Option<Arc<File>>);

impl FileLock {
    /// Waits for the lock for as long as `patience` says.
    ///
    /// The system's own waiting has no end, and one stopped process would keep a thread here for ever. So this tries and
    /// pauses in turn, and counts the pauses. It runs on threads made for blocking, and runs are seldom contended.
    pub(crate) fn wait(
        file: Arc<File>,
        path: &Path,
        mode: FileLockMode,
        patience: Duration,
    ) -> Result<Self, FsStoreError> {
        let (mut waited, mut pause) = (Duration::ZERO, FIRST_PAUSE);
        while !try_lock(&file, path, mode)? {
            if waited >= patience {
                return Err(FsStoreError::Locked { path: path.into(), waited });
            }
            std::thread::park_timeout(pause);
            waited += pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(Self(Some(file)))
    }

    /// Takes the lock if no holder has one that excludes it.
    pub(crate) fn try_now(
        file: Arc<File>,
        path: &Path,
        mode: FileLockMode,
    ) -> Result<Option<Self>, FsStoreError> {
        Ok(try_lock(&file, path, mode)?.then(|| Self(Some(file))))
    }

    /// Keeps the lock for as long as the file is open.
    pub(crate) fn into_permanent(mut self) {
        self.0 = None;
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // It fails only for what is no open file; and the lock ends with the file in any case.
            let _unlocked = file.unlock();
        }
    }
}

fn try_lock(file: &File, path: &Path, mode: FileLockMode) -> Result<bool, FsStoreError> {
    loop {
        let tried = match mode {
            FileLockMode::Exclusive => file.try_lock(),
            FileLockMode::Shared => file.try_lock_shared(),
        };
        match tried {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => {
                return Err(FsStoreError::io(FileOperation::Lock, path, error));
            }
        }
    }
}
