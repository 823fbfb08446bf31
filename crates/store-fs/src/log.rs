//! An open log: its file, its opening line, and its end.

use std::fs::{File, Metadata};
use std::path::Path;
use std::sync::Arc;

use ferrata_store::{HeadRef, RunKey};

use crate::backward::{BackwardLines, LogSource};
use crate::disk::{Disk, FileIdent};
use crate::error::FsStoreError;
use crate::forward::ForwardLines;
use crate::line::{self, Flaw, Opening};
use crate::tail::{IntactTail, flaw_error, read_tail};

/// The cached state of a log. It is valid while the file and its length are unchanged: logs only grow, and a prune creates another file.
#[derive(Clone, Debug)]
pub(crate) struct CachedLog {
    pub(crate) file: Arc<File>,
    pub(crate) ident: FileIdent,
    pub(crate) opening: Arc<Opening>,
    /// The offset of the first record.
    pub(crate) floor: u64,
    pub(crate) tail: IntactTail,
    /// Whether the name of the file is known to be durable.
    pub(crate) named: bool,
}

impl CachedLog {
    /// Reads the opening line and the end of an open log.
    pub(crate) fn read(
        disk: &dyn Disk,
        file: Arc<File>,
        path: &Path,
        run: &RunKey,
        metadata: &Metadata,
    ) -> Result<Self, FsStoreError> {
        let source = LogSource { disk, file: &file, path };
        let (opening, floor) = read_opening(source, metadata.len())?;
        if opening.run != *run {
            return Err(FsStoreError::damaged(
                path,
                0,
                format!("the file is the log of run {}", opening.run),
            ));
        }
        let tail = read_tail(source, floor, opening.first, metadata.len())?;
        Ok(Self {
            ident: FileIdent::of(metadata),
            opening: Arc::new(opening),
            floor,
            tail,
            named: false,
            file,
        })
    }

    pub(crate) fn head(&self) -> HeadRef {
        self.tail.head.head()
    }

    /// Returns whether `metadata` belongs to this file with an unchanged length.
    pub(crate) fn is_as(&self, metadata: &Metadata) -> bool {
        self.ident == FileIdent::of(metadata) && self.tail.end == metadata.len()
    }

    pub(crate) fn source<'a>(&'a self, disk: &'a dyn Disk, path: &'a Path) -> LogSource<'a> {
        LogSource { disk, file: &self.file, path }
    }

    /// Returns a reader of the records' lines from the last line backward.
    pub(crate) fn backward<'a>(&'a self, disk: &'a dyn Disk, path: &'a Path) -> BackwardLines<'a> {
        BackwardLines::new(self.source(disk, path), self.floor, self.tail.end)
    }

    /// Returns a reader of the records' lines from offset `from` on, which must be the start of a line.
    pub(crate) fn forward<'a>(&'a self, disk: &'a dyn Disk, path: &'a Path, from: u64) -> ForwardLines<'a> {
        ForwardLines::new(self.source(disk, path), from, self.tail.end)
    }
}

/// Reads the first line of a file. Also returns the offset of the second line.
fn read_opening(source: LogSource<'_>, len: u64) -> Result<(Opening, u64), FsStoreError> {
    let mut lines = ForwardLines::new(source, 0, len);
    let Some((_, bytes)) = lines.next()? else {
        let what = if len == 0 { "the file is empty" } else { "its first line has no end" };
        return Err(FsStoreError::damaged(source.path, 0, what));
    };
    match line::read_opening(bytes) {
        Ok(opening) => Ok((opening, bytes.len() as u64 + 1)),
        Err(Flaw::Newer(found)) => {
            Err(FsStoreError::NewerLayout { path: source.path.into(), found, known: line::OPENING })
        }
        Err(flaw) => Err(flaw_error(source.path, 0, flaw)),
    }
}
