//! Recovery after a crash of the machine: restores lost records from the journals of dead processes, before this instance reads any log.
//!
//! A journal entry names the record that its bytes follow in the log. Recovery writes the bytes after that record if the bytes in the log are
//! incomplete. So it restores nothing into a log that was purged, created again or pruned since: either the log does not have that record, or the
//! sync that made the record durable included the records after it.
//!
//! Recovery restores the beginning of a log if its file exists but its beginning is incomplete. The store makes a name durable before it
//! acknowledges a run, and removes the name durably before it acknowledges a purge. So recovery is harmless if it is repeated, or if there was no
//! crash.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferrata_store::{RecordId, RunKey, Seq};

use crate::backward::{BackwardLines, LogSource};
use crate::disk::{FileAccess, FileIdent};
use crate::error::{FileOperation, FsStoreError};
use crate::forward::ForwardLines;
use crate::inner::{FsInner, MOVES};
use crate::journal::{self, EntryAnchor, JournalContents, JournalEntry};
use crate::line::{self, Flaw};
use crate::lock::{FileLock, FileLockMode};

/// A journal of a dead process.
struct DeadJournal {
    path: PathBuf,
    ident: FileIdent,
    bytes: Vec<u8>,
    _lock: FileLock,
}

/// The creation time of a run. The flag is true if the run was created since the current boot; the number is the time after the boot.
type CreationTime = (bool, u64);

/// The latest creation of each run in any journal. If the beginning of a log is lost, this was the log's creation.
type Newest = HashMap<RunKey, CreationTime>;

fn newest(found: &[Option<JournalContents<'_>>]) -> Newest {
    let mut newest = Newest::new();
    for found in found.iter().flatten() {
        let is_of_now = found.heading.is_since(journal::boot());
        for entry in &found.entries {
            if let EntryAnchor::Nothing(made) = entry.behind {
                let known = newest.entry(entry.run.clone()).or_insert((is_of_now, made));
                *known = (*known).max((is_of_now, made));
            }
        }
    }
    newest
}

impl DeadJournal {
    /// Returns the contents of the journal; `None` if the journal was never started.
    fn read_contents(&self) -> Result<Option<JournalContents<'_>>, FsStoreError> {
        match journal::read(&self.bytes) {
            // A copy of the folder, made during a write, has gaps. The copied logs then have all data of the journal.
            Ok(Some(JournalContents { heading, gap: Some(at), .. })) if heading.is_of(self.ident.inode()) => {
                Err(unreadable(&self.path, at, Flaw::Sum))
            }
            Ok(found) => Ok(found),
            Err((at, flaw)) => Err(unreadable(&self.path, at, flaw)),
        }
    }
}

