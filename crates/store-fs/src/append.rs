//! Appends: compare the head, write once, sync, and only then acknowledge.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ferrata_store::{
    HeadRef, Record, RecordHeader, RunAppend, RunKey, Seq, TenantId, check_append, is_repeat,
};

use crate::caller::Caller;
use crate::create::UnnamedLog;
use crate::disk::sync_each;
use crate::error::{FileOperation, StoreError};
use crate::inner::{Inner, MOVES, Writer};
use crate::journal::{Entry, EntryAnchor, WrittenAppend};
use crate::line::{self, MAX_BODY, Part};
use crate::lock::Locked;
use crate::log::Log;
use crate::slots::Slot;
use crate::tail::Tail;
use crate::walk::{ReverseReader, complete};

/// The text of one append.
pub(crate) struct Lines {
    pub(crate) bytes: Vec<u8>,
    /// The start of the records: after the opening line, if there is one.
    pub(crate) floor: u64,
}

/// A written append, locked until it is on stable storage or abandoned.
pub(crate) struct StartedAppend<'a> {
    slot: &'a Slot,
    entry: &'a RunAppend,
    /// The journal entry of the append.
    journaled: Entry<'a>,
    to: AppendTarget,
}

/// The target of an append's write.
enum AppendTarget {
    Log(Writer),
    /// A file that is not yet a log.
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

/// An append on stable storage; the file's name may not be.
struct DurableAppend<'a> {
    slot: &'a Slot,
    log: Log,
    _lock: Locked,
}

/// The state of an append after its first step.
pub(crate) enum Begin<'a> {
    /// The log ended with it already, and is on stable storage.
    Done(HeadRef),
    Begun(Box<StartedAppend<'a>>),
    /// Another writer made the run meanwhile.
    Again,
}

impl Inner {
    /// Appends to one run.
    ///
    /// If the caller stopped waiting, no run is created.
    pub(crate) fn append(&self, entry: &RunAppend, caller: &Caller) -> Result<HeadRef, StoreError> {
        check_append(entry).map_err(StoreError::Refused)?;
        let lines = encode(entry)?;
        let slot = self.slots.of(&entry.run);
        let _turn = slot.turn();
        for _ in 0..MOVES {
            match self.begin(&slot, entry, &lines, self.options.lock_wait)? {
                Begin::Done(head) => return Ok(head),
                Begin::Begun(begun) => {
                    let done = self.settle(vec![*begun], caller).pop();
                    return done.expect("one result for each");
                }
                Begin::Again => {}
            }
        }
        Err(StoreError::Restless { path: self.layout.log(&entry.run) })
    }

