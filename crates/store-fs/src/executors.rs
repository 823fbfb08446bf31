//! Heartbeats. Each executor has a file with its expiry time, which its process keeps locked until the process ends.
//!
//! A file has two lines of 64 bytes, padded with spaces. One write replaces both, and no write is synced:
//!
//! ```text
//! {"expires_ms":1763700010000,"sum":"3f69f22a"}                  <newline>
//! {"until_ms":86415000,"sum":"…"}                                <newline>
//! ```
//!
//! `until_ms` is the expiry in milliseconds since the machine was started (`CLOCK_MONOTONIC`); `expires_ms` is the same by the wall clock.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_store::{ExecutorId, Timestamp};
use serde::Deserialize;

use crate::disk::{FileAccess, FileIdent};
use crate::error::{FileOperation, FsStoreError};
use crate::fd_limits::with_room;
use crate::inner::{FsInner, MOVES};
use crate::line::{check_sum, write_sum};
use crate::lock::{FileLock, FileLockMode};

/// The heartbeat files of this process's executors. A lock means that the process is alive, so it belongs to the process and not to the store
/// instance that took it.
static HELD: LazyLock<Mutex<HashMap<PathBuf, Arc<File>>>> = LazyLock::new(Mutex::default);

/// The length of each line. Every file has two lines, so one write replaces the whole content.
const LINE: usize = 64;
const LENGTH: usize = 2 * LINE;

/// The maximum number of reads of a heartbeat that is being written.
const READS: usize = 10;

/// How long to try to lock the executor's own file. Other processes lock it briefly when they check the executor.
const OWN_LOCK: Duration = Duration::from_millis(20);

/// How long an expired file remains, and how many files are checked when an executor starts. Old files have no meaning and cost little, so the
/// store removes them slowly.
const KEEP_EXPIRED: Duration = Duration::from_secs(24 * 60 * 60);
const SWEEP: usize = 256;

/// The first line: the expiry by the wall clock. It shows how old the file of an ended executor is.
#[derive(Deserialize)]
struct HeartbeatLine {
    expires_ms: i64,
}

/// The second line: the expiry by the time since the machine's start. Changes of the wall clock do not affect it.
#[derive(Deserialize)]
struct ExpiryLine {
    until_ms: u64,
}

/// The expiry of a heartbeat.
struct HeartbeatExpiry {
    at: Timestamp,
    until: Duration,
}

impl FsInner {
    /// Records that the executor is alive for `ttl` from now.
    pub(crate) fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<(), FsStoreError> {
        let path = self.layout.executor(executor);
        if ttl.is_zero() {
            lock_files().remove(&path);
            self.remove(&path)?;
            return Ok(());
        }
        let line = lines(self.clock.now().plus(ttl), self.clock.monotonic().saturating_add(ttl));
        // The process already has the file, unless the file was removed.
        let known = lock_files().get(&path).cloned();
        if let Some(file) = known
            && self.is_named(&file, &path)?
        {
            return self
                .disk
                .write_at(&file, &line, 0)
                .map_err(|e| FsStoreError::io(FileOperation::Write, &path, e));
        }
        self.sweep();
        for _ in 0..MOVES {
            let file = self
                .disk
                .open(&path, FileAccess::Create)
                .map_err(|e| FsStoreError::io(FileOperation::Open, &path, e))?;
            let file = Arc::new(file);
            // Only this process, through another path, can lock the file for longer than a check takes. So the executor is alive.
            let lock = match FileLock::wait(Arc::clone(&file), &path, FileLockMode::Exclusive, OWN_LOCK) {
                Ok(lock) => Some(lock),
                Err(FsStoreError::Locked { .. }) => None,
                Err(fault) => return Err(fault),
            };
            // Never synced: no executor survives a crash of the machine, and their ids are never used again.
            self.disk
                .write_at(&file, &line, 0)
                .map_err(|e| FsStoreError::io(FileOperation::Write, &path, e))?;
            if self.is_named(&file, &path)? {
                if let Some(lock) = lock {
                    lock.into_permanent();
                    lock_files().insert(path, file);
                }
                return Ok(());
            }
        }
        Err(FsStoreError::Restless { path })
    }

