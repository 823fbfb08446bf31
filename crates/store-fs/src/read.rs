//! Reads of one run: its records from a base on, the headers of a range, and its head.

use std::path::Path;
use std::sync::Arc;

use ferrata_store::{At, HeadRef, HeaderRange, Headers, Record, RecordHeader, RunHead, RunKey, Seq};

use crate::error::FsStoreError;
use crate::inner::FsInner;
use crate::line;
use crate::log::CachedLog;
use crate::log_readers::{HeaderReader, ReverseReader, complete_header};
use crate::tail::flaw_error;

/// The distance up to which reading in sequence is faster than searching: the size of one read.
const NEAR: u64 = 64 << 10;

impl FsInner {
    /// Loads the newest base at or before `at`, and the records after it up to `at`.
    pub(crate) fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>, FsStoreError> {
        self.read_log(run, |log, path| self.load_from(log, path, at))
    }

    /// Loads the records after `known`. Loads from the newest base on if the run does not have `known` any more, or if a later base exists.
    pub(crate) fn load_since(
        &self,
        run: &RunKey,
        known: HeadRef,
    ) -> Result<Option<Vec<Record>>, FsStoreError> {
        self.read_log(run, |log, path| match log.head().id == known.id {
            true => Ok(Vec::new()),
            false => self.load_until(log, path, At::Latest, Some(known)),
        })
    }

    fn load_from(&self, log: &CachedLog, path: &Path, wanted: At) -> Result<Vec<Record>, FsStoreError> {
        self.load_until(log, path, wanted, None)
    }

    /// Reads backward from a record to a base, or to the record after `known`.
    fn load_until(
        &self,
        log: &CachedLog,
        path: &Path,
        wanted: At,
        known: Option<HeadRef>,
    ) -> Result<Vec<Record>, FsStoreError> {
        let (first, last) = (log.opening.first, log.head().seq);
        let absent = || FsStoreError::NoRecord { at: wanted, first, last };
        if matches!(wanted, At::Seq(seq) if seq < first || seq > last) {
            return Err(absent());
        }
        let mut records: Vec<Record> = Vec::new();
        let mut walk = ReverseReader::new(&*self.disk, log, path);
        while let Some((at, line)) = walk.previous()? {
            let header = &line.header;
            let is_wanted = match wanted {
                At::Latest => true,
                At::Seq(seq) => header.seq == seq,
                At::Record(id) => header.id == id,
            };
            if records.is_empty() && !is_wanted {
                continue;
            }
            let seq = header.seq;
            if known.is_some_and(|known| header.head() == known) {
                complete_header(records.last_mut().map(|record| &mut record.header), header.id);
                records.reverse();
                return Ok(records);
            }
            complete_header(records.last_mut().map(|record| &mut record.header), header.id);
            let body = line.body().map_err(|flaw| flaw_error(path, at, flaw).with_seq(seq))?;
            let record = Record { header: line.header, body };
            record
                .verify(&log.opening.run)
                .map_err(|error| FsStoreError::damaged(path, at, error.message()).with_seq(seq))?;
            let is_base = record.header.base;
            records.push(record);
            if is_base {
                records.reverse();
                return Ok(records);
            }
        }
        if records.is_empty() {
            return Err(absent());
        }
        Err(FsStoreError::damaged(path, log.floor, "the log has no base").with_seq(first))
    }

    /// Lists the headers of a range.
    pub(crate) fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers, FsStoreError> {
        self.read_log(run, |log, path| self.headers_of(log, path, range))?.ok_or(FsStoreError::NoRun)
    }

    fn headers_of(&self, log: &CachedLog, path: &Path, range: HeaderRange) -> Result<Headers, FsStoreError> {
        let (first, last) = (log.opening.first, log.head().seq);
        let items = match range.within(first, last) {
            None => Vec::new(),
            Some((begin, end)) if end == last => self.newest(log, path, begin)?,
            Some((begin, end)) => self.onward(log, path, begin, end)?,
        };
        let headers = Headers::checked(&log.opening.run, range, (first, last), items);
        headers.map_err(|error| match error.seq() {
            Some(seq) => FsStoreError::damaged(path, log.floor, "the record is missing").with_seq(seq),
            None => FsStoreError::damaged(path, log.floor, error.message()),
        })
    }

    /// Reads the headers from the head back to the record `begin`.
    fn newest(&self, log: &CachedLog, path: &Path, begin: Seq) -> Result<Vec<RecordHeader>, FsStoreError> {
        let mut headers: Vec<RecordHeader> = Vec::new();
        let mut walk = ReverseReader::new(&*self.disk, log, path);
        while let Some((_, line)) = walk.previous()? {
            complete_header(headers.last_mut(), line.header.id);
            if line.header.seq < begin {
                break;
            }
            headers.push(line.header);
        }
        headers.reverse();
        Ok(headers)
    }

    /// Reads the headers from one record to another, including both.
    fn onward(
        &self,
        log: &CachedLog,
        path: &Path,
        begin: Seq,
        end: Seq,
    ) -> Result<Vec<RecordHeader>, FsStoreError> {
        let mut walk = match begin.get().checked_sub(1).map(Seq::new) {
            // The previous record provides the `prev` of the first record, if its line omits it.
            Some(before) if before >= log.opening.first => {
                HeaderReader::at(&*self.disk, log, path, self.place_before(log, path, before)?)
            }
            _ => HeaderReader::new(&*self.disk, log, path),
        };
        let mut headers: Vec<RecordHeader> = Vec::new();
        while let Some((_, header)) = walk.next()? {
            let seq = header.seq;
            if seq >= begin {
                headers.push(header);
            }
            if seq >= end {
                break;
            }
        }
        Ok(headers)
    }

    /// Finds the offset of a line shortly before the record's line, or of the record's line itself. Numbers ascend with the offset, so each line
    /// read halves the range.
    fn place_before(&self, log: &CachedLog, path: &Path, seq: Seq) -> Result<u64, FsStoreError> {
        let (mut low, mut high) = (log.floor, log.tail.end);
        while high - low > NEAR {
            let middle = low + (high - low) / 2;
            let mut lines = log.forward(&*self.disk, path, middle);
            // Skip the rest of the line that contains `middle`.
            lines.next()?;
            match lines.next()?.map(|(at, bytes)| (at, line::read_record(bytes))) {
                Some((at, Ok(found))) if found.header.seq <= seq => low = at,
                // No other line begins between `middle` and `high`.
                Some((_, Ok(_))) | None => high = middle,
                // Stop the search. The sequential read toward the record reports the flaw.
                Some((_, Err(_))) => break,
            }
        }
        Ok(low)
    }

    /// Returns the run's head.
    pub(crate) fn head(&self, run: &RunKey) -> Result<Option<RunHead>, FsStoreError> {
        let Some((opening, head)) =
            self.read_log(run, |log, _| Ok((Arc::clone(&log.opening), log.tail.head.clone())))?
        else {
            return Ok(None);
        };
        let alive = head.owner.map_or(Ok(false), |owner| self.is_alive(&owner))?;
        Ok(Some(RunHead::after(run.clone(), opening.first, &head, alive, opening.facts.clone())))
    }
}
