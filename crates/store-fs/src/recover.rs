//! What a crash of the machine took from logs, put back from the journals of processes that are gone, before anything is read.
//!
//! An entry of a journal is put back where the record that it was appended to ends, if what follows there is not whole. So nothing
//! is put back into a log that was purged, made anew or pruned since: the record is not there, or what followed it was brought to
//! stable storage with it. The beginning of a log is put back if its file is there, and does not hold a whole one: a name is on
//! stable storage before a run is acknowledged, and gone before a purge is. For the same reasons it does no harm to do it again, or
//! where no machine has crashed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferrata_store::{RecordId, RunKey, Seq};

use crate::backward::{Backward, Source};
use crate::disk::{Access, Ident};
use crate::error::{Doing, StoreError};
use crate::forward::Forward;
use crate::inner::{Inner, MOVES};
use crate::journal::{self, Behind, Entry, Found};
use crate::line::{self, Flaw};
use crate::lock::{Locked, Mode};

/// A journal of a process that is gone.
struct Dead {
    path: PathBuf,
    ident: Ident,
    bytes: Vec<u8>,
    _lock: Locked,
}

/// When a run was made: whether since the machine was started, and at what time after a start of it.
type Making = (bool, u64);

/// When each run was made last, as far as journals know: if its log has lost its beginning, that is the one it had.
type Newest = HashMap<RunKey, Making>;

fn newest(found: &[Option<Found<'_>>]) -> Newest {
    let mut newest = Newest::new();
    for found in found.iter().flatten() {
        let is_of_now = found.heading.is_since(journal::boot());
        for entry in &found.entries {
            if let Behind::Nothing(made) = entry.behind {
                let known = newest.entry(entry.run.clone()).or_insert((is_of_now, made));
                *known = (*known).max((is_of_now, made));
            }
        }
    }
    newest
}

impl Dead {
    /// What it holds; `None` if it was never begun.
    fn found(&self) -> Result<Option<Found<'_>>, StoreError> {
        match journal::read(&self.bytes) {
            // A copy that was made while it was written to has gaps, and the copies of the logs lack nothing of it.
            Ok(Some(Found { heading, gap: Some(at), .. })) if heading.is_of(self.ident.inode()) => {
                Err(unreadable(&self.path, at, Flaw::Sum))
            }
            Ok(found) => Ok(found),
            Err((at, flaw)) => Err(unreadable(&self.path, at, flaw)),
        }
    }
}

