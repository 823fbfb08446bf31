//! Reads a log's records in either direction, and checks each record against its neighbor.

use std::path::Path;

use ferrata_store::{RecordHeader, RecordId, Seq};

use crate::backward::BackwardLines;
use crate::disk::Disk;
use crate::error::FsStoreError;
use crate::forward::ForwardLines;
use crate::line::{self, RecordLine};
use crate::log::CachedLog;
use crate::tail::flaw_error;

/// Reads the records of a log from the last to the first. Checks that no record is missing, that each record names the previous one, and that the
/// checksums are right. If a check fails, returns an error that names the faulty record.
#[derive(Debug)]
pub(crate) struct ReverseReader<'a> {
    lines: BackwardLines<'a>,
    path: &'a Path,
    first: Seq,
    /// The number that the next record must have, and the id that the record after it names as its `prev`.
    next: Option<Seq>,
    id: Option<RecordId>,
}

impl<'a> ReverseReader<'a> {
    /// Creates a reader that begins at the head.
    pub(crate) fn new(disk: &'a dyn Disk, log: &'a CachedLog, path: &'a Path) -> Self {
        Self {
            lines: log.backward(disk, path),
            path,
            first: log.opening.first,
            next: Some(log.head().seq),
            id: Some(log.head().id),
        }
    }

    /// Returns the previous record, and the offset of its line. Its `prev` may be missing.
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

/// Reads the headers of a log's records in order, with the same checks as [`ReverseReader`].
#[derive(Debug)]
pub(crate) struct HeaderReader<'a> {
    lines: ForwardLines<'a>,
    path: &'a Path,
    /// The number that the next header must have; `None` at the first header of a reader that begins in the middle of the log.
    next: Option<Seq>,
    before: Option<RecordId>,
}

impl<'a> HeaderReader<'a> {
    /// Creates a reader that begins at the oldest record.
    pub(crate) fn new(disk: &'a dyn Disk, log: &'a CachedLog, path: &'a Path) -> Self {
        let lines = log.forward(disk, path, log.floor);
        Self { lines, path, next: Some(log.opening.first), before: None }
    }

    /// Creates a reader that begins at the record whose line is at offset `at`. The first header may lack its `prev`.
    pub(crate) fn at(disk: &'a dyn Disk, log: &'a CachedLog, path: &'a Path, at: u64) -> Self {
        Self { lines: log.forward(disk, path, at), path, next: None, before: None }
    }

    /// Returns the next header, and the offset of its line.
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

/// Sets `before` as the `prev` of a header whose line omits it.
pub(crate) fn complete_header(newer: Option<&mut RecordHeader>, before: RecordId) {
    if let Some(header) = newer {
        header.prev.get_or_insert(before);
    }
}
