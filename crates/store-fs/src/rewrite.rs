//! Replaces a log by a copy: to remove its beginning, to replace envelopes of records, and to make a log durable after a failed sync.

use std::path::Path;
use std::sync::Arc;

use ferrata_store::{
    At, PruneCut, Record, RecordHeader, RecordId, Removed, RunKey, Seq, check_prune, has_place,
};

use crate::backward::LogSource;
use crate::caller::CallerState;
use crate::disk::{FileAccess, FileIdent};
use crate::error::{FileOperation, FsStoreError};
use crate::forward::ForwardLines;
use crate::inner::FsInner;
use crate::line::{self, Opening, Part};
use crate::log::CachedLog;
use crate::log_readers::ReverseReader;
use crate::slots::RunSlot;
use crate::tail::{IntactTail, flaw_error};

/// The size of the buffer for one write.
const WRITE: usize = 1 << 20;

/// The part of a log that a copy keeps.
struct RetainedRange<'a> {
    /// The oldest record to keep, and the line at which copying begins.
    first: Seq,
    from: u64,
    /// The base that replaces the oldest record, if that record was no base. It comes before the copied lines.
    base: Option<&'a Record>,
    /// The records in new envelopes, which replace the same records. They are in the order of their numbers.
    resealed: &'a [Record],
}

impl FsInner {
    /// Removes the records before the cut, if the caller still waits. An old cut may belong to a run that was purged since.
    pub(crate) fn prune(
        &self,
        run: &RunKey,
        cut: &PruneCut,
        caller: &CallerState,
    ) -> Result<Removed, FsStoreError> {
        let slot = self.slots.slot_of(run);
        let _turn = slot.lock_turn();
        let writer = self.writer(&slot, run, self.options.lock_wait)?.ok_or(FsStoreError::NoRun)?;
        caller.check_waiting()?;
        let path = self.layout.log(run);
        // Remove the remains of a crashed prune.
        self.remove(&self.layout.copy(run))?;
        let log = &writer.log;
        if cut.at < log.opening.first {
            return Ok(Removed::default());
        }
        let (at, end, header) = self.find(log, &path, cut.at)?;
        let base = check_prune(run, &header, cut).map_err(FsStoreError::Refused)?;
        let (records, bytes) = tally(log.source(&*self.disk, &path), log.floor, at);
        if at > log.floor || base.is_some() {
            let from = if base.is_some() { end } else { at };
            let (log, _) =
                self.copy(&slot, log, &path, &RetainedRange { first: cut.at, from, base, resealed: &[] })?;
            slot.cache_log(log);
        }
        Ok(Removed { records, bytes })
    }

    /// Replaces the envelopes of those given records that the log still has, all at once. Returns their number.
    pub(crate) fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64, FsStoreError> {
        let slot = self.slots.slot_of(run);
        let _turn = slot.lock_turn();
        let writer = self.writer(&slot, run, self.options.lock_wait)?.ok_or(FsStoreError::NoRun)?;
        let (path, log) = (self.layout.log(run), &writer.log);
        self.remove(&self.layout.copy(run))?;
        let kept = log.opening.first..=log.head().seq;
        if !records.iter().any(|record| kept.contains(&record.header.seq)) {
            return Ok(0);
        }
        let kept = RetainedRange { first: log.opening.first, from: log.floor, base: None, resealed: records };
        let (log, replaced) = self.copy(&slot, log, &path, &kept)?;
        slot.cache_log(log);
        Ok(replaced)
    }

    /// Replaces a log whose sync failed by a durable copy.
    pub(crate) fn replace_suspect(&self, slot: &RunSlot, log: &CachedLog) -> Result<CachedLog, FsStoreError> {
        let run = &log.opening.run;
        let path = self.layout.log(run);
        let kept = RetainedRange { first: log.opening.first, from: log.floor, base: None, resealed: &[] };
        let (renewed, _) = self.copy(slot, log, &path, &kept).map_err(|fault| match fault {
            // It is still unknown whether these records are durable.
            FsStoreError::Io { source, .. } => FsStoreError::Unsure { path: path.clone(), source },
            fault => fault,
        })?;
        self.suspect_runs().remove(run);
        Ok(renewed)
    }

    /// Finds the line of a record. Returns where it begins, where it ends, and its complete header.
    fn find(&self, log: &CachedLog, path: &Path, seq: Seq) -> Result<(u64, u64, RecordHeader), FsStoreError> {
        let mut walk = ReverseReader::new(&*self.disk, log, path);
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
        Err(FsStoreError::NoRecord { at: At::Seq(seq), first: log.opening.first, last: log.head().seq })
    }