    /// Compares the head and writes. The caller must have the slot's turn, and waits for the file's lock for as long as it says.
    pub(crate) fn begin<'a>(
        &self,
        slot: &'a Slot,
        entry: &'a RunAppend,
        lines: &'a Lines,
        patience: Duration,
    ) -> Result<Begin<'a>, StoreError> {
        let Some(writer) = self.writer(slot, &entry.run, patience)? else {
            return self.begin_new(slot, entry, lines, patience);
        };
        let head = writer.log.head();
        if entry.expected == Some(head) {
            let journaled = self.write(slot, &writer, entry, &lines.bytes)?;
            return Ok(Begin::Begun(Box::new(StartedAppend {
                slot,
                entry,
                journaled,
                to: AppendTarget::Log(writer),
            })));
        }
        if self.ends_with(&writer, entry)? {
            // The writer of these records may have died before they, or the file's name, were on stable storage.
            self.sync_all(slot, &writer, &entry.run)?;
            return Ok(Begin::Done(head));
        }
        Err(StoreError::Conflict { expected: entry.expected, actual: Some(head) })
    }

    /// Begins a run that does not exist.
    fn begin_new<'a>(
        &self,
        slot: &'a Slot,
        entry: &'a RunAppend,
        lines: &'a Lines,
        patience: Duration,
    ) -> Result<Begin<'a>, StoreError> {
        if entry.expected.is_some() {
            return Err(StoreError::Conflict { expected: entry.expected, actual: None });
        }
        let Some(unborn) = self.write_unborn(&entry.run, lines, patience)? else { return Ok(Begin::Again) };
        let behind = EntryAnchor::Nothing(unborn.made);
        let journaled = Entry { run: entry.run.clone(), behind, at: 0, bytes: &lines.bytes };
        Ok(Begin::Begun(Box::new(StartedAppend { slot, entry, journaled, to: AppendTarget::Unborn(unborn) })))
    }

    fn write<'a>(
        &self,
        slot: &Slot,
        writer: &Writer,
        entry: &RunAppend,
        bytes: &'a [u8],
    ) -> Result<Entry<'a>, StoreError> {
        let path = || self.layout.log(&entry.run);
        if writer.is_others {
            // Without this sync, a crash could lose a part of the records before the new ones and keep the new ones.
            self.disk.sync(&writer.log.file).map_err(|source| self.suspect(slot, &entry.run, source))?;
        }
        let (log, end) = (&writer.log, writer.log.tail.end);
        if let Err(source) = self.disk.write_at(&log.file, bytes, end) {
            slot.forget();
            return Err(match self.disk.set_len(&log.file, end) {
                Ok(()) => StoreError::io(FileOperation::Write, &path(), source),
                // The written part is no whole append, but only the part that the system reported is known.
                Err(_) => StoreError::Unsure { path: path(), source },
            });
        }
        Ok(Entry { run: entry.run.clone(), behind: EntryAnchor::Record(log.head().id), at: end, bytes })
    }

    /// Syncs written appends, together if possible, and returns the result of each.
    pub(crate) fn settle(
        &self,
        row: Vec<StartedAppend<'_>>,
        caller: &Caller,
    ) -> Vec<Result<HeadRef, StoreError>> {
        let is_small = |begun: &StartedAppend<'_>| self.journal.takes(begun.journaled.bytes.len());
        let small: Vec<_> = row.iter().filter(|begun| is_small(begun)).map(|begun| begun.written()).collect();
        let kept = if small.is_empty() { Ok(true) } else { self.journal.keep(self, &small) };
        let is_alone = |begun: &StartedAppend<'_>| matches!(kept, Ok(false)) || !is_small(begun);
        let alone = row.iter().filter(|begun| is_alone(begun));
        let files: Vec<_> = alone.map(|begun| Arc::clone(begun.written().file)).collect();
        let mut synced = sync_each(&*self.disk, &files, self.options.parallel.get()).into_iter();
        let stored: Vec<_> = row
            .into_iter()
            .map(|begun| {
                let synced = match &kept {
                    _ if is_alone(&begun) => synced.next().expect("one for each that goes alone"),
                    Err(error) => Err(same(error)),
                    Ok(_) => Ok(()),
                };
                self.stored(begun, synced, caller)
            })
            .collect();
        // The names of all new logs are synced together.
        let mut named = HashMap::new();
        stored.into_iter().map(|stored| self.finish(stored?, &mut named)).collect()
    }

    /// Gives a new log its name, now that its content is durable.
    fn stored<'a>(
        &self,
        begun: StartedAppend<'a>,
        synced: io::Result<()>,
        caller: &Caller,
    ) -> Result<DurableAppend<'a>, StoreError> {
        let StartedAppend { slot, entry, journaled, to } = begun;
        let end = journaled.at + journaled.bytes.len() as u64;
        let tail = Tail { end, head: last(entry).header.clone() };
        match to {
            AppendTarget::Unborn(unborn) => {
                let (log, lock) = self.bear(unborn, entry, tail, synced, caller)?;
                Ok(DurableAppend { slot, log, _lock: lock })
            }
            AppendTarget::Log(writer) => {
                synced.map_err(|source| self.suspect(slot, &entry.run, source))?;
                Ok(DurableAppend { slot, log: Log { tail, ..writer.log }, _lock: writer.lock })
            }
        }
    }

    fn finish(
        &self,
        stored: DurableAppend<'_>,
        named: &mut HashMap<TenantId, io::Result<()>>,
    ) -> Result<HeadRef, StoreError> {
        let DurableAppend { slot, mut log, _lock } = stored;
        let run = log.opening.run.clone();
        if self.suspects().contains(&run) {
            // The journal could not sync it meanwhile, and no sync after that one tells the truth.
            slot.forget();
            let source = io::Error::other("an earlier sync of the file failed");
            return Err(StoreError::Unsure { path: self.layout.log(&run), source });
        }
        if !log.named {
            let synced = named.entry(run.tenant.clone()).or_insert_with(|| self.sync_name(&run));
            synced.as_ref().map_err(|error| self.suspect(slot, &run, same(error)))?;
            log.named = true;
        }
        let head = log.head();
        slot.keep(log);
        Ok(head)
    }

    /// Brings to stable storage what another writer may have left unsynced.
    fn sync_all(&self, slot: &Slot, writer: &Writer, run: &RunKey) -> Result<(), StoreError> {
        self.disk.sync(&writer.log.file).map_err(|source| self.suspect(slot, run, source))?;
        self.sync_name(run).map_err(|source| self.suspect(slot, run, source))
    }

    /// Remembers that a sync of the run's log, or of its name, failed.
    pub(crate) fn suspect(&self, slot: &Slot, run: &RunKey, source: std::io::Error) -> StoreError {
        slot.forget();
        self.suspects().insert(run.clone());
        // It may be the whole disk that has gone, and come back.
        self.doubt();
        StoreError::Unsure { path: self.layout.log(run), source }
    }

    /// Returns whether the log ends with the records to append, ignoring those pruned since.
    fn ends_with(&self, writer: &Writer, entry: &RunAppend) -> Result<bool, StoreError> {
        let log = &writer.log;
        // Most appends that reach this point lost a race, and need no reading for their refusal.
        if last(entry).header.id != log.head().id {
            return Ok(false);
        }
        let path = self.layout.log(&entry.run);
        let mut walk = ReverseReader::new(&*self.disk, log, &path);
        let mut headers: Vec<RecordHeader> = Vec::with_capacity(entry.records.len() + 1);
        // And the one before, as the oldest may have left to it to say its id.
        while headers.len() <= entry.records.len()
            && let Some((_, line)) = walk.previous()?
        {
            complete(headers.last_mut(), line.header.id);
            headers.push(line.header);
        }
        Ok(is_repeat(&headers, entry) && entry.facts.as_ref().is_none_or(|facts| *facts == log.opening.facts))
    }
}

