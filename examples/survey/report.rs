//! The report: its text, and how it replaces an earlier report.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use crate::findings::Findings;

/// Returns the part of the report that is also printed on the terminal.
pub(crate) fn summary(found: &Findings) -> String {
    let wasted: u64 = found.duplicates.iter().map(|group| group.wasted()).sum();
    format!(
        "files: {} ({} binary, {} unreadable)\nbytes: {}\nlines: {}\nwords: {}\nduplicates: {} groups, {wasted} bytes to save\n",
        found.files,
        found.binary,
        found.unreadable.len(),
        found.bytes,
        found.lines,
        found.words,
        found.duplicates.len(),
    )
}

pub(crate) fn report(dir: &str, found: &Findings) -> String {
    let mut text = format!("# Survey of {}\n\n", code(dir));
    for line in summary(found).lines() {
        line_of(&mut text, format_args!("- {line}"));
    }
    if let Some((longest, path)) = &found.longest_line {
        line_of(&mut text, format_args!("- longest line: {longest} characters in {}", code(path)));
    }
    text.push_str("\n## Largest files\n\n| bytes | file |\n|---:|---|\n");
    for (bytes, path) in &found.largest {
        line_of(&mut text, format_args!("| {bytes} | {} |", code(path).replace('|', "\\|")));
    }
    text.push_str("\n## Duplicates\n\n");
    if found.duplicates.is_empty() {
        text.push_str("None.\n");
    }
    for group in &found.duplicates {
        let paths: Vec<_> = group.paths.iter().map(|path| code(path)).collect();
        line_of(&mut text, format_args!("- {} bytes each: {}", group.bytes, paths.join(", ")));
    }
    if !found.unreadable.is_empty() {
        text.push_str("\n## Unreadable\n\n");
        for (path, why) in &found.unreadable {
            line_of(&mut text, format_args!("- {}: {why}", code(path)));
        }
    }
    text
}

fn line_of(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}

/// Formats a path as code, whatever characters it contains.
fn code(path: &str) -> String {
    let path = path.replace(char::is_control, "\u{fffd}");
    if path.contains('`') { format!("`` {path} ``") } else { format!("`{path}`") }
}

/// Replaces a file by a text. A reader sees either the old or the new file, even after a crash.
pub(crate) fn replace(path: &Path, text: &str, key: &str) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the report's path names no file"));
    };
    let temporary = folder.join(format!(".{}.{key}.tmp", name.to_string_lossy()));
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(folder)?.sync_all()
}