    /// Writes the retained part to another file, syncs it, and replaces the log with it. Also returns the number of resealed records.
    ///
    /// The caller must lock the log first. The new file is not locked. Each process that opens it syncs its name before it acknowledges anything in
    /// it.
    fn copy(
        &self,
        slot: &RunSlot,
        log: &CachedLog,
        path: &Path,
        kept: &RetainedRange<'_>,
    ) -> Result<(CachedLog, u64), FsStoreError> {
        let run = &log.opening.run;
        let copy_path = self.layout.copy(run);
        let written = self.write_copy(log, path, &copy_path, kept).and_then(|copy| {
            self.disk
                .rename(&copy_path, path)
                .map_err(|e| FsStoreError::io(FileOperation::Rename, path, e))?;
            Ok(copy)
        });
        let (mut copy, resealed) = match written {
            Ok(copy) => copy,
            Err(fault) => {
                // If the file remains, the next prune or purge removes it.
                let _removed = self.remove(&copy_path);
                return Err(fault);
            }
        };
        self.sync_name(run).map_err(|source| self.mark_suspect(slot, run, source))?;
        copy.named = true;
        self.journal.forget_log(self, run, Some(log.ident));
        Ok((copy, resealed))
    }

    fn write_copy(
        &self,
        log: &CachedLog,
        path: &Path,
        copy_path: &Path,
        kept: &RetainedRange<'_>,
    ) -> Result<(CachedLog, u64), FsStoreError> {
        let run = &log.opening.run;
        let failed = |doing| move |e| FsStoreError::io(doing, copy_path, e);
        let file = self.disk.open(copy_path, FileAccess::Create).map_err(failed(FileOperation::Open))?;
        self.disk.set_len(&file, 0).map_err(failed(FileOperation::Cut))?;
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
            self.disk.write_at(&file, bytes, written).map_err(failed(FileOperation::Write))?;
            written += bytes.len() as u64;
            bytes.clear();
            Ok(written)
        };
        let mut lines = log.forward(&*self.disk, path, kept.from);
        let (mut given, mut before, mut resealed) = (kept.resealed, None, 0);
        while let Some((at, found)) = lines.next()? {
            let record = line::read_record(found).map_err(|flaw| flaw_error(path, at, flaw))?;
            match next_for(&record.header, before.replace(record.header.id), &mut given) {
                Some(new) => {
                    line::write_record(&mut bytes, new, None, Part::WHOLE);
                    resealed += 1;
                    if new.header.seq == head.seq {
                        head = new.header.clone();
                    }
                }
                // The first lines of its append may be removed. The append was complete long ago, so write the record as an append of its own.
                None => record.write_whole(&mut bytes),
            }
            if bytes.len() >= WRITE {
                flush(&mut bytes)?;
            }
        }
        let end = flush(&mut bytes)?;
        self.disk.sync(&file).map_err(failed(FileOperation::Sync))?;
        let ident = FileIdent::of(&file.metadata().map_err(failed(FileOperation::Open))?);
        let opening = Opening { run: run.clone(), first: kept.first, facts: log.opening.facts.clone() };
        let tail = IntactTail { end, head };
        let copy =
            CachedLog { file: Arc::new(file), ident, opening: Arc::new(opening), floor, tail, named: false };
        Ok((copy, resealed))
    }
}

/// Returns the given record that replaces a stored record, if there is one. `before` is the id of the previous record, because a line may omit it.
fn next_for<'a>(
    header: &RecordHeader,
    before: Option<RecordId>,
    given: &mut &'a [Record],
) -> Option<&'a Record> {
    while let Some((next, rest)) = given.split_first().filter(|(next, _)| next.header.seq <= header.seq) {
        *given = rest;
        if next.header.seq == header.seq {
            let whole = RecordHeader { prev: header.prev.or(before), ..header.clone() };
            return has_place(&whole, &next.header).then_some(next);
        }
    }
    None
}

/// Counts the readable records, and the bytes of their bodies, between two offsets of a file.
pub(crate) fn tally(source: LogSource<'_>, from: u64, to: u64) -> (u64, u64) {
    let mut lines = ForwardLines::new(source, from, to);
    let (mut records, mut bytes) = (0, 0);
    while let Ok(Some((_, line))) = lines.next() {
        if let Ok(record) = line::read_record(line) {
            records += 1;
            bytes += u64::from(record.header.body_len);
        }
    }
    (records, bytes)
}
