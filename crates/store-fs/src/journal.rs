//! The journal of a store instance: a second, sequential copy of the bytes that the instance appends to logs. One sync of the journal makes many
//! appends durable. The journal is filled with zeros in advance, so that an append never extends the file.
//!
//! Readers never use the journal, because the logs have all data unless the machine crashes. After a crash, the next process that opens the folder
//! restores the lost data ([`recover`](crate::recover)). When the journal is full, the store syncs the logs, and the journal starts again from its
//! beginning. Each such round is a *lap*.

mod format;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_store::{IdSource, RandomIds, RunKey};

use crate::disk::{FileAccess, FileIdent, sync_each};
use crate::error::{FileOperation, FsStoreError};
use crate::inner::FsInner;
use crate::lock::{FileLock, FileLockMode};

pub(crate) use format::{EntryAnchor, JOURNAL as VERSION, JournalContents, JournalEntry, read};
use format::{EntryGroup, JournalHeading, SECTOR};

/// The maximum age of an entry while the instance has an executor.
const OLDEST: Duration = Duration::from_secs(60);

/// The size limits of a journal and of the appends that go through it.
#[derive(Clone, Debug)]
pub(crate) struct JournalLimits {
    /// The step by which the journal grows. The new part is filled with zeros: a write over zeros takes two thirds of the time of a write at the
    /// end of the file.
    pub(crate) step: usize,
    /// The maximum size of the journal.
    pub(crate) most: usize,
    /// The maximum length of an append that goes through the journal. A longer append takes more time to write twice than to sync.
    pub(crate) longest: usize,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self { step: 256 << 10, most: 4 << 20, longest: 32 << 10 }
    }
}

/// The journal of an instance. The instance creates it only after several syncs of logs.
#[derive(Debug)]
pub(crate) struct Journal {
    limits: JournalLimits,
    /// The maximum number of logs in the journal that wait for their sync. Each of them stays open, because the system reports every failure only
    /// to a process that has the file open.
    logs: usize,
    /// The number of log syncs since the instance last had no journal.
    direct: AtomicUsize,
    state: Mutex<JournalState>,
    /// The lock of the caller that syncs the journal. A caller that needs both locks takes `state` first.
    syncing: Mutex<()>,
    /// The number of bytes ever written to the journal, including its first heading, and the number of those bytes that are durable, in the journal
    /// or in the logs.
    written: AtomicU64,
    synced: AtomicU64,
    /// True after a failed sync, when the journal's content is unknown. The journal then stays unchanged for the next process that opens the
    /// folder.
    broken: AtomicBool,
}

#[derive(Debug)]
enum JournalState {
    Unmade,
    Made(OpenJournal),
}

#[derive(Debug)]
struct OpenJournal {
    file: Arc<File>,
    path: PathBuf,
    ident: FileIdent,
    lap: u64,
    /// The offset of the next group, and the length of the part of the file that was ever written.
    at: usize,
    size: usize,
    /// The value of `written` at the beginning of the lap, minus the offset of that beginning in the file.
    origin: u64,
    /// The logs with appends since the lap began.
    logs: HashMap<RunKey, (FileIdent, Arc<File>)>,
    /// The runs with entries in the journal, and the time since which the journal may have entries.
    runs: HashSet<RunKey>,
    since: Duration,
    _lock: FileLock,
}

/// An append whose bytes are in its log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenAppend<'a> {
    pub(crate) entry: &'a JournalEntry<'a>,
    pub(crate) file: &'a Arc<File>,
    pub(crate) ident: FileIdent,
}

/// Returns the id of the machine's current boot, where the system reports it.
pub(crate) fn boot() -> Option<&'static str> {
    static BOOT: LazyLock<Option<String>> = LazyLock::new(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(id.trim().to_owned()).filter(|id| id.len() == 36 && id.is_ascii())
    });
    BOOT.as_deref()
}

impl Journal {
    pub(crate) fn new(limits: JournalLimits, logs: usize) -> Self {
        Self {
            limits,
            logs,
            direct: AtomicUsize::new(0),
            state: Mutex::new(JournalState::Unmade),
            syncing: Mutex::new(()),
            written: AtomicU64::new(SECTOR as u64),
            synced: AtomicU64::new(SECTOR as u64),
            broken: AtomicBool::new(false),
        }
    }

    /// Returns whether an append of `len` bytes may go through the journal.
    pub(crate) fn accepts(&self, len: usize) -> bool {
        len <= self.limits.longest
    }

