//! Exclusive and shared locks on open files, with a timeout, released on drop.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{FileOperation, FsStoreError};

/// The pause before the second attempt. An append typically has the lock for about this time.
const FIRST_PAUSE: Duration = Duration::from_micros(100);

/// The longest pause between attempts. It limits both the delay of a waiter and the cost of a long wait.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLockMode {
    /// No other caller may write, or read under a lock.
    Exclusive,
    /// Other callers may have a shared lock, too.
    Shared,
}

/// A lock on a file, which also excludes other processes and other open files of this process. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct FileLock(Option<Arc<File>>);

impl FileLock {
    /// Waits for the lock for at most `patience`.
    ///
    /// The system's own call waits without a limit, so one stopped process would block a thread forever. So this function tries, pauses, and counts
    /// the pauses. It runs on threads that may block, and callers seldom wait for each other.
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

    /// Takes the lock if no other holder has a lock that excludes it.
    pub(crate) fn try_now(
        file: Arc<File>,
        path: &Path,
        mode: FileLockMode,
    ) -> Result<Option<Self>, FsStoreError> {
        Ok(try_lock(&file, path, mode)?.then(|| Self(Some(file))))
    }

    /// Holds the lock for as long as the file is open.
    pub(crate) fn into_permanent(mut self) {
        self.0 = None;
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // Unlocking fails only for a file that is not open, and closing the file ends the lock anyway.
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
