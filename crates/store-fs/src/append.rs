//! Appends: compare the head, write the records, sync, and only then acknowledge.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ferrata_store::{
    HeadRef, Record, RecordHeader, RunAppend, RunKey, Seq, TenantId, check_append, is_repeat,
};

use crate::caller::CallerState;
use crate::create::UnnamedLog;
use crate::disk::sync_each;
use crate::error::{FileOperation, FsStoreError};
use crate::inner::{FsInner, LockedLog, MOVES};
use crate::journal::{EntryAnchor, JournalEntry, WrittenAppend};
use crate::line::{self, MAX_BODY, Part};
use crate::lock::FileLock;
use crate::log::CachedLog;
use crate::log_readers::{ReverseReader, complete_header};
use crate::slots::RunSlot;
use crate::tail::IntactTail;

/// The bytes that an append writes to the log.
pub(crate) struct AppendLines {
    pub(crate) bytes: Vec<u8>,
    /// The offset of the first record: after the opening line, if the bytes have one.
    pub(crate) floor: u64,
}

/// A written append that is not yet synced. It keeps the run locked until it is durable or abandoned.
pub(crate) struct StartedAppend<'a> {
    slot: &'a RunSlot,
    entry: &'a RunAppend,
    /// The journal entry of the append.
    journaled: JournalEntry<'a>,
    to: AppendTarget,
}

/// The file that an append writes to.
enum AppendTarget {
    Log(LockedLog),
    /// A new file, which does not have the name of a log yet.
    Unborn(UnnamedLog),
}

impl StartedAppend<'_> {
    fn written(&self) -> WrittenAppend<'_> {
        let (file, ident) = match &self.to {
            AppendTarget::Log(writer) => (&writer.log.file, writer.log.ident),
            AppendTarget::Unborn(unborn) => (&unborn.file, unborn.ident),
        };
        WrittenAppend { entry: &self.journaled, file, ident }
    }
}

/// An append with durable content. The name of its file may not be durable yet.
struct DurableAppend<'a> {
    slot: &'a RunSlot,
    log: CachedLog,
    _lock: FileLock,
}

/// The state of an append after its first step.
pub(crate) enum AppendStart<'a> {
    /// The log already ended with these records, and they are durable.
    Done(HeadRef),
    Begun(Box<StartedAppend<'a>>),
    /// Another writer created the run meanwhile. The caller must try again.
    Again,
}

impl FsInner {
    /// Appends to one run.
    ///
    /// Does not create a run if the caller has stopped waiting.
    pub(crate) fn append(&self, entry: &RunAppend, caller: &CallerState) -> Result<HeadRef, FsStoreError> {
        check_append(entry).map_err(FsStoreError::Refused)?;
        let lines = encode(entry)?;
        let slot = self.slots.slot_of(&entry.run);
        let _turn = slot.lock_turn();
        for _ in 0..MOVES {
            match self.begin_append(&slot, entry, &lines, self.options.lock_wait)? {
                AppendStart::Done(head) => return Ok(head),
                AppendStart::Begun(begun) => {
                    let done = self.sync_appends(vec![*begun], caller).pop();
                    return done.expect("one result for each");
                }
                AppendStart::Again => {}
            }
        }
        Err(FsStoreError::Restless { path: self.layout.log(&entry.run) })
    }

