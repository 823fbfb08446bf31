//! Goes through a log's records in either direction, and holds each against its neighbour.

use std::path::Path;

use ferrata_store::{RecordHeader, RecordId, Seq};

use crate::backward::BackwardLines;
use crate::disk::Disk;
use crate::error::FsStoreError;
use crate::forward::ForwardLines;
use crate::line::{self, RecordLine};
use crate::log::CachedLog;
use crate::tail::flaw_error;

/// The records of a log, the last one first: dense, chained, each with a right checksum, or an error that names the one
/// that is not.
#[derive(Debug)]
pub(crate) struct ReverseReader<'a> {
    lines: BackwardLines<'a>,
    path: &'a Path,
    first: Seq,
    /// The number that comes next, and the id that the record after it says it has.
    next: Option<Seq>,
    id: Option<RecordId>,
}

impl<'a> ReverseReader<'a> {
    /// Starts at the head.
    pub(crate) fn new(disk: &'a dyn Disk, log: &'a CachedLog, path: &'a Path) -> Self {
        Self {
            lines: log.backward(disk, path),
            path,
            first: log.opening.first,
            next: Some(log.head().seq),
            id: Some(log.head().id),
        }
    }

    /// Hands out the record before the one handed out last, and where its line begins. Its `prev` may be left out.
    pub(crate) fn previous(&mut self) -> Result<Option<(u64, RecordLine<'_>)>, FsStoreError> {
        let Some(seq) = self.next else {
            return Ok(None);
        };
        let (path, end) = (self.path, self.lines.position());
        let damaged = |at, what: &str| Err(FsStoreError::damaged(path, at, what).with_seq(seq));
        let Some((at, bytes)) = self.lines.previous()? else {
            return damaged(end, "the record is missing");
        };
        let record = line::read_record(bytes).map_err(|flaw| flaw_error(path, at, flaw).with_seq(seq))?;
        let RecordHeader { id, prev, .. } = record.header;
        if record.header.seq != seq {
            return damaged(at, "another record is at its position");
        }
        if self.id.is_some_and(|expected| expected != id) {
            return damaged(at, "the next record names another previous record");
        }
        if prev.is_none() && record.header.base && seq.get() > 0 {
            return damaged(at, "a base does not name its previous record");
        }
        self.id = prev;
        self.next = (seq > self.first).then(|| Seq::new(seq.get() - 1));
        Ok(Some((at, record)))
    }
}

/// The headers of a log's records in order, held to the same as [`ReverseReader`]'s records.
#[derive(Debug)]
pub(crate) struct HeaderReader<'a> {
    lines: ForwardLines<'a>,
    path: &'a Path,
    /// The number that comes next, unless it is the first of a walk that begins in the middle.
    next: Option<Seq>,
    before: Option<RecordId>,
}

impl<'a> HeaderReader<'a> {
    /// Starts at the oldest record.
    pub(crate) fn new(disk: &'a dyn Disk, log: &'a CachedLog, path: &'a Path) -> Self {
        let lines = log.forward(disk, path, log.floor);
        Self { lines, path, next: Some(log.opening.first), before: None }
    }

    /// Starts at the record whose line begins at `at`. Of that one the header may lack its `prev`.
    pub(crate) fn at(disk: &'a dyn Disk, log: &'a CachedLog, path: &'a Path, at: u64) -> Self {
        Self { lines: log.forward(disk, path, at), path, next: None, before: None }
    }

    /// Hands out the next header, and where its line begins.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, RecordHeader)>, FsStoreError> {
        let (path, next) = (self.path, self.next);
        let named = |fault: FsStoreError| match next {
            Some(seq) => fault.with_seq(seq),
            None => fault,
        };
        let Some((at, bytes)) = self.lines.next()? else {
            return Ok(None);
        };
        let line = line::read_record(bytes).map_err(|flaw| named(flaw_error(path, at, flaw)))?;
        let mut header = line.header;
        if next.is_some_and(|seq| seq != header.seq) {
            return Err(named(FsStoreError::damaged(path, at, "another record is at its position")));
        }
        if let Some(before) = self.before
            && *header.prev.get_or_insert(before) != before
        {
            return Err(named(FsStoreError::damaged(path, at, "the record names another previous record")));
        }
        self.next = header.seq.get().checked_add(1).map(Seq::new);
        self.before = Some(header.id);
        Ok(Some((at, header)))
    }
}

/// Gives a header whose line left out the record before it that record's id.
pub(crate) fn complete_header(newer: Option<&mut RecordHeader>, before: RecordId) {
    if let Some(header) = newer {
        header.prev.get_or_insert(before);
    }
}
