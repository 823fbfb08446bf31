//! Reads a file line by line from its end. The memory use is limited by the longest line.

use std::fs::File;
use std::path::Path;

use memchr::memrchr;

use crate::disk::Disk;
use crate::error::{FileOperation, FsStoreError};
use crate::line::MAX_LINE;

/// The size of the first read. It is enough for most reads of a log's end.
const FIRST_READ: u64 = 16 << 10;

/// The size of the largest read.
const LARGEST_READ: u64 = 1 << 20;

/// An open log, and its path for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSource<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) file: &'a File,
    pub(crate) path: &'a Path,
}

impl LogSource<'_> {
    /// Reads exactly `buffer.len()` bytes.
    pub(crate) fn read(&self, buffer: &mut [u8], at: u64) -> Result<(), FsStoreError> {
        let read = self
            .disk
            .read_at(self.file, buffer, at)
            .map_err(|e| FsStoreError::io(FileOperation::Read, self.path, e))?;
        if read < buffer.len() {
            // Another writer has cut off a torn end meanwhile. A read under the lock sees the new end.
            return Err(FsStoreError::damaged(self.path, at + read as u64, "the file ends early"));
        }
        Ok(())
    }
}

/// The lines between two offsets of a file, from the last line to the first.
#[derive(Debug)]
pub(crate) struct BackwardLines<'a> {
    source: LogSource<'a>,
    /// The lower end: the start of a line.
    floor: u64,
    /// The offset of `window` in the file.
    start: u64,
    window: Vec<u8>,
    /// The number of bytes of `window` that are not yet returned.
    left: usize,
    next_read: u64,
}

impl<'a> BackwardLines<'a> {
    /// Reads from `end` down to `floor`, which must be the start of a line.
    pub(crate) fn new(source: LogSource<'a>, floor: u64, end: u64) -> Self {
        Self { source, floor, start: end.max(floor), window: Vec::new(), left: 0, next_read: FIRST_READ }
    }

    /// Returns the offset between the returned lines and the remaining ones.
    pub(crate) fn position(&self) -> u64 {
        self.start + self.left as u64
    }

    /// Returns the bytes after the last newline, and their offset. They are empty if the file ends with a newline, as it should.
    pub(crate) fn remainder(&mut self) -> Result<(u64, &[u8]), FsStoreError> {
        self.left_after_newline(0)
    }

    /// Returns the previous line, without its newline, and its offset.
    ///
    /// The unread part must end with a newline. It does so after [`remainder`](Self::remainder), and after each call of this method.
    pub(crate) fn previous(&mut self) -> Result<Option<(u64, &[u8])>, FsStoreError> {
        if self.position() == self.floor {
            return Ok(None);
        }
        self.left_after_newline(1).map(Some)
    }

    /// Returns the bytes of the unread part after its last newline, and their offset. Ignores the last `skip` bytes of the unread part.
    fn left_after_newline(&mut self, skip: usize) -> Result<(u64, &[u8]), FsStoreError> {
        if self.left < skip {
            self.fill()?;
        }
        let mut unseen = self.left - skip;
        let begin = loop {
            if let Some(newline) = memrchr(b'\n', &self.window[..unseen]) {
                break newline + 1;
            }
            if self.start == self.floor {
                break 0;
            }
            if self.left > MAX_LINE {
                return Err(FsStoreError::damaged(self.source.path, self.start, "a line has no end"));
            }
            unseen = self.fill()?;
        };
        let line = begin..self.left - skip;
        self.left = begin;
        Ok((self.start + begin as u64, &self.window[line]))
    }

    /// Reads the bytes before the window, and returns their number.
    fn fill(&mut self) -> Result<usize, FsStoreError> {
        // Read at least as much as the window has, so that a very long line is copied only a few times.
        let wanted = self.next_read.max(self.left as u64).min(self.start - self.floor);
        self.next_read = (self.next_read * 2).min(LARGEST_READ);
        let read = usize::try_from(wanted).expect("bounded by twice the longest line");
        let mut window = vec![0; read + self.left];
        self.source.read(&mut window[..read], self.start - wanted)?;
        window[read..].copy_from_slice(&self.window[..self.left]);
        self.window = window;
        self.start -= wanted;
        self.left += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::disk::RealDisk;

    fn lines_of(content: &[u8], floor: u64) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let source = LogSource { disk: &RealDisk, file: file.as_file(), path: file.path() };
        let mut lines = BackwardLines::new(source, floor, content.len() as u64);
        let remainder = lines.remainder().unwrap().1.to_vec();
        let mut found = Vec::new();
        while let Some((at, line)) = lines.previous().unwrap() {
            found.push((at, line.to_vec()));
        }
        (remainder, found)
    }

    #[test]
    fn reverse_reader_returns_lines_down_to_floor() {
        assert_eq!(lines_of(b"", 0), (vec![], vec![]));
        assert_eq!(lines_of(b"ab", 0), (b"ab".to_vec(), vec![]));
        assert_eq!(lines_of(b"\n", 0), (vec![], vec![(0, vec![])]));
        assert_eq!(
            lines_of(b"a\n\nbc\nd", 0),
            (b"d".to_vec(), vec![(3, b"bc".to_vec()), (2, vec![]), (0, b"a".to_vec())])
        );
        assert_eq!(lines_of(b"a\nb\n", 2), (vec![], vec![(2, b"b".to_vec())]));
    }

    #[test]
    fn finds_lines_of_any_length_whatever_the_reads() {
        for length in [0, 1, 16_382, 16_383, 16_384, 16_385, 100_000, 3_000_000] {
            let long = vec![b'x'; length];
            let content = [b"first\n", &*long, b"\nlast\n"].concat();
            let (remainder, found) = lines_of(&content, 0);
            assert!(remainder.is_empty());
            let expected =
                vec![(7 + length as u64, b"last".to_vec()), (6, long.clone()), (0, b"first".to_vec())];
            assert!(found == expected, "a line of {length} bytes");
        }
    }
}
