//! The combined result for all files.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measure::{Measure, Size};

/// Number of the largest files that are named.
const LARGEST: usize = 10;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Findings {
    pub(crate) files: u64,
    pub(crate) binary: u64,
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    pub(crate) words: u64,
    /// The length of the longest line, and its file.
    pub(crate) longest_line: Option<(u64, String)>,
    /// The largest files with their sizes, the largest first.
    pub(crate) largest: Vec<(u64, String)>,
    /// Groups of files with the same content. Groups that waste the most space come first.
    pub(crate) duplicates: Vec<Duplicates>,
    /// The files that could not be read, each with the reason.
    pub(crate) unreadable: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Duplicates {
    /// The size of each file in bytes.
    pub(crate) bytes: u64,
    pub(crate) paths: Vec<String>,
}

impl Findings {
    pub(crate) fn of(measures: Vec<Measure>) -> Self {
        let mut found = Self { files: measures.len() as u64, ..Self::default() };
        let mut by_hash = BTreeMap::<String, Duplicates>::new();
        for Measure { path, result } in measures {
            let Size { bytes, hash, text } = match result {
                Ok(size) => size,
                Err(why) => {
                    found.unreadable.push((path, why));
                    continue;
                }
            };
            found.bytes += bytes;
            match text {
                None => found.binary += 1,
                Some(text) => {
                    found.lines += text.lines;
                    found.words += text.words;
                    if found.longest_line.as_ref().is_none_or(|(longest, _)| text.longest_line > *longest) {
                        found.longest_line = Some((text.longest_line, path.clone()));
                    }
                }
            }
            found.largest.push((bytes, path.clone()));
            // Empty files have the same content, but this is not worth reporting.
            if bytes > 0 {
                by_hash.entry(hash).or_insert(Duplicates { bytes, paths: Vec::new() }).paths.push(path);
            }
        }
        // The sort is stable, so files of the same size keep the order of the list.
        found.largest.sort_by_key(|(bytes, _)| Reverse(*bytes));
        found.largest.truncate(LARGEST);
        found.duplicates = by_hash.into_values().filter(|group| group.paths.len() > 1).collect();
        found.duplicates.sort_by_key(|group| (Reverse(group.wasted()), group.paths[0].clone()));
        found
    }
}

impl Duplicates {
    /// Returns the number of bytes that one copy instead of all would save.
    pub(crate) fn wasted(&self) -> u64 {
        self.bytes * (self.paths.len() as u64 - 1)
    }
}
