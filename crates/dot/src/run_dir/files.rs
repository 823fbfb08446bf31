//! Files that appear whole or not at all, and are left alone when they already say what they are to say.

use std::io;
use std::path::{Path, PathBuf};

/// What is put beside a file while it is written. Views are written by one process at a time: the one that has the run.
const NEW: &str = ".new";

/// Writes a file by way of another that is renamed, unless it holds this already. Directories are made as needed.
///
/// It is not brought to the disk by force: the log is the truth, and what a power cut damages is written again.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if holds(path, content) {
        return Ok(());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(NEW);
    let beside = path.with_file_name(name);
    match std::fs::write(&beside, content) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            std::fs::write(&beside, content)?;
        }
        other => other?,
    }
    std::fs::rename(&beside, path)
}

/// Adds lines at the end of a file.
pub(super) fn append(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    std::fs::OpenOptions::new().append(true).create(true).open(path)?.write_all(content)
}

/// Tells whether a file holds exactly this.
pub(super) fn holds(path: &Path, content: &[u8]) -> bool {
    let same_size = std::fs::metadata(path).is_ok_and(|about| about.len() == content.len() as u64);
    same_size && std::fs::read(path).is_ok_and(|found| found == content)
}

/// Turns a name into one part of a path that is no other name's and leads nowhere else: `../x` stays in its directory.
///
/// The ids of the dialect are kept as they are. Everything else is written as `%2E`, so that no directory of a node has a name
/// that a file of a run directory has.
pub(super) fn component(name: &str) -> PathBuf {
    use std::fmt::Write as _;
    /// What file systems take for one part of a path, with room for [`NEW`].
    const MOST: usize = 200;
    let mut part = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            part.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(part, "%{byte:02X}");
        }
    }
    if part.is_empty() || part.len() > MOST {
        // No other name ends so: after a `%` stand two digits.
        let digest = blake3::hash(name.as_bytes()).to_hex();
        part.truncate(MOST - 80);
        part.push_str("%_");
        part.push_str(digest.as_str());
    }
    part.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        for (name, part) in [
            ("plan", "plan"),
            ("Plan_2", "Plan_2"),
            ("../x", "%2E%2E%2Fx"),
            ("..", "%2E%2E"),
            ("/etc/passwd", "%2Fetc%2Fpasswd"),
            ("checkpoint.json", "checkpoint%2Ejson"),
            ("a%2E", "a%252E"),
        ] {
            assert_eq!(component(name), Path::new(part), "{name}");
        }
        let (one, other) = ("é".repeat(200), "é".repeat(201));
        assert!(component(&one).as_os_str().len() <= 220 && component(&one) != component(&other));
        assert_ne!(component(""), Path::new(""));
    }

    #[test]
    fn a_file_is_replaced_whole_and_left_alone_if_it_is_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c.json");
        write(&path, b"one").unwrap();
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        write(&path, b"one").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), before);
        write(&path, b"two").unwrap();
        append(&path, b"\nthree").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\nthree");
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }
}