    /// Returns whether the executor's process is alive and its heartbeat has not expired.
    ///
    /// An executor is certainly dead only if its file is missing or not locked. A stopped process with an expired heartbeat also counts as dead.
    /// The expiry is compared with the time since the machine's start, never with a wall clock. An unreadable file under a lock counts as alive,
    /// because its owner has the lock.
    ///
    /// # Errors
    ///
    /// Fails if no more files can be opened: that says nothing about the executor.
    pub(crate) fn is_alive(&self, executor: &ExecutorId) -> Result<bool, FsStoreError> {
        let path = self.layout.executor(executor);
        let alive = || -> Result<bool, FsStoreError> {
            let file = Arc::new(
                self.disk
                    .open(&path, FileAccess::Read)
                    .map_err(|e| FsStoreError::io(FileOperation::Open, &path, e))?,
            );
            // Checks use a shared lock, so that only the executor excludes them.
            if FileLock::try_now(Arc::clone(&file), &path, FileLockMode::Shared)?.is_some() {
                return Ok(false);
            }
            Ok(self.expiry(&file, &path)?.is_none_or(|expiry| self.clock.monotonic() < expiry.until))
        };
        let alive = alive().or_else(|fault| match fault.is_absence() {
            true => self.check_executors().map(|()| false),
            false => Err(fault),
        });
        match alive {
            Err(fault) if !fault.is_exhaustion() => {
                tracing::warn!(path = %path.display(), error = %fault, "cannot read the heartbeat file of a process; treating the process as alive");
                Ok(true)
            }
            known => known,
        }
    }

    fn expiry(&self, file: &File, path: &Path) -> Result<Option<HeartbeatExpiry>, FsStoreError> {
        for _ in 0..READS {
            let mut bytes = [0; LENGTH];
            let read = self
                .disk
                .read_at(file, &mut bytes, 0)
                .map_err(|e| FsStoreError::io(FileOperation::Read, path, e))?;
            let (first, second) = bytes[..read].split_at(read.min(LINE));
            if let (Some(HeartbeatLine { expires_ms }), Some(ExpiryLine { until_ms })) =
                (parse(first), parse(second))
            {
                let (at, until) = (Timestamp::from_unix_ms(expires_ms), Duration::from_millis(until_ms));
                return Ok(Some(HeartbeatExpiry { at, until }));
            }
        }
        Ok(None)
    }

    /// Removes a few files of executors that ended long ago. The next call retries files that could not be removed.
    fn sweep(&self) {
        let Ok(entries) = with_room(&self.slots, || fs::read_dir(self.layout.executors())) else {
            return;
        };
        for entry in entries.flatten().take(SWEEP) {
            let Some(executor) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if let Err(fault) = self.remove_expired(&executor) {
                tracing::debug!(error = %fault, "could not remove the heartbeat file of a process");
            }
        }
    }

    fn remove_expired(&self, executor: &ExecutorId) -> Result<(), FsStoreError> {
        let path = self.layout.executor(executor);
        let file = Arc::new(
            self.disk
                .open(&path, FileAccess::Read)
                .map_err(|e| FsStoreError::io(FileOperation::Open, &path, e))?,
        );
        let Some(_lock) = FileLock::try_now(Arc::clone(&file), &path, FileLockMode::Exclusive)? else {
            return Ok(());
        };
        let expired = self.expiry(&file, &path)?.map(|expiry| expiry.at).unwrap_or_default();
        if self.clock.now().since(expired) > KEEP_EXPIRED && self.is_named(&file, &path)? {
            self.remove(&path)?;
        }
        Ok(())
    }

    fn is_named(&self, file: &File, path: &Path) -> Result<bool, FsStoreError> {
        let own = file.metadata().map_err(|e| FsStoreError::io(FileOperation::Open, path, e))?;
        Ok(self.stat(path)?.map(|named| FileIdent::of(&named)) == Some(FileIdent::of(&own)))
    }
}

fn lock_files() -> MutexGuard<'static, HashMap<PathBuf, Arc<File>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the content of the file. Its length is the same for all times, so one write replaces it.
fn lines(expires: Timestamp, until: Duration) -> Vec<u8> {
    let until_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
    let mut lines = line(format!("{{\"expires_ms\":{}", expires.unix_ms()));
    lines.extend(line(format!("{{\"until_ms\":{until_ms}")));
    lines
}

fn line(text: String) -> Vec<u8> {
    let mut line = text.into_bytes();
    write_sum(&mut line, 0);
    line.pop();
    line.resize(LINE - 1, b' ');
    line.push(b'\n');
    line
}

fn parse<T: for<'de> Deserialize<'de>>(line: &[u8]) -> Option<T> {
    let inside = check_sum(line.trim_ascii_end()).ok()?;
    serde_json::from_slice(&[inside, b"}"].concat()).ok()
}
