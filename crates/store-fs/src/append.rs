//! Adding records to a run that exists: compare the head, write once, sync, and only then say so.

use ferrata_store::{HeadRef, Record, RecordHeader, RunAppend, RunKey, Seq, check_append, is_repeat};

use crate::caller::Caller;
use crate::error::{Doing, StoreError};
use crate::inner::{Inner, MOVES, Writer};
use crate::line::{self, MAX_BODY, Part};
use crate::slots::Slot;
use crate::tail::Tail;
use crate::walk::{Walk, complete};

/// What is written for one append.
pub(crate) struct Lines {
    pub(crate) bytes: Vec<u8>,
    /// Where the records begin: after the opening line, if there is one.
    pub(crate) floor: u64,
}

impl Inner {
    /// Appends to one run.
    ///
    /// For a caller that does not wait any more, no run is made.
    pub(crate) fn append(&self, entry: &RunAppend, caller: &Caller) -> Result<HeadRef, StoreError> {
        check_append(entry).map_err(StoreError::Refused)?;
        let lines = encode(entry)?;
        let run = &entry.run;
        let slot = self.slots.of(run);
        let _turn = slot.turn();
        for _ in 0..MOVES {
            match self.writer(&slot, run)? {
                Some(writer) => return self.append_to(&slot, writer, entry, &lines),
                None if entry.expected.is_some() => {
                    return Err(StoreError::Conflict { expected: entry.expected, actual: None });
                }
                None => {
                    if let Some(head) = self.create(&slot, entry, &lines, caller)? {
                        return Ok(head);
                    }
                }
            }
        }
        Err(StoreError::Restless { path: self.layout.log(run) })
    }

    fn append_to(
        &self,
        slot: &Slot,
        writer: Writer,
        entry: &RunAppend,
        lines: &Lines,
    ) -> Result<HeadRef, StoreError> {
        let head = writer.log.head();
        if entry.expected == Some(head) {
            return self.extend(slot, writer, entry, &lines.bytes);
        }
        if self.ends_with(&writer, entry)? {
            // Whoever wrote them may have died before they, or the file's name, were on stable storage.
            self.sync_all(slot, &writer, &entry.run)?;
            return Ok(head);
        }
        Err(StoreError::Conflict { expected: entry.expected, actual: Some(head) })
    }

    fn extend(
        &self,
        slot: &Slot,
        mut writer: Writer,
        entry: &RunAppend,
        bytes: &[u8],
    ) -> Result<HeadRef, StoreError> {
        let path = || self.layout.log(&entry.run);
        if writer.is_others {
            // Else a crash could take a part of what stands before the new records, and leave these.
            self.disk.sync(&writer.log.file).map_err(|source| self.suspect(slot, &entry.run, source))?;
        }
        let log = &mut writer.log;
        let end = log.tail.end;
        if let Err(source) = self.disk.write_at(&log.file, bytes, end) {
            slot.forget();
            return Err(match self.disk.set_len(&log.file, end) {
                Ok(()) => StoreError::io(Doing::Write, &path(), source),
                // What was written of it is no whole append, but that is only known of the part that was.
                Err(_) => StoreError::Unsure { path: path(), source },
            });
        }
        if let Err(source) = self.disk.sync(&log.file) {
            return Err(self.suspect(slot, &entry.run, source));
        }
        if !log.named {
            self.sync_name(&entry.run).map_err(|fault| self.suspect_name(slot, &entry.run, fault))?;
            log.named = true;
        }
        let head = last(entry);
        log.tail = Tail { end: end + bytes.len() as u64, head: head.header.clone() };
        slot.keep(writer.log);
        Ok(head.header.head())
    }

    /// Brings to stable storage what another writer may have left unsynced.
    fn sync_all(&self, slot: &Slot, writer: &Writer, run: &RunKey) -> Result<(), StoreError> {
        self.disk.sync(&writer.log.file).map_err(|source| self.suspect(slot, run, source))?;
        self.sync_name(run).map_err(|fault| self.suspect_name(slot, run, fault))
    }

    /// Remembers that a sync of the run's log failed.
    pub(crate) fn suspect(&self, slot: &Slot, run: &RunKey, source: std::io::Error) -> StoreError {
        slot.forget();
        self.suspects().insert(run.clone());
        StoreError::Unsure { path: self.layout.log(run), source }
    }

    /// The same for a sync of its name.
    pub(crate) fn suspect_name(&self, slot: &Slot, run: &RunKey, fault: StoreError) -> StoreError {
        match fault {
            StoreError::Io { source, .. } => self.suspect(slot, run, source),
            fault => fault,
        }
    }

    /// Tells whether the log ends with what is to be appended, as far as it was not pruned away since.
    fn ends_with(&self, writer: &Writer, entry: &RunAppend) -> Result<bool, StoreError> {
        let log = &writer.log;
        // Most appends that come here lost a race, and need no reading to be told so.
        if last(entry).header.id != log.head().id {
            return Ok(false);
        }
        let path = self.layout.log(&entry.run);
        let mut walk = Walk::new(&*self.disk, log, &path);
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

pub(crate) fn last(entry: &RunAppend) -> &Record {
    entry.records.last().expect("an append holds a record, as was checked first")
}

fn encode(entry: &RunAppend) -> Result<Lines, StoreError> {
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
