//! Replacing a log by a copy: to drop its beginning, and to bring to the disk what a failed sync left in doubt.

use std::path::Path;
use std::sync::Arc;

use ferrata_store::{At, PruneCut, Record, RecordHeader, Removed, RunKey, Seq, check_prune};

use crate::backward::Source;
use crate::disk::{Access, Ident};
use crate::error::{Doing, StoreError};
use crate::forward::Forward;
use crate::inner::Inner;
use crate::line::{self, Opening, Part};
use crate::log::Log;
use crate::slots::Slot;
use crate::tail::{Tail, flawed};
use crate::walk::Walk;

/// How much to gather before it is written.
const WRITE: usize = 1 << 20;

/// What a copy keeps of a log.
struct Kept<'a> {
    /// The oldest record kept, and the line where copying begins.
    first: Seq,
    from: u64,
    /// What stands before the copied lines in place of a record that was no base.
    base: Option<&'a Record>,
}

impl Inner {
    /// Drops the records before the cut.
    pub(crate) fn prune(&self, run: &RunKey, cut: &PruneCut) -> Result<Removed, StoreError> {
        let slot = self.slots.of(run);
        let _turn = slot.turn();
        let writer = self.writer(&slot, run)?.ok_or(StoreError::NoRun)?;
        let path = self.layout.log(run);
        // What a crash left of pruning before.
        self.remove(&self.layout.copy(run))?;
        let log = &writer.log;
        if cut.at < log.opening.first {
            return Ok(Removed::default());
        }
        let (at, end, header) = self.find(log, &path, cut.at)?;
        let base = check_prune(run, &header, cut).map_err(StoreError::Refused)?;
        let (records, bytes) = tally(log.source(&*self.disk, &path), log.floor, at);
        if at > log.floor || base.is_some() {
            let kept = Kept { first: cut.at, from: if base.is_some() { end } else { at }, base };
            let log = self.copy(&slot, log, &path, &kept)?;
            slot.keep(log);
        }
        Ok(Removed { records, bytes })
    }

    /// Replaces a log of which a sync has failed by a copy that is surely on stable storage.
    pub(crate) fn renew(&self, slot: &Slot, log: &Log) -> Result<Log, StoreError> {
        let run = &log.opening.run;
        let path = self.layout.log(run);
        let kept = Kept { first: log.opening.first, from: log.floor, base: None };
        let renewed = self.copy(slot, log, &path, &kept).map_err(|fault| match fault {
            // The records in doubt still are.
            StoreError::Io { source, .. } => StoreError::Unsure { path: path.clone(), source },
            fault => fault,
        })?;
        self.suspects().remove(run);
        Ok(renewed)
    }

    /// Finds a record's line: where it begins, where it ends, and its whole header.
    fn find(&self, log: &Log, path: &Path, seq: Seq) -> Result<(u64, u64, RecordHeader), StoreError> {
        let mut walk = Walk::new(&*self.disk, log, path);
        let mut end = log.tail.end;
        while let Some((at, line)) = walk.previous()? {
            if line.header.seq == seq {
                let mut header = line.header;
                if header.prev.is_none() {
                    header.prev = walk.previous()?.map(|(_, before)| before.header.id);
                }
                return Ok((at, end, header));
            }
            if line.header.seq < seq {
                break;
            }
            end = at;
        }
        Err(StoreError::NoRecord { at: At::Seq(seq), first: log.opening.first, last: log.head().seq })
    }

    /// Writes what is kept to another file, syncs it, and puts it in the log's place.
    ///
    /// The caller must hold the lock on the log. The new file is not locked: whoever opens it syncs its name before
    /// saying that anything in it is safe.
    fn copy(&self, slot: &Slot, log: &Log, path: &Path, kept: &Kept<'_>) -> Result<Log, StoreError> {
        let run = &log.opening.run;
        let copy_path = self.layout.copy(run);
        let written = self.write_copy(log, path, &copy_path, kept).and_then(|copy| {
            self.disk.rename(&copy_path, path).map_err(|e| StoreError::io(Doing::Rename, path, e))?;
            Ok(copy)
        });
        let mut copy = match written {
            Ok(copy) => copy,
            Err(fault) => {
                // Should it stay, the next prune or purge removes it.
                let _removed = self.remove(&copy_path);
                return Err(fault);
            }
        };
        self.sync_name(run).map_err(|fault| self.suspect_name(slot, run, fault))?;
        copy.named = true;
        Ok(copy)
    }

    fn write_copy(
        &self,
        log: &Log,
        path: &Path,
        copy_path: &Path,
        kept: &Kept<'_>,
    ) -> Result<Log, StoreError> {
        let run = &log.opening.run;
        let failed = |doing| move |e| StoreError::io(doing, copy_path, e);
        let file = self.disk.open(copy_path, Access::Create).map_err(failed(Doing::Open))?;
        self.disk.set_len(&file, 0).map_err(failed(Doing::Cut))?;
        let mut bytes = Vec::new();
        line::write_opening(&mut bytes, run, kept.first, &log.opening.facts);
        let floor = bytes.len() as u64;
        let mut head = log.tail.head.clone();
        if let Some(base) = kept.base {
            line::write_record(&mut bytes, base, None, Part::WHOLE);
            if base.header.seq == head.seq {
                head = base.header.clone();
            }
        }
        let mut written = 0;
        let mut flush = |bytes: &mut Vec<u8>| {
            self.disk.write_at(&file, bytes, written).map_err(failed(Doing::Write))?;
            written += bytes.len() as u64;
            bytes.clear();
            Ok(written)
        };
        let mut lines = log.forward(&*self.disk, path, kept.from);
        while let Some((at, found)) = lines.next()? {
            let record = line::read_record(found).map_err(|flaw| flawed(path, at, flaw))?;
            // Its append may have lost its first lines, and has long been seen whole: it stands alone from now on.
            record.write_whole(&mut bytes);
            if bytes.len() >= WRITE {
                flush(&mut bytes)?;
            }
        }
        let end = flush(&mut bytes)?;
        self.disk.sync(&file).map_err(failed(Doing::Sync))?;
        let ident = Ident::of(&file.metadata().map_err(failed(Doing::Open))?);
        let opening = Opening { run: run.clone(), first: kept.first, facts: log.opening.facts.clone() };
        Ok(Log {
            file: Arc::new(file),
            ident,
            opening: Arc::new(opening),
            floor,
            tail: Tail { end, head },
            named: false,
        })
    }
}

/// Counts records and bytes of bodies between two places of a file, as far as they can be read.
pub(crate) fn tally(source: Source<'_>, from: u64, to: u64) -> (u64, u64) {
    let mut lines = Forward::new(source, from, to);
    let (mut records, mut bytes) = (0, 0);
    while let Ok(Some((_, line))) = lines.next() {
        if let Ok(record) = line::read_record(line) {
            records += 1;
            bytes += u64::from(record.header.body_len);
        }
    }
    (records, bytes)
}