    /// Compares the head and writes the records. The caller must hold the turn of the slot. `patience` limits the wait for the file's lock.
    pub(crate) fn begin_append<'a>(
        &self,
        slot: &'a RunSlot,
        entry: &'a RunAppend,
        lines: &'a AppendLines,
        patience: Duration,
    ) -> Result<AppendStart<'a>, FsStoreError> {
        let Some(writer) = self.writer(slot, &entry.run, patience)? else {
            return self.begin_new(slot, entry, lines, patience);
        };
        let head = writer.log.head();
        if entry.expected == Some(head) {
            let journaled = self.write(slot, &writer, entry, &lines.bytes)?;
            return Ok(AppendStart::Begun(Box::new(StartedAppend {
                slot,
                entry,
                journaled,
                to: AppendTarget::Log(writer),
            })));
        }
        if self.ends_with(&writer, entry)? {
            // The writer of these records may have died before the records, or the file's name, were durable.
            self.sync_all(slot, &writer, &entry.run)?;
            return Ok(AppendStart::Done(head));
        }
        Err(FsStoreError::Conflict { expected: entry.expected, actual: Some(head) })
    }

    /// Writes the first records of a run that does not exist.
    fn begin_new<'a>(
        &self,
        slot: &'a RunSlot,
        entry: &'a RunAppend,
        lines: &'a AppendLines,
        patience: Duration,
    ) -> Result<AppendStart<'a>, FsStoreError> {
        if entry.expected.is_some() {
            return Err(FsStoreError::Conflict { expected: entry.expected, actual: None });
        }
        let Some(unborn) = self.write_unborn(&entry.run, lines, patience)? else {
            return Ok(AppendStart::Again);
        };
        let behind = EntryAnchor::Nothing(unborn.made);
        let journaled = JournalEntry { run: entry.run.clone(), behind, at: 0, bytes: &lines.bytes };
        Ok(AppendStart::Begun(Box::new(StartedAppend {
            slot,
            entry,
            journaled,
            to: AppendTarget::Unborn(unborn),
        })))
    }

    fn write<'a>(
        &self,
        slot: &RunSlot,
        writer: &LockedLog,
        entry: &RunAppend,
        bytes: &'a [u8],
    ) -> Result<JournalEntry<'a>, FsStoreError> {
        let path = || self.layout.log(&entry.run);
        if writer.is_others {
            // Without this sync, a crash could lose some of the earlier records but keep the new ones.
            self.disk.sync(&writer.log.file).map_err(|source| self.mark_suspect(slot, &entry.run, source))?;
        }
        let (log, end) = (&writer.log, writer.log.tail.end);
        if let Err(source) = self.disk.write_at(&log.file, bytes, end) {
            slot.drop_cached_log();
            return Err(match self.disk.set_len(&log.file, end) {
                Ok(()) => FsStoreError::io(FileOperation::Write, &path(), source),
                // The system reports how much it wrote. That part is no whole append, so the append can be undone.
                Err(_) => FsStoreError::Unsure { path: path(), source },
            });
        }
        Ok(JournalEntry {
            run: entry.run.clone(),
            behind: EntryAnchor::Record(log.head().id),
            at: end,
            bytes,
        })
    }

    /// Syncs written appends, together if possible, and returns the result of each append.
    pub(crate) fn sync_appends(
        &self,
        row: Vec<StartedAppend<'_>>,
        caller: &CallerState,
    ) -> Vec<Result<HeadRef, FsStoreError>> {
        let is_small = |begun: &StartedAppend<'_>| self.journal.accepts(begun.journaled.bytes.len());
        let small: Vec<_> = row.iter().filter(|begun| is_small(begun)).map(|begun| begun.written()).collect();
        let kept = if small.is_empty() { Ok(true) } else { self.journal.write_durably(self, &small) };
        let is_alone = |begun: &StartedAppend<'_>| matches!(kept, Ok(false)) || !is_small(begun);
        let alone = row.iter().filter(|begun| is_alone(begun));
        let files: Vec<_> = alone.map(|begun| Arc::clone(begun.written().file)).collect();
        let mut synced = sync_each(&*self.disk, &files, self.options.parallel.get()).into_iter();
        let stored: Vec<_> = row
            .into_iter()
            .map(|begun| {
                let synced = match &kept {
                    _ if is_alone(&begun) => synced.next().expect("one for each that goes alone"),
                    Err(error) => Err(copy_error(error)),
                    Ok(_) => Ok(()),
                };
                self.name_new_log(begun, synced, caller)
            })
            .collect();
        // Sync the names of all new logs together.
        let mut named = HashMap::new();
        stored.into_iter().map(|stored| self.finish(stored?, &mut named)).collect()
    }

    /// Gives a new log its name, now that its content is durable.
    fn name_new_log<'a>(
        &self,
        begun: StartedAppend<'a>,
        synced: io::Result<()>,
        caller: &CallerState,
    ) -> Result<DurableAppend<'a>, FsStoreError> {
        let StartedAppend { slot, entry, journaled, to } = begun;
        let end = journaled.at + journaled.bytes.len() as u64;
        let tail = IntactTail { end, head: last(entry).header.clone() };
        match to {
            AppendTarget::Unborn(unborn) => {
                let (log, lock) = self.name_log(unborn, entry, tail, synced, caller)?;
                Ok(DurableAppend { slot, log, _lock: lock })
            }
            AppendTarget::Log(writer) => {
                synced.map_err(|source| self.mark_suspect(slot, &entry.run, source))?;
                Ok(DurableAppend { slot, log: CachedLog { tail, ..writer.log }, _lock: writer.lock })
            }
        }
    }

    fn finish(
        &self,
        stored: DurableAppend<'_>,
        named: &mut HashMap<TenantId, io::Result<()>>,
    ) -> Result<HeadRef, FsStoreError> {
        let DurableAppend { slot, mut log, _lock } = stored;
        let run = log.opening.run.clone();
        if self.suspect_runs().contains(&run) {
            // A sync of this log by the journal has failed meanwhile. After a failed sync, a later sync may return `Ok` although data is lost.
            slot.drop_cached_log();
            let source = io::Error::other("an earlier sync of the file failed");
            return Err(FsStoreError::Unsure { path: self.layout.log(&run), source });
        }
        if !log.named {
            let synced = named.entry(run.tenant.clone()).or_insert_with(|| self.sync_name(&run));
            synced.as_ref().map_err(|error| self.mark_suspect(slot, &run, copy_error(error)))?;
            log.named = true;
        }
        let head = log.head();
        slot.cache_log(log);
        Ok(head)
    }

    /// Makes the records durable that another writer may have left unsynced.
    fn sync_all(&self, slot: &RunSlot, writer: &LockedLog, run: &RunKey) -> Result<(), FsStoreError> {
        self.disk.sync(&writer.log.file).map_err(|source| self.mark_suspect(slot, run, source))?;
        self.sync_name(run).map_err(|source| self.mark_suspect(slot, run, source))
    }

    /// Marks the run as suspect, because a sync of its log or of its log's name failed.
    pub(crate) fn mark_suspect(&self, slot: &RunSlot, run: &RunKey, source: std::io::Error) -> FsStoreError {
        slot.drop_cached_log();
        self.suspect_runs().insert(run.clone());
        // The whole disk may have been away for a moment.
        self.require_recovery();
        FsStoreError::Unsure { path: self.layout.log(run), source }
    }

    /// Returns whether the log ends with the records of `entry`, ignoring records that were pruned since.
    fn ends_with(&self, writer: &LockedLog, entry: &RunAppend) -> Result<bool, FsStoreError> {
        let log = &writer.log;
        // Most appends that get here lost a race. To compare the last id is then enough, without a read.
        if last(entry).header.id != log.head().id {
            return Ok(false);
        }
        let path = self.layout.log(&entry.run);
        let mut walk = ReverseReader::new(&*self.disk, log, &path);
        let mut headers: Vec<RecordHeader> = Vec::with_capacity(entry.records.len() + 1);
        // Read one record more, because the line of the oldest record may leave its `prev` to the line before.
        while headers.len() <= entry.records.len()
            && let Some((_, line)) = walk.previous()?
        {
            complete_header(headers.last_mut(), line.header.id);
            headers.push(line.header);
        }
        Ok(is_repeat(&headers, entry) && entry.facts.as_ref().is_none_or(|facts| *facts == log.opening.facts))
    }
}

