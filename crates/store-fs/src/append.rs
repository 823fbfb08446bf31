//! Adding records to runs: compare the head, write once, sync, and only then say so. Those of a batch are synced together.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::record::{Record, RecordHeader};
use ferrata_core::store::{RunAppend, check_append, is_repeat};
use ferrata_core::{HeadRef, RunKey, Seq};

use crate::batch::Numbered;
use crate::error::{Doing, Fault};
use crate::folder::{Folder, MOVES, Writer};
use crate::line::{self, MAX_BODY, Part};
use crate::lock::Locked;
use crate::log::Log;
use crate::slots::{Slot, Turn};
use crate::syncs::sync_each;
use crate::tail::Tail;
use crate::walk::{Walk, complete};

/// How many logs are held at once by one batch: enough to share what a sync costs, and few beside the files that a process
/// may have open.
const AT_ONCE: usize = 64;

/// What is written for one append.
pub(crate) struct Lines {
    pub(crate) bytes: Vec<u8>,
    /// Where the records begin: after the opening line, if there is one.
    pub(crate) floor: u64,
}

/// How far an append has come.
pub(crate) enum Begun<'a> {
    /// It was there already, and is on stable storage.
    Done(HeadRef),
    Written(Pending<'a>),
}

/// An append that is written and not yet on stable storage. Nobody else writes to the run as long as this is held.
pub(crate) struct Pending<'a> {
    pub(crate) entry: &'a RunAppend,
    pub(crate) place: Place,
    /// As it is when all is well.
    pub(crate) log: Log,
    pub(crate) _lock: Locked,
    pub(crate) turn: Turn,
}

/// Where an append was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The log, which others can see.
    Log,
    /// A file that is to become it.
    Unborn,
}

impl Folder {
    /// Appends to one run, and waits for others who write to it.
    pub(crate) fn append(&self, entry: &RunAppend) -> Result<HeadRef, Fault> {
        let turn = self.slots.of(&entry.run).turn();
        let pending = match self.begin(entry, turn, self.options.lock_wait)? {
            Begun::Done(head) => return Ok(head),
            Begun::Written(pending) => pending,
        };
        let mut settled = None;
        self.settle(vec![(0, pending)], &mut |_, done| settled = Some(done));
        settled.unwrap_or(Err(Fault::GivenUp))
    }

    /// Appends to different runs, and tells `done` what came of each. Hands back those that somebody else writes to just now.
    ///
    /// Whoever holds several logs waits for none: two that hold what the other wants would wait for each other.
    pub(crate) fn append_each(
        &self,
        mut entries: Vec<Numbered>,
        mut done: impl FnMut(usize, Result<HeadRef, Fault>),
    ) -> Vec<Numbered> {
        let mut busy = Vec::new();
        for entries in entries.chunks(AT_ONCE) {
            let mut pending = Vec::with_capacity(entries.len());
            for (number, entry) in entries {
                let Some(turn) = self.slots.of(&entry.run).try_turn() else {
                    busy.push(*number);
                    continue;
                };
                match self.begin(entry, turn, Duration::ZERO) {
                    Ok(Begun::Written(written)) => pending.push((*number, written)),
                    Ok(Begun::Done(head)) => done(*number, Ok(head)),
                    Err(Fault::Locked { .. }) => busy.push(*number),
                    Err(fault) => done(*number, Err(fault)),
                }
            }
            self.settle(pending, &mut done);
        }
        entries.retain(|(number, _)| busy.contains(number));
        entries
    }

