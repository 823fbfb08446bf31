//! Measuring one file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

const PIECE: usize = 64 * 1024;

/// A file, and what it measures or why it could not be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measure {
    pub(crate) path: String,
    pub(crate) result: Result<Size, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) hash: String,
    /// Absent if the file holds a zero byte, as text does not.
    pub(crate) text: Option<Text>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Text {
    /// The last one counts whether it ends with a line feed or not.
    pub(crate) lines: u64,
    /// What is between white space.
    pub(crate) words: u64,
    /// In characters.
    pub(crate) longest_line: u64,
}

/// Reads a file once, piece by piece.
pub(crate) fn measure(path: &Path) -> io::Result<Size> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; PIECE];
    let (mut hasher, mut bytes, mut binary) = (blake3::Hasher::new(), 0, false);
    let (mut text, mut line, mut in_word, mut in_line) = (Text::default(), 0_u64, false, false);
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => &piece[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(read);
        bytes += read.len() as u64;
        binary |= read.contains(&0);
        if binary {
            continue;
        }
        for &byte in read {
            in_line = byte != b'\n';
            if in_line {
                // A character is counted by its first byte.
                line += u64::from(byte & 0xC0 != 0x80);
            } else {
                text.lines += 1;
                text.longest_line = text.longest_line.max(line);
                line = 0;
            }
            let white = byte.is_ascii_whitespace();
            text.words += u64::from(!white && !in_word);
            in_word = !white;
        }
    }
    text.lines += u64::from(in_line);
    text.longest_line = text.longest_line.max(line);
    Ok(Size { bytes, hash: hasher.finalize().to_hex().to_string(), text: (!binary).then_some(text) })
}