/// Copies an error for another caller that waited for the same operation.
fn copy_error(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or(error.kind().into(), io::Error::from_raw_os_error)
}

pub(crate) fn last(entry: &RunAppend) -> &Record {
    entry.records.last().expect("an append holds a record, as was checked first")
}

pub(crate) fn encode(entry: &RunAppend) -> Result<AppendLines, FsStoreError> {
    let RunAppend { run, expected, records, facts } = entry;
    let bodies: usize = records.iter().map(|record| record.body.len()).sum();
    // A header takes about 250 bytes. A body in base64 takes a third more; the buffer grows for it.
    let mut bytes = Vec::with_capacity(bodies + 320 * (records.len() + 1));
    if let Some(facts) = facts {
        line::write_opening(&mut bytes, run, Seq::new(0), facts);
    }
    let floor = bytes.len() as u64;
    let of = u32::try_from(records.len()).expect("four billion records do not fit in memory");
    let mut before = expected.map(|head| head.id);
    for (number, record) in (1..).zip(records) {
        if record.body.len() > MAX_BODY {
            return Err(FsStoreError::LargeBody {
                seq: record.header.seq,
                len: record.body.len(),
                max: MAX_BODY,
            });
        }
        line::write_record(&mut bytes, record, before, Part { number, of });
        before = Some(record.header.id);
    }
    Ok(AppendLines { bytes, floor })
}