/// The same error, for another caller that waited for what failed.
fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or(error.kind().into(), io::Error::from_raw_os_error)
}

pub(crate) fn last(entry: &RunAppend) -> &Record {
    entry.records.last().expect("an append holds a record, as was checked first")
}

pub(crate) fn encode(entry: &RunAppend) -> Result<Lines, StoreError> {
    let RunAppend { run, expected, records, facts } = entry;
    let bodies: usize = records.iter().map(|record| record.body.len()).sum();
    // A header takes some 250 bytes; a body in base64 a third more, and the buffer grows for it.
    let mut bytes = Vec::with_capacity(bodies + 320 * (records.len() + 1));
    if let Some(facts) = facts {
        line::write_opening(&mut bytes, run, Seq::new(0), facts);
    }
    let floor = bytes.len() as u64;
    let of = u32::try_from(records.len()).expect("four billion records do not fit in memory");
    let mut before = expected.map(|head| head.id);
    for (number, record) in (1..).zip(records) {
        if record.body.len() > MAX_BODY {
            return Err(StoreError::LargeBody {
                seq: record.header.seq,
                len: record.body.len(),
                max: MAX_BODY,
            });
        }
        line::write_record(&mut bytes, record, before, Part { number, of });
        before = Some(record.header.id);
    }
    Ok(Lines { bytes, floor })
}
