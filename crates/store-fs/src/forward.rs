//! Reads a file line by line from an offset on. The memory use is limited by the longest line.

use memchr::memchr;

use crate::backward::LogSource;
use crate::error::FsStoreError;
use crate::line::MAX_LINE;

/// The size of a read: large enough that the calls cost little next to the processing of the data.
const READ: usize = 64 << 10;

/// The lines between two offsets of a file, in order.
#[derive(Debug)]
pub(crate) struct ForwardLines<'a> {
    source: LogSource<'a>,
    /// The offset of `window` in the file.
    start: u64,
    window: Vec<u8>,
    /// The number of bytes of `window` that are already returned.
    done: usize,
    /// The offset at which reading ends.
    end: u64,
}

impl<'a> ForwardLines<'a> {
    pub(crate) fn new(source: LogSource<'a>, from: u64, end: u64) -> Self {
        Self { source, start: from, window: Vec::new(), done: 0, end }
    }

    /// Returns the offset of the next line.
    pub(crate) fn position(&self) -> u64 {
        self.start + self.done as u64
    }

    /// Returns the next line, without its newline, and its offset. Returns `None` if no newline follows.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>, FsStoreError> {
        let mut seen = self.done;
        let newline = loop {
            if let Some(at) = memchr(b'\n', &self.window[seen..]) {
                break seen + at;
            }
            if self.window.len() - self.done > MAX_LINE {
                return Err(FsStoreError::damaged(self.source.path, self.position(), "a line has no end"));
            }
            seen = self.window.len() - self.done;
            if !self.fill()? {
                return Ok(None);
            }
        };
        let (at, line) = (self.position(), self.done..newline);
        self.done = newline + 1;
        Ok(Some((at, &self.window[line])))
    }

    /// Drops the returned bytes from the window and reads more. Returns whether there was more to read.
    fn fill(&mut self) -> Result<bool, FsStoreError> {
        self.start += self.done as u64;
        self.window.drain(..self.done);
        self.done = 0;
        let from = self.start + self.window.len() as u64;
        // Read at least as much as the window has, so that a long line is searched only a few times.
        let wanted = (READ.max(self.window.len()) as u64).min(self.end.saturating_sub(from));
        let old = self.window.len();
        self.window.resize(old + usize::try_from(wanted).expect("bounded by twice the longest line"), 0);
        self.source.read(&mut self.window[old..], from)?;
        Ok(wanted > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::disk::RealDisk;

    fn lines_of(content: &[u8], from: u64) -> Vec<(u64, Vec<u8>)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let source = LogSource { disk: &RealDisk, file: file.as_file(), path: file.path() };
        let mut lines = ForwardLines::new(source, from, content.len() as u64);
        let mut found = Vec::new();
        while let Some((at, line)) = lines.next().unwrap() {
            found.push((at, line.to_vec()));
        }
        assert_eq!(
            lines.position(),
            found.last().map_or(from, |(at, line)| at + line.len() as u64 + 1),
            "a line without an end is not passed on"
        );
        found
    }

    #[test]
    fn hands_out_lines_that_end() {
        assert_eq!(lines_of(b"", 0), vec![]);
        assert_eq!(lines_of(b"ab", 0), vec![]);
        assert_eq!(lines_of(b"a\n\nbc\nd", 0), vec![(0, b"a".to_vec()), (2, vec![]), (3, b"bc".to_vec())]);
        assert_eq!(lines_of(b"a\nb\n", 2), vec![(2, b"b".to_vec())]);
    }

    #[test]
    fn finds_lines_of_any_length_whatever_the_reads() {
        for length in [0, 65_534, 65_535, 65_536, 65_537, 3_000_000] {
            let long = vec![b'x'; length];
            let content = [b"first\n", &*long, b"\nlast\n"].concat();
            let expected =
                vec![(0, b"first".to_vec()), (6, long.clone()), (7 + length as u64, b"last".to_vec())];
            assert!(lines_of(&content, 0) == expected, "a line of {length} bytes");
        }
    }
}