    fn begin<'a>(&self, entry: &'a RunAppend, turn: Turn, patience: Duration) -> Result<Begun<'a>, Fault> {
        self.ready_to_write()?;
        check_append(entry).map_err(Fault::Refused)?;
        let lines = encode(entry)?;
        let run = &entry.run;
        for _ in 0..MOVES {
            match self.writer(turn.slot(), run, patience)? {
                Some(writer) => return self.append_to(turn, writer, entry, &lines),
                None if entry.expected.is_some() => {
                    return Err(Fault::Conflict { expected: entry.expected, actual: None });
                }
                None => {
                    if let Some((log, lock)) = self.create(entry, &lines, patience)? {
                        let place = Place::Unborn;
                        return Ok(Begun::Written(Pending { entry, place, log, _lock: lock, turn }));
                    }
                }
            }
        }
        Err(Fault::Restless { path: self.layout.log(run) })
    }

    fn append_to<'a>(
        &self,
        turn: Turn,
        writer: Writer,
        entry: &'a RunAppend,
        lines: &Lines,
    ) -> Result<Begun<'a>, Fault> {
        let head = writer.log.head();
        if entry.expected == Some(head) {
            return self.extend(turn, writer, entry, &lines.bytes).map(Begun::Written);
        }
        if self.ends_with(&writer, entry)? {
            // Whoever wrote them may have died before they, or the file's name, were on stable storage.
            let synced = self.disk.sync(&writer.log.file).and_then(|()| self.sync_name(&entry.run));
            synced.map_err(|source| self.suspect(turn.slot(), &entry.run, source))?;
            return Ok(Begun::Done(head));
        }
        Err(Fault::Conflict { expected: entry.expected, actual: Some(head) })
    }

    fn extend<'a>(
        &self,
        turn: Turn,
        writer: Writer,
        entry: &'a RunAppend,
        bytes: &[u8],
    ) -> Result<Pending<'a>, Fault> {
        let Writer { mut log, lock } = writer;
        let end = log.tail.end;
        if let Err(source) = self.disk.write_at(&log.file, bytes, end) {
            let path = self.layout.log(&entry.run);
            turn.slot().forget();
            return Err(match self.disk.set_len(&log.file, end) {
                Ok(()) => Fault::io(Doing::Write, &path, source),
                // What was written of it is no whole append, but that is only known of the part that was.
                Err(_) => Fault::Unsure { path, source },
            });
        }
        log.tail = Tail { end: end + bytes.len() as u64, head: last(entry).header.clone() };
        Ok(Pending { entry, place: Place::Log, log, _lock: lock, turn })
    }

    /// Brings what is written to stable storage, and tells `done` of each whether it is there.
    fn settle(
        &self,
        pending: Vec<(usize, Pending<'_>)>,
        done: &mut impl FnMut(usize, Result<HeadRef, Fault>),
    ) {
        let files = pending.iter().map(|(_, pending)| Arc::clone(&pending.log.file)).collect();
        let synced = sync_each(&self.disk, files, self.options.parallel);
        let mut unnamed = Vec::new();
        for ((number, pending), synced) in pending.into_iter().zip(synced) {
            match self.see_through(&pending, synced) {
                Err(fault) => done(number, Err(fault)),
                Ok(()) if pending.log.named => done(number, Ok(pending.keep())),
                Ok(()) => unnamed.push((number, pending)),
            }
        }
        // All names are made by now, so one sync serves those of a tenant.
        let mut tenants = HashMap::new();
        for (number, mut pending) in unnamed {
            let run = &pending.entry.run;
            let synced = tenants.entry(run.tenant.clone()).or_insert_with(|| self.sync_name(run));
            match synced {
                Ok(()) => {
                    pending.log.named = true;
                    done(number, Ok(pending.keep()));
                }
                Err(error) => {
                    let fault = self.suspect(pending.turn.slot(), run, same(error));
                    done(number, Err(fault));
                }
            }
        }
    }

    /// Goes on with an append whose file was synced, or was not.
    fn see_through(&self, pending: &Pending<'_>, synced: io::Result<()>) -> Result<(), Fault> {
        let run = &pending.entry.run;
        match pending.place {
            Place::Log => synced.map_err(|source| self.suspect(pending.turn.slot(), run, source)),
            Place::Unborn => self.give_name(run, synced),
        }
    }

    /// Remembers that a sync of the run's log, or of its name, failed.
    pub(crate) fn suspect(&self, slot: &Slot, run: &RunKey, source: io::Error) -> Fault {
        slot.forget();
        self.suspects().insert(run.clone());
        Fault::Unsure { path: self.layout.log(run), source }
    }

    /// Tells whether the log ends with what is to be appended, as far as it was not pruned away since.
    fn ends_with(&self, writer: &Writer, entry: &RunAppend) -> Result<bool, Fault> {
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

impl Pending<'_> {
    /// Ends it well: remembers the log as it is now.
    fn keep(self) -> HeadRef {
        let head = self.log.head();
        self.turn.slot().keep(self.log);
        head
    }
}

/// The same error once more: one sync can fail for several runs.
fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

pub(crate) fn last(entry: &RunAppend) -> &Record {
    entry.records.last().expect("an append holds a record, as was checked first")
}

fn encode(entry: &RunAppend) -> Result<Lines, Fault> {
    let RunAppend { run, expected, records, facts } = entry;
    let bodies: usize = records.iter().map(|record| record.body.len()).sum();
    // A line takes some 160 bytes more than its body; a body in base64 a third more, and the buffer grows for it.
    let mut bytes = Vec::with_capacity(bodies + 256 * (records.len() + 1));
    if let Some(facts) = facts {
        line::write_opening(&mut bytes, run, Seq::new(0), facts);
    }
    let floor = bytes.len() as u64;
    let of = u32::try_from(records.len()).expect("four billion records do not fit in memory");
    let mut before = expected.map(|head| head.id);
    for (number, record) in (1..).zip(records) {
        if record.body.len() > MAX_BODY {
            return Err(Fault::LargeBody { seq: record.header.seq, len: record.body.len(), max: MAX_BODY });
        }
        line::write_record(&mut bytes, record, before, Part { number, of });
        before = Some(record.header.id);
    }
    Ok(Lines { bytes, floor })
}