impl FsInner {
    /// Restores the records that only journals of dead processes have. Runs once, before this instance reads any log.
    ///
    /// The logs of a live process hold all data of its journal, so recovery skips such a journal.
    pub(crate) fn recover(&self) -> Result<(), FsStoreError> {
        if self.recovered.load(Ordering::Acquire) {
            return Ok(());
        }
        let journals = self.layout.journals();
        let folder = match self.disk.open(journals, FileAccess::Read) {
            Ok(folder) => Arc::new(folder),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // After a crash of the machine, logs may lack records that journals have.
                if self.has_marker(&self.layout.marker())? {
                    self.check_exists(journals)?;
                }
                self.recovered.store(true, Ordering::Release);
                return Ok(());
            }
            Err(error) => return Err(FsStoreError::io(FileOperation::Open, journals, error)),
        };
        // A second process waits here until the recovery is complete.
        let _alone = self.lock(&folder, journals, FileLockMode::Exclusive)?;
        let mut dead = Vec::new();
        for path in journal::all(journals).map_err(|e| FsStoreError::io(FileOperation::List, journals, e))? {
            dead.extend(self.take_over(path)?);
        }
        let found = dead.iter().map(DeadJournal::read_contents).collect::<Result<Vec<_>, _>>()?;
        let newest = newest(&found);
        let mut removed = false;
        for (dead, found) in dead.iter().zip(&found) {
            removed |= self.restore_journal(dead, found.as_ref(), &newest)?;
        }
        if removed {
            self.disk.sync_dir(journals).map_err(|e| FsStoreError::io(FileOperation::Sync, journals, e))?;
        }
        self.recovered.store(true, Ordering::Release);
        Ok(())
    }

    /// Fails if a journal may have records that the log of the run lacks. Tries once more to restore them first.
    pub(crate) fn check_recovered(&self, run: &RunKey) -> Result<(), FsStoreError> {
        if !self.withheld_runs().contains(run) {
            return Ok(());
        }
        self.require_recovery();
        self.recover()?;
        match self.withheld_runs().contains(run) {
            true => Err(FsStoreError::Withheld { path: self.layout.log(run) }),
            false => Ok(()),
        }
    }

    /// Makes the next operation search the journals again, because logs may have lost data since the last search.
    pub(crate) fn require_recovery(&self) {
        self.recovered.store(false, Ordering::Release);
    }

    /// Locks and reads a journal. Returns `None` if its process is alive.
    fn take_over(&self, path: PathBuf) -> Result<Option<DeadJournal>, FsStoreError> {
        // Opening a pipe would wait for its writer.
        if !self.stat(&path)?.is_some_and(|metadata| metadata.is_file()) {
            return Ok(None);
        }
        let file = match self.disk.open(&path, FileAccess::Read) {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FsStoreError::io(FileOperation::Open, &path, error)),
        };
        let Some(lock) = FileLock::try_now(Arc::clone(&file), &path, FileLockMode::Exclusive)? else {
            return Ok(None);
        };
        let metadata = file.metadata().map_err(|e| FsStoreError::io(FileOperation::Open, &path, e))?;
        let too_long = |_| FsStoreError::damaged(&path, 0, "the file is longer than any journal");
        let mut bytes = vec![0; usize::try_from(metadata.len()).map_err(too_long)?];
        LogSource { disk: &*self.disk, file: &file, path: &path }.read(&mut bytes, 0)?;
        Ok(Some(DeadJournal { path, ident: FileIdent::of(&metadata), bytes, _lock: lock }))
    }

    /// Recovers one journal. Returns whether the journal was removed.
    fn restore_journal(
        &self,
        dead: &DeadJournal,
        found: Option<&JournalContents<'_>>,
        newest: &Newest,
    ) -> Result<bool, FsStoreError> {
        let entries = found.map_or(&[][..], |found| &found.entries);
        let done = self.restore_entries(&dead.path, entries, newest).and_then(|whole| match whole {
            true => self.remove(&dead.path),
            false => Ok(false),
        });
        match done {
            // The machine has not restarted, so the logs have all writes. A reader needs no permission to write.
            Err(fault)
                if fault.is_of_permission()
                    && found.is_none_or(|found| found.heading.is_since(journal::boot())) =>
            {
                Ok(false)
            }
            done => done,
        }
    }

    /// Restores all entries, and syncs the logs. Returns `false` if a read or a write of a log failed.
    fn restore_entries(
        &self,
        journal: &Path,
        entries: &[JournalEntry<'_>],
        newest: &Newest,
    ) -> Result<bool, FsStoreError> {
        let mut by_run: HashMap<&RunKey, Vec<&JournalEntry<'_>>> = HashMap::new();
        for entry in entries {
            by_run.entry(&entry.run).or_default().push(entry);
        }
        let mut whole = true;
        for (run, entries) in by_run {
            match self.restore_run_entries(run, &entries, newest.get(run).copied()) {
                Ok(0) => {
                    self.withheld_runs().remove(run);
                }
                Ok(bytes) => {
                    self.withheld_runs().remove(run);
                    tracing::warn!(
                    path = %self.layout.log(run).display(), journal = %journal.display(), bytes,
                    "restored records that a machine crash had removed from a log"
                    );
                }
                Err(fault) if fault.is_of_permission() => return Err(fault),
                Err(fault) => {
                    // One unreadable file must not block other runs.
                    tracing::error!(
                        path = %self.layout.log(run).display(), journal = %journal.display(), error = %fault,
                        "cannot restore the records that a machine crash may have removed from a log"
                    );
                    self.withheld_runs().insert(run.clone());
                    whole = false;
                }
            }
        }
        Ok(whole)
    }

    /// Restores the entries of one run with this last creation time. Returns the number of missing bytes.
    fn restore_run_entries(
        &self,
        run: &RunKey,
        entries: &[&JournalEntry<'_>],
        newest: Option<CreationTime>,
    ) -> Result<usize, FsStoreError> {
        let path = self.layout.log(run);
        for _ in 0..MOVES {
            let file = match self.disk.open(&path, FileAccess::Write) {
                Ok(file) => Arc::new(file),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
                Err(error) => return Err(FsStoreError::io(FileOperation::Open, &path, error)),
            };
            let _lock = self.lock(&file, &path, FileLockMode::Exclusive)?;
            let metadata = file.metadata().map_err(|e| FsStoreError::io(FileOperation::Open, &path, e))?;
            match self.stat(&path)? {
                None => return Ok(0),
                Some(named) if FileIdent::of(&named) != FileIdent::of(&metadata) => continue,
                Some(_) => {}
            }
            let source = LogSource { disk: &*self.disk, file: &file, path: &path };
            let (mut len, mut missing) = (metadata.len(), 0);
            for entry in entries {
                let is_missing = match entry.behind {
                    EntryAnchor::Record(record) => {
                        !is_whole(source, len, entry)? && ends_at(source, len, entry.at, record)?
                    }
                    EntryAnchor::Nothing(made) => {
                        newest.is_some_and(|newest| newest.1 == made) && !has_intact_start(source, len)?
                    }
                };
                if is_missing {
                    self.disk
                        .write_at(&file, entry.bytes, entry.at)
                        .map_err(|e| FsStoreError::io(FileOperation::Write, &path, e))?;
                    len = len.max(entry.at + entry.bytes.len() as u64);
                    missing += entry.bytes.len();
                }
            }
            self.disk.sync(&file).map_err(|e| FsStoreError::io(FileOperation::Sync, &path, e))?;
            return Ok(missing);
        }
        Err(FsStoreError::Restless { path })
    }
}

/// Returns whether the log has complete lines of the same records at the entry's position. Their envelopes may differ.
fn is_whole(source: LogSource<'_>, len: u64, entry: &JournalEntry<'_>) -> Result<bool, FsStoreError> {
    if entry.at + entry.bytes.len() as u64 <= len {
        let mut there = vec![0; entry.bytes.len()];
        source.read(&mut there, entry.at)?;
        if there == entry.bytes {
            return Ok(true);
        }
    }
    let mut lines = ForwardLines::new(source, entry.at.min(len), len);
    for wanted in entry.bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some((_, found)) = lines.next()? else { return Ok(false) };
        let wanted = line::read_record(wanted.strip_suffix(b"\n").unwrap_or(wanted));
        match (wanted, line::read_record(found)) {
            (Ok(wanted), Ok(found)) if wanted.header.id == found.header.id => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Returns whether a log has its opening line and its first append, which the store writes and syncs together.
fn has_intact_start(source: LogSource<'_>, len: u64) -> Result<bool, FsStoreError> {
    let mut lines = ForwardLines::new(source, 0, len);
    let Some((_, opening)) = lines.next()? else { return Ok(false) };
    match line::read_opening(opening) {
        // The log was pruned. The store renames a pruned log only once it is complete.
        Ok(opening) if opening.first > Seq::new(0) => return Ok(true),
        Ok(_) => {}
        Err(_) => return Ok(false),
    }
    let (mut number, mut of) = (0, 1);
    while number < of {
        let Some((_, found)) = lines.next()? else { return Ok(false) };
        let Ok(record) = line::read_record(found) else { return Ok(false) };
        (number, of) = (number + 1, record.part.of);
    }
    Ok(true)
}

/// Returns whether the line that ends at `at` is complete and belongs to the record.
fn ends_at(source: LogSource<'_>, len: u64, at: u64, record: RecordId) -> Result<bool, FsStoreError> {
    if at > len || at == 0 {
        return Ok(false);
    }
    let mut end = [0];
    source.read(&mut end, at - 1)?;
    let mut lines = BackwardLines::new(source, 0, at);
    Ok(end == *b"\n"
        && lines.previous()?.is_some_and(|(_, line)| {
            line::read_record(line).is_ok_and(|line| line.header.id == record && line.part.is_last())
        }))
}

/// Returns the error for a flaw in a journal.
fn unreadable(path: &Path, at: usize, flaw: Flaw) -> FsStoreError {
    match flaw {
        Flaw::Newer(found) => FsStoreError::NewerLayout { path: path.into(), found, known: journal::VERSION },
        Flaw::Sum => {
            FsStoreError::DamagedJournal { path: path.into(), at, what: "a checksum differs".into() }
        }
        Flaw::Content(what) => FsStoreError::DamagedJournal { path: path.into(), at, what },
    }
}