    /// Makes written appends durable. Returns `false` if the journal has no room; the caller must then sync the logs.
    ///
    /// # Errors
    ///
    /// The error of the sync. The outcome of the appends is then unknown.
    pub(crate) fn write_durably(&self, folder: &FsInner, row: &[WrittenAppend<'_>]) -> io::Result<bool> {
        let mut group = EntryGroup::default();
        row.iter().for_each(|written| group.add(written.entry));
        let Some((file, end)) = self.write(folder, &group, row) else { return Ok(false) };
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.synced.load(Ordering::Acquire) >= end {
            return Ok(true);
        }
        if self.broken.load(Ordering::Acquire) {
            return Ok(false);
        }
        // The sync includes all writes of other callers up to now.
        let written = self.written.load(Ordering::Acquire);
        if let Err(error) = folder.disk.sync(&file) {
            self.broken.store(true, Ordering::Release);
            return Err(error);
        }
        self.synced.fetch_max(written, Ordering::AcqRel);
        Ok(true)
    }

    /// Writes a group of appends. Returns the file to sync, and the value of `written` that the sync must reach.
    fn write(
        &self,
        folder: &FsInner,
        group: &EntryGroup,
        row: &[WrittenAppend<'_>],
    ) -> Option<(Arc<File>, u64)> {
        let mut state = self.state();
        let made = self.make_room(&mut state, folder, group.room(), row)?;
        let safe = usize::try_from(self.synced.load(Ordering::Acquire).saturating_sub(made.origin));
        let bytes = group.placed(made.lap, made.at, safe.unwrap_or(SECTOR).max(SECTOR));
        if folder.disk.write_at(&made.file, &bytes, made.at as u64).is_err() {
            // A partial group has no effect, and the next group overwrites it.
            return None;
        }
        made.at += bytes.len();
        for written in row {
            made.logs.insert(written.entry.run.clone(), (written.ident, Arc::clone(written.file)));
            made.runs.insert(written.entry.run.clone());
        }
        let end = made.origin + made.at as u64;
        self.written.store(end, Ordering::Release);
        Some((Arc::clone(&made.file), end))
    }

    /// Makes room in the journal for a group of this size, and for the logs of its row.
    fn make_room<'s>(
        &self,
        state: &'s mut JournalState,
        folder: &FsInner,
        room: usize,
        row: &[WrittenAppend<'_>],
    ) -> Option<&'s mut OpenJournal> {
        if self.broken.load(Ordering::Acquire) || SECTOR + room > self.limits.most || row.len() > self.logs {
            return None;
        }
        // Another process may have removed the folder together with the journal.
        if let JournalState::Made(made) = state
            && folder.disk.ident(&made.path).ok() != Some(made.ident)
        {
            folder.require_recovery();
            self.sync_logs(made, folder)?;
            *state = JournalState::Unmade;
        }
        if let JournalState::Unmade = state {
            if self.direct.fetch_add(1, Ordering::Relaxed) < folder.options.journal_after {
                return None;
            }
            self.direct.store(0, Ordering::Relaxed);
            match OpenJournal::new(folder, self.written.load(Ordering::Acquire)) {
                Ok(made) => *state = JournalState::Made(made),
                Err(fault) => {
                    tracing::warn!(error = %fault, "cannot create a journal; syncing each log separately");
                    return None;
                }
            }
        }
        let JournalState::Made(made) = state else { return None };
        if made.at + room > made.size {
            // If the disk has no room, use the room that the journal has.
            let _grown = made.grow(folder, room, &self.limits);
        }
        let new = row.iter().filter(|written| !made.logs.contains_key(&written.entry.run)).count();
        if made.at + room > made.size || made.logs.len() + new > self.logs {
            self.start_lap(made, folder)?;
            let _grown = made.grow(folder, room, &self.limits);
        }
        (made.at + room <= made.size).then_some(made)
    }

    /// Syncs all logs with entries in the journal. Returns `None` if a sync fails: the journal then stays unchanged, and nothing writes to it again.
    fn sync_logs(&self, made: &mut OpenJournal, folder: &FsInner) -> Option<()> {
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let (runs, files): (Vec<_>, Vec<_>) = made.logs.drain().map(|(run, (_, file))| (run, file)).unzip();
        let synced = sync_each(&*folder.disk, &files, folder.options.parallel.get());
        if synced.iter().any(Result::is_err) {
            self.broken.store(true, Ordering::Release);
            // The durable part of these logs is unknown, so each log is copied before the next acknowledgment.
            let failed = runs.into_iter().zip(synced).filter(|(_, synced)| synced.is_err());
            folder.suspect_runs().extend(failed.map(|(run, _)| run));
            return None;
        }
        self.synced.fetch_max(self.written.load(Ordering::Acquire), Ordering::AcqRel);
        Some(())
    }

    /// Starts the journal again from its beginning, without the entries of the previous lap.
    fn start_lap(&self, made: &mut OpenJournal, folder: &FsInner) -> Option<()> {
        self.sync_logs(made, folder)?;
        if let Err(error) = made.begin_again(folder, self.written.load(Ordering::Acquire)) {
            tracing::warn!(path = %made.path.display(), %error, "cannot restart the journal; syncing each log separately");
            self.broken.store(true, Ordering::Release);
            return None;
        }
        Some(())
    }

    /// Forgets a log that was replaced or removed, while its file is still open: another log may already have its name, and receive writes. Removes
    /// all entries of the run.
    pub(crate) fn forget_log(&self, folder: &FsInner, run: &RunKey, log: Option<FileIdent>) {
        let JournalState::Made(made) = &mut *self.state() else { return };
        if made.logs.get(run).is_some_and(|(known, _)| Some(*known) == log) {
            made.logs.remove(run);
        }
        if made.runs.contains(run) && !self.broken.load(Ordering::Acquire) {
            self.start_lap(made, folder);
        }
    }

    /// Starts the journal again if it has entries older than a minute. Another process may have removed their records from the logs since.
    pub(crate) fn restart_if_old(&self, folder: &FsInner) {
        let JournalState::Made(made) = &mut *self.state() else { return };
        let age = folder.clock.monotonic().saturating_sub(made.since);
        if age >= OLDEST && !made.runs.is_empty() && !self.broken.load(Ordering::Acquire) {
            self.start_lap(made, folder);
        }
    }

    /// Syncs the logs and removes the journal, when its instance ends.
    pub(crate) fn remove_journal(&self, folder: &FsInner) {
        let mut state = self.state();
        let JournalState::Made(made) = &mut *state else { return };
        if !self.broken.load(Ordering::Acquire) && self.sync_logs(made, folder).is_some() {
            // If the file remains, the next process to open the folder finds no missing records in it.
            let _removed = folder.remove(&made.path);
        }
        *state = JournalState::Unmade;
    }

    fn state(&self) -> MutexGuard<'_, JournalState> {
        // A panic can only interrupt a write, and the next write replaces the interrupted one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenJournal {
    fn new(folder: &FsInner, written: u64) -> Result<Self, FsStoreError> {
        static IDS: LazyLock<RandomIds> = LazyLock::new(RandomIds::new);
        let journals = folder.layout.journals();
        // Another program may have removed the folder. The logs of a live process have all of its journal's data, so nothing is lost.
        folder.disk.make_dir(journals).map_err(|e| FsStoreError::io(FileOperation::MakeDir, journals, e))?;
        let path = folder.layout.journal(IDS.next(folder.clock.now()));
        let failed = |doing| {
            let path = path.clone();
            move |e| FsStoreError::io(doing, &path, e)
        };
        let file =
            Arc::new(folder.disk.open(&path, FileAccess::Create).map_err(failed(FileOperation::Open))?);
        // Without a lock, another process would take the journal for that of a dead process, and remove it.
        let lock = FileLock::try_now(Arc::clone(&file), &path, FileLockMode::Exclusive)?
            .ok_or_else(|| FsStoreError::Restless { path: path.clone() })?;
        let ident = FileIdent::of(&file.metadata().map_err(failed(FileOperation::Open))?);
        if folder.stat(&path)?.map(|named| FileIdent::of(&named)) != Some(ident) {
            return Err(FsStoreError::Restless { path });
        }
        let mut made = Self {
            file,
            path: path.clone(),
            ident,
            lap: 0,
            at: SECTOR,
            size: SECTOR,
            origin: 0,
            logs: HashMap::new(),
            runs: HashSet::new(),
            since: Duration::ZERO,
            _lock: lock,
        };
        made.begin_again(folder, written).map_err(failed(FileOperation::Write))?;
        folder.disk.sync_dir(journals).map_err(|e| FsStoreError::io(FileOperation::Sync, journals, e))?;
        Ok(made)
    }

    /// Starts again from the beginning of the file. The heading must be durable before the first group; otherwise groups of the previous lap would
    /// count.
    fn begin_again(&mut self, folder: &FsInner, written: u64) -> io::Result<()> {
        self.lap += 1;
        folder.disk.set_len(&self.file, 0)?;
        folder.disk.write_at(
            &self.file,
            &JournalHeading::new(self.lap, self.ident.inode(), boot()).sector(),
            0,
        )?;
        folder.disk.sync(&self.file)?;
        self.runs.clear();
        (self.at, self.size, self.since) = (SECTOR, SECTOR, folder.clock.monotonic());
        self.origin = written - SECTOR as u64;
        Ok(())
    }

    fn grow(&mut self, folder: &FsInner, room: usize, limits: &JournalLimits) -> io::Result<()> {
        let size = (self.at + room).next_multiple_of(limits.step).min(limits.most);
        if size > self.size {
            folder.disk.write_at(&self.file, &vec![0; size - self.size], self.size as u64)?;
            self.size = size;
        }
        Ok(())
    }
}

/// Returns the paths of all journals in the folder.
pub(crate) fn all(journals: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(journals)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "journal") {
            found.push(path);
        }
    }
    Ok(found)
}
