//! The state that all operations on one store's folder share. Also opens logs for reading and writing.

use std::collections::HashSet;
use std::fs::Metadata;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_store::{Clock, RunKey, TenantId};

use crate::config::FsOptions;
use crate::disk::{Disk, FileAccess, FileIdent};
use crate::error::{FileOperation, FsStoreError};
use crate::fd_limits::{self, CallPermits, FdLimitedDisk};
use crate::journal::{Journal, JournalLimits};
use crate::layout::FsLayout;
use crate::listed::{ListedLogs, SETTLED};
use crate::lock::{FileLock, FileLockMode};
use crate::log::CachedLog;
use crate::slots::{RunSlot, RunSlots};

/// The maximum number of attempts to open a file that is replaced at the same time. For each attempt, another caller must have pruned, purged or
/// recreated the run.
pub(crate) const MOVES: usize = 100;

/// The maximum number of tenants whose folders are known to have a durable name. A tenant outside this cache costs a sync at its next new run.
const NAMED_TENANTS: usize = 4_096;

/// The folder of a store. Its methods block. Each method is in the file named after its operation.
#[derive(Debug)]
pub(crate) struct FsInner {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) layout: FsLayout,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: FsOptions,
    pub(crate) slots: Arc<RunSlots>,
    pub(crate) turns: CallPermits,
    /// Whether this instance has read a marker with a layout that this version supports.
    pub(crate) marked: AtomicBool,
    /// Whether this instance has set up the folder. The marker alone does not prove it: its writer may have died before the other parts were
    /// durable.
    pub(crate) ready: AtomicBool,
    /// Whether this instance has searched the journals for records that logs lost in a crash of the machine.
    pub(crate) recovered: AtomicBool,
    pub(crate) journal: Journal,
    pub(crate) listed: ListedLogs,
    suspects: Mutex<HashSet<RunKey>>,
    withheld: Mutex<HashSet<RunKey>>,
    tenants: Mutex<NamedTenants>,
}

/// Tenants whose folders have durable names in a folder of runs.
#[derive(Debug, Default)]
struct NamedTenants {
    runs: Option<FileIdent>,
    tenants: HashSet<TenantId>,
}

/// A log locked for writing, without a torn end.
#[derive(Debug)]
pub(crate) struct LockedLog {
    pub(crate) log: CachedLog,
    /// Whether other writers may have written the end of the log and died before they synced it.
    pub(crate) is_others: bool,
    pub(crate) lock: FileLock,
}