impl Inner {
    /// Puts back what only journals of processes that are gone hold; once, before this instance looks at any log.
    ///
    /// While a process lives, its logs hold all that its journal does, so such a journal is passed over.
    pub(crate) fn recover(&self) -> Result<(), StoreError> {
        if self.recovered.load(Ordering::Acquire) {
            return Ok(());
        }
        let journals = self.layout.journals();
        let folder = match self.disk.open(journals, Access::Read) {
            Ok(folder) => Arc::new(folder),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // What journals hold is missing from logs after a crash of the machine.
                if self.has_marker(&self.layout.marker())? {
                    self.must_exist(journals)?;
                }
                self.recovered.store(true, Ordering::Release);
                return Ok(());
            }
            Err(error) => return Err(StoreError::io(Doing::Open, journals, error)),
        };
        // Another process that comes meanwhile waits until it is done.
        let _alone = self.lock(&folder, journals, Mode::Exclusive)?;
        let mut dead = Vec::new();
        for path in journal::all(journals).map_err(|e| StoreError::io(Doing::List, journals, e))? {
            dead.extend(self.take_over(path)?);
        }
        let found = dead.iter().map(Dead::found).collect::<Result<Vec<_>, _>>()?;
        let newest = newest(&found);
        let mut removed = false;
        for (dead, found) in dead.iter().zip(&found) {
            removed |= self.put_back_all(dead, found.as_ref(), &newest)?;
        }
        if removed {
            self.disk.sync_dir(journals).map_err(|e| StoreError::io(Doing::Sync, journals, e))?;
        }
        self.recovered.store(true, Ordering::Release);
        Ok(())
    }

    /// Refuses a run of which a journal may hold what its log lacks; tries once more before.
    pub(crate) fn must_be_whole(&self, run: &RunKey) -> Result<(), StoreError> {
        if !self.withheld().contains(run) {
            return Ok(());
        }
        self.doubt();
        self.recover()?;
        match self.withheld().contains(run) {
            true => Err(StoreError::Withheld { path: self.layout.log(run) }),
            false => Ok(()),
        }
    }

    /// Looks into journals again before the next operation: what was there when this instance began may have been lost since.
    pub(crate) fn doubt(&self) {
        self.recovered.store(false, Ordering::Release);
    }

    /// Locks and reads a journal, unless its process lives.
    fn take_over(&self, path: PathBuf) -> Result<Option<Dead>, StoreError> {
        // Opening a pipe would wait for its writer.
        if !self.stat(&path)?.is_some_and(|metadata| metadata.is_file()) {
            return Ok(None);
        }
        let file = match self.disk.open(&path, Access::Read) {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io(Doing::Open, &path, error)),
        };
        let Some(lock) = Locked::try_now(Arc::clone(&file), &path, Mode::Exclusive)? else {
            return Ok(None);
        };
        let metadata = file.metadata().map_err(|e| StoreError::io(Doing::Open, &path, e))?;
        let too_long = |_| StoreError::damaged(&path, 0, "it is longer than any journal");
        let mut bytes = vec![0; usize::try_from(metadata.len()).map_err(too_long)?];
        Source { disk: &*self.disk, file: &file, path: &path }.read(&mut bytes, 0)?;
        Ok(Some(Dead { path, ident: Ident::of(&metadata), bytes, _lock: lock }))
    }

    /// Does for one journal what there is to do, and says whether it was removed.
    fn put_back_all(
        &self,
        dead: &Dead,
        found: Option<&Found<'_>>,
        newest: &Newest,
    ) -> Result<bool, StoreError> {
        let entries = found.map_or(&[][..], |found| &found.entries);
        let done = self.put_back(&dead.path, entries, newest).and_then(|whole| match whole {
            true => self.remove(&dead.path),
            false => Ok(false),
        });
        match done {
            // The machine still has all that was written, and a reader needs no right to write.
            Err(fault)
                if fault.is_of_permission()
                    && found.is_none_or(|found| found.heading.is_since(journal::boot())) =>
            {
                Ok(false)
            }
            done => done,
        }
    }

    /// Puts all entries in their places, and syncs the logs; `false` if some log could be neither read nor written.
    fn put_back(&self, journal: &Path, entries: &[Entry<'_>], newest: &Newest) -> Result<bool, StoreError> {
        let mut by_run: HashMap<&RunKey, Vec<&Entry<'_>>> = HashMap::new();
        for entry in entries {
            by_run.entry(&entry.run).or_default().push(entry);
        }
        let mut whole = true;
        for (run, entries) in by_run {
            match self.put_back_of(run, &entries, newest.get(run).copied()) {
                Ok(0) => {
                    self.withheld().remove(run);
                }
                Ok(bytes) => {
                    self.withheld().remove(run);
                    tracing::warn!(
                    path = %self.layout.log(run).display(), journal = %journal.display(), bytes,
                    "put back what a crash of the machine had taken from a log"
                    );
                }
                Err(fault) if fault.is_of_permission() => return Err(fault),
                Err(fault) => {
                    // One file that cannot be read is to keep no other run from going on.
                    tracing::error!(
                        path = %self.layout.log(run).display(), journal = %journal.display(), error = %fault,
                        "cannot put back what a crash may have taken from a log"
                    );
                    self.withheld().insert(run.clone());
                    whole = false;
                }
            }
        }
        Ok(whole)
    }

    /// The same for one run, which was last made as said; returns how many bytes were not there.
    fn put_back_of(
        &self,
        run: &RunKey,
        entries: &[&Entry<'_>],
        newest: Option<Making>,
    ) -> Result<usize, StoreError> {
        let path = self.layout.log(run);
        for _ in 0..MOVES {
            let file = match self.disk.open(&path, Access::Write) {
                Ok(file) => Arc::new(file),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
                Err(error) => return Err(StoreError::io(Doing::Open, &path, error)),
            };
            let _lock = self.lock(&file, &path, Mode::Exclusive)?;
            let metadata = file.metadata().map_err(|e| StoreError::io(Doing::Open, &path, e))?;
            match self.stat(&path)? {
                None => return Ok(0),
                Some(named) if Ident::of(&named) != Ident::of(&metadata) => continue,
                Some(_) => {}
            }
            let source = Source { disk: &*self.disk, file: &file, path: &path };
            let (mut len, mut missing) = (metadata.len(), 0);
            for entry in entries {
                let is_missing = match entry.behind {
                    Behind::Record(record) => {
                        !is_whole(source, len, entry)? && ends_at(source, len, entry.at, record)?
                    }
                    Behind::Nothing(made) => {
                        newest.is_some_and(|newest| newest.1 == made) && !begins_whole(source, len)?
                    }
                };
                if is_missing {
                    self.disk
                        .write_at(&file, entry.bytes, entry.at)
                        .map_err(|e| StoreError::io(Doing::Write, &path, e))?;
                    len = len.max(entry.at + entry.bytes.len() as u64);
                    missing += entry.bytes.len();
                }
            }
            self.disk.sync(&file).map_err(|e| StoreError::io(Doing::Sync, &path, e))?;
            return Ok(missing);
        }
        Err(StoreError::Restless { path })
    }
}

/// Tells whether the log has whole lines of the same records in the entry's place, be it in other envelopes.
fn is_whole(source: Source<'_>, len: u64, entry: &Entry<'_>) -> Result<bool, StoreError> {
    if entry.at + entry.bytes.len() as u64 <= len {
        let mut there = vec![0; entry.bytes.len()];
        source.read(&mut there, entry.at)?;
        if there == entry.bytes {
            return Ok(true);
        }
    }
    let mut lines = Forward::new(source, entry.at.min(len), len);
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

/// Tells whether a log has its opening line and its first append: what was made whole, and brought to the disk, in one.
fn begins_whole(source: Source<'_>, len: u64) -> Result<bool, StoreError> {
    let mut lines = Forward::new(source, 0, len);
    let Some((_, opening)) = lines.next()? else { return Ok(false) };
    match line::read_opening(opening) {
        // It was pruned: only a whole log is.
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

/// Tells whether the line that ends at `at` is whole and that of the record.
fn ends_at(source: Source<'_>, len: u64, at: u64, record: RecordId) -> Result<bool, StoreError> {
    if at > len || at == 0 {
        return Ok(false);
    }
    let mut end = [0];
    source.read(&mut end, at - 1)?;
    let mut lines = Backward::new(source, 0, at);
    Ok(end == *b"\n"
        && lines.previous()?.is_some_and(|(_, line)| {
            line::read_record(line).is_ok_and(|line| line.header.id == record && line.part.is_last())
        }))
}

/// What a flaw in a journal means.
fn unreadable(path: &Path, at: usize, flaw: Flaw) -> StoreError {
    match flaw {
        Flaw::Newer(found) => StoreError::NewerLayout { path: path.into(), found, known: journal::VERSION },
        Flaw::Sum => StoreError::DamagedJournal { path: path.into(), at, what: "a checksum differs".into() },
        Flaw::Content(what) => StoreError::DamagedJournal { path: path.into(), at, what },
    }
}
