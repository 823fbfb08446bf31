//! Measures one file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

const PIECE: usize = 64 * 1024;

/// A file with its measurement, or with the reason why it could not be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measure {
    pub(crate) path: String,
    pub(crate) result: Result<Size, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) hash: String,
    /// The counts of a text; `None` if the file contains a zero byte, which texts do not.
    pub(crate) text: Option<Text>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Text {
    /// The number of lines. The last line counts even if it does not end in a line feed.
    pub(crate) lines: u64,
    /// The number of words: parts that are separated by white space.
    pub(crate) words: u64,
    /// The length of the longest line in characters.
    pub(crate) longest_line: u64,
}

/// Reads a file once, in parts.
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
                // A character is counted at its first byte.
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