impl FsInner {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        layout: FsLayout,
        clock: Arc<dyn Clock>,
        options: FsOptions,
        limits: JournalLimits,
    ) -> Self {
        let room = fd_limits::fd_limits();
        let logs =
            NonZeroUsize::new(room.logs).map_or(NonZeroUsize::MIN, |logs| options.open_files.min(logs));
        let slots = Arc::new(RunSlots::new(logs));
        Self {
            disk: Arc::new(FdLimitedDisk { inner: disk, slots: Arc::clone(&slots) }),
            layout,
            clock,
            slots,
            turns: CallPermits::new(room.calls),
            options,
            marked: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            recovered: AtomicBool::new(false),
            journal: Journal::new(limits, logs.get()),
            listed: ListedLogs::new(SETTLED),
            suspects: Mutex::default(),
            withheld: Mutex::default(),
            tenants: Mutex::default(),
        }
    }

    /// Opens and locks the run's log, and cuts off the remains of a write that crashed. Returns `None` if the run does not exist.
    ///
    /// The caller must hold the turn of the slot. `patience` limits the wait for the file's lock.
    pub(crate) fn writer(
        &self,
        slot: &RunSlot,
        run: &RunKey,
        patience: Duration,
    ) -> Result<Option<LockedLog>, FsStoreError> {
        self.check_recovered(run)?;
        let path = self.layout.log(run);
        for _ in 0..MOVES {
            let known = slot.cached_log();
            let file = match &known {
                Some(log) => Arc::clone(&log.file),
                None => match self.disk.open(&path, FileAccess::Write) {
                    Ok(file) => Arc::new(file),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => match self.is_absent(run)? {
                        true => return Ok(None),
                        false => continue,
                    },
                    Err(error) => return Err(FsStoreError::io(FileOperation::Open, &path, error)),
                },
            };
            let lock = FileLock::wait(Arc::clone(&file), &path, FileLockMode::Exclusive, patience)?;
            // Compare the file's name only now: from here on, no other caller removes or replaces the file.
            let ident = match &known {
                Some(log) => log.ident,
                None => FileIdent::of(
                    &file.metadata().map_err(|e| FsStoreError::io(FileOperation::Open, &path, e))?,
                ),
            };
            let metadata = match self.stat(&path)? {
                Some(metadata) if FileIdent::of(&metadata) == ident => metadata,
                _ => {
                    slot.drop_cached_log();
                    continue;
                }
            };
            let is_others = !known.as_ref().is_some_and(|log| log.is_as(&metadata));
            let log = match known {
                Some(log) if !is_others => Arc::unwrap_or_clone(log),
                known => {
                    slot.drop_cached_log();
                    let mut log = CachedLog::read(&*self.disk, file, &path, run, &metadata)?;
                    log.named = known.is_some_and(|log| log.named);
                    self.cut_torn_end(&log, &path, &metadata)?;
                    log
                }
            };
            if self.suspect_runs().contains(run) {
                // The copy has the log's name, and no caller has a lock on it yet.
                slot.cache_log(self.replace_suspect(slot, &log)?);
                continue;
            }
            return Ok(Some(LockedLog { log, is_others, lock }));
        }
        Err(FsStoreError::Restless { path })
    }

    fn cut_torn_end(&self, log: &CachedLog, path: &Path, metadata: &Metadata) -> Result<(), FsStoreError> {
        let torn = metadata.len() - log.tail.end;
        if torn == 0 {
            return Ok(());
        }
        tracing::warn!(
            path = %path.display(), bytes = torn, at = log.tail.end,
            "removed a partial write that was never acknowledged"
        );
        self.disk
            .set_len(&log.file, log.tail.end)
            .map_err(|e| FsStoreError::io(FileOperation::Cut, path, e))?;
        // Otherwise a crash could restore a part of the removed end after the next write.
        self.disk.sync(&log.file).map_err(|e| FsStoreError::io(FileOperation::Sync, path, e))
    }

    /// Passes the run's log to `read` without locking it. Returns `None` if the run does not exist.
    ///
    /// If a writer cuts off a torn end and writes again at the same time, a reader may see a mix of both. So a read that finds damage runs again
    /// under the lock.
    pub(crate) fn read_log<T>(
        &self,
        run: &RunKey,
        read: impl Fn(&CachedLog, &Path) -> Result<T, FsStoreError>,
    ) -> Result<Option<T>, FsStoreError> {
        self.check_recovered(run)?;
        for _ in 0..MOVES {
            match self.try_read_log(run, &read)? {
                None if self.is_absent(run)? => return Ok(None),
                None => {}
                seen => return Ok(seen),
            }
        }
        Err(FsStoreError::Restless { path: self.layout.log(run) })
    }

    fn try_read_log<T>(
        &self,
        run: &RunKey,
        read: impl Fn(&CachedLog, &Path) -> Result<T, FsStoreError>,
    ) -> Result<Option<T>, FsStoreError> {
        let path = self.layout.log(run);
        let Some(metadata) = self.stat(&path)? else {
            return Ok(None);
        };
        let known = self.slots.cached_log(run).filter(|log| log.is_as(&metadata));
        let seen = match known {
            Some(log) => read(&log, &path).map(Some),
            None => self.read_log_at(run, &path, &metadata, None, &read),
        };
        let Err(FsStoreError::Damaged { .. }) = seen else {
            return seen;
        };
        for _ in 0..MOVES {
            let Some(metadata) = self.stat(&path)? else {
                return Ok(None);
            };
            match self.read_log_at(run, &path, &metadata, Some(FileLockMode::Shared), &read) {
                Err(FsStoreError::Restless { .. }) => {}
                seen => return seen,
            }
        }
        Err(FsStoreError::Restless { path })
    }

    fn read_log_at<T>(
        &self,
        run: &RunKey,
        path: &Path,
        metadata: &Metadata,
        mode: Option<FileLockMode>,
        read: impl Fn(&CachedLog, &Path) -> Result<T, FsStoreError>,
    ) -> Result<Option<T>, FsStoreError> {
        if metadata.is_dir() {
            return Err(FsStoreError::io(FileOperation::Read, path, io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            // Do not open anything else: opening a pipe would wait for its writer.
            return Err(FsStoreError::damaged(path, 0, "the path is not a file"));
        }
        let file = match self.disk.open(path, FileAccess::Read) {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FsStoreError::io(FileOperation::Open, path, error)),
        };
        let _lock = mode.map(|mode| self.lock(&file, path, mode)).transpose()?;
        let metadata = file.metadata().map_err(|e| FsStoreError::io(FileOperation::Open, path, e))?;
        if mode.is_some()
            && self.stat(path)?.map(|named| FileIdent::of(&named)) != Some(FileIdent::of(&metadata))
        {
            return Err(FsStoreError::Restless { path: path.into() });
        }
        let log = CachedLog::read(&*self.disk, file, path, run, &metadata)?;
        read(&log, path).map(Some)
    }

    /// Makes the name of the run's log durable.
    pub(crate) fn sync_name(&self, run: &RunKey) -> io::Result<()> {
        self.disk.sync_dir(&self.layout.tenant(&run.tenant))?;
        let runs = self.disk.ident(self.layout.runs())?;
        if self.has_named(&run.tenant, runs) {
            return Ok(());
        }
        self.disk.sync_dir(self.layout.runs())?;
        let mut named = self.tenants();
        if named.runs != Some(runs) || named.tenants.len() >= NAMED_TENANTS {
            *named = NamedTenants { runs: Some(runs), tenants: HashSet::new() };
        }
        named.tenants.insert(run.tenant.clone());
        Ok(())
    }

    pub(crate) fn lock(
        &self,
        file: &Arc<std::fs::File>,
        path: &Path,
        mode: FileLockMode,
    ) -> Result<FileLock, FsStoreError> {
        FileLock::wait(Arc::clone(file), path, mode, self.options.lock_wait)
    }

    pub(crate) fn stat(&self, path: &Path) -> Result<Option<Metadata>, FsStoreError> {
        match self.disk.stat(path) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FsStoreError::io(FileOperation::Open, path, error)),
        }
    }

    /// Removes a file. Returns whether the file existed.
    pub(crate) fn remove(&self, path: &Path) -> Result<bool, FsStoreError> {
        match self.disk.remove(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(FsStoreError::io(FileOperation::Remove, path, error)),
        }
    }

    /// Returns the suspect runs: a sync of their log failed, so the durable part of the log is unknown.
    ///
    /// After a failed sync the system may count the lost pages as written, and the next sync returns `Ok`. So a writer copies the log of a suspect
    /// run to a new file before it acknowledges any record in it. A reader gets the log unchanged, as it does during every sync.
    pub(crate) fn suspect_runs(&self) -> MutexGuard<'_, HashSet<RunKey>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the runs with a failed recovery. A journal may have records that the log of such a run lacks.
    pub(crate) fn withheld_runs(&self) -> MutexGuard<'_, HashSet<RunKey>> {
        self.withheld.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this instance has created a run of the tenant in this folder of runs. If so, the tenant's folder must exist.
    pub(crate) fn has_named(&self, tenant: &TenantId, runs: FileIdent) -> bool {
        let named = self.tenants();
        named.runs == Some(runs) && named.tenants.contains(tenant)
    }

    fn tenants(&self) -> MutexGuard<'_, NamedTenants> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FsInner {
    fn drop(&mut self) {
        self.journal.remove_journal(self);
    }
}
