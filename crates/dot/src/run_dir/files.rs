//! Writes files so that each appears completely or not at all, and only if its content has changed.
//!
//! Commands also write into the run directory. So the code follows no link below the root, opens nothing that could wait for another process, and
//! limits the size of every read.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

#[cfg_attr(unix, path = "place.rs")]
#[cfg_attr(not(unix), path = "place_plain.rs")]
mod place;

use self::place::Place;

/// The name of the directory with files that are named by the hash of their content, inside a run directory.
pub(crate) const ARTIFACTS: &str = "artifacts";

/// Maximum number of attempts to find a free name for a temporary file. Only a process that guesses such names could occupy one.
const TRIES: u32 = 8;

/// Writes a file below the root through a temporary file that is then renamed. If the file already has this content, nothing is written. Missing
/// directories are created, even where a link or a file is in the way.
///
/// The file is not synced to disk. The log contains the data, so a file that a power failure damaged is written again.
pub(crate) fn write(root: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    if holds(root, path, content) {
        return Ok(());
    }
    let place = Place::made(root, path)?;
    let (beside, mut file) = create_beside(&place, path)?;
    let done = file.write_all(content).and_then(|()| place.rename(&beside));
    if done.is_err() {
        // Return the first error, because it explains the problem.
        let _ = place.remove(Some(&beside));
    }
    done
}

/// A file below a root that is written in parts. At the end, its name becomes the hash of its content. Dropping the value before that removes the
/// file.
#[derive(Debug)]
pub(crate) struct HashedFile {
    root: PathBuf,
    directory: PathBuf,
    beside: String,
    file: Option<std::fs::File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl HashedFile {
    /// Creates a file in a directory below the root. Creates the directory if it is missing.
    pub(crate) fn create(root: &Path, directory: &Path) -> io::Result<Self> {
        let place = Place::made(root, &directory.join("whole"))?;
        let (beside, file) = create_beside(&place, directory)?;
        let (root, directory) = (root.to_owned(), directory.to_owned());
        Ok(Self { root, directory, beside, file: Some(file), hasher: blake3::Hasher::new(), bytes: 0 })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn write(&mut self, content: &[u8]) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.write_all(content)?;
            self.hasher.update(content);
            self.bytes += content.len() as u64;
        }
        Ok(())
    }

    /// Renames the file to the hash of its content, and returns its path.
    pub(crate) fn finish(mut self) -> io::Result<PathBuf> {
        let path = self.directory.join(self.hasher.finalize().to_hex().as_str());
        Place::made(&self.root, &path)?.rename(&self.beside)?;
        self.file = None;
        Ok(path)
    }
}

impl Drop for HashedFile {
    fn drop(&mut self) {
        if self.file.take().is_some()
            && let Ok(place) = Place::found(&self.root, &self.directory.join(&self.beside))
        {
            // A killed process leaves such temporary files too. Another function removes all of them.
            let _ = place.remove(None);
        }
    }
}

/// Creates a file in the directory of a path, under a name that no command can have used before.
fn create_beside(place: &Place, path: &Path) -> io::Result<(String, std::fs::File)> {
    for _ in 0..TRIES {
        let beside = format!(".{:016x}.new", RandomState::new().hash_one(path));
        match place.create(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => return Ok((beside, file?)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Appends content to an existing file below the root.
pub(super) fn append(root: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    regular(Place::found(root, path)?.open(true)?)?.write_all(content)
}

/// Removes a file below the root; returns whether it existed.
pub(crate) fn remove(root: &Path, path: &Path) -> io::Result<bool> {
    let removed = Place::found(root, path).and_then(|place| place.remove(None));
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// Removes the files of a run's directory, and then the directory if it is empty. In the directory of a node, only the files of attempts are removed,
/// and in the directory of artifacts only files that are named by a hash. A user may have stored other files there.
pub(super) fn remove_views<'a>(
    root: &Path,
    nodes: impl IntoIterator<Item = &'a str>,
) -> Result<(), (PathBuf, io::Error)> {
    let whole = |path: &Path| remove_whole(path).map_err(|error| (path.to_owned(), error));
    for name in ["checkpoint.json", "manifest.json", "events.jsonl", "pipeline.dot"] {
        whole(&root.join(name))?;
    }
    let own = |directory: PathBuf, is_own: fn(&str) -> bool| {
        if !std::fs::symlink_metadata(&directory).is_ok_and(|about| about.is_dir()) {
            return Ok(());
        }
        let listed = std::fs::read_dir(&directory).map_err(|error| (directory.clone(), error))?;
        for entry in listed.flatten() {
            if entry.file_name().to_str().is_some_and(is_own) {
                whole(&entry.path())?;
            }
        }
        // If the directory contains other files, they belong to the user, and this call fails.
        let _ = std::fs::remove_dir(&directory);
        Ok(())
    };
    own(root.join(ARTIFACTS), is_artifact)?;
    for node in nodes {
        own(root.join(component(node)), is_attempt)?;
    }
    for beside in [root.join(super::BESIDE), root.to_owned()] {
        let _ = std::fs::remove_dir(&beside);
    }
    Ok(())
}

/// Removes the file or directory at a path, if it exists. If the path is a link, the link is removed and not its target.
pub(super) fn remove_whole(path: &Path) -> io::Result<()> {
    // Neither of the two functions follows a link.
    let removed = match std::fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => std::fs::remove_dir_all(path),
        _ => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns whether a name is the name of an artifact: the hash of its content.
pub(super) fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether a name is the name of an artifact, or of an incomplete artifact that a killed process has left.
fn is_artifact(name: &str) -> bool {
    let unfinished = name.strip_prefix('.').and_then(|name| name.strip_suffix(".new"));
    is_hash(name)
        || unfinished
            .is_some_and(|name| name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns whether a name is the name of an attempt: its visit and its number.
fn is_attempt(name: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('.').is_some_and(|(visit, attempt)| is_number(visit) && is_number(attempt))
}

/// Reads a regular file below the root. Links are rejected.
///
/// # Errors
///
/// Returns [`InvalidData`](io::ErrorKind::InvalidData) if the path is not a regular file, and [`FileTooLarge`](io::ErrorKind::FileTooLarge) if the
/// file has more than `most` bytes.
pub(crate) fn read(root: &Path, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bounded(Place::found(root, path)?.open(false)?, most)
}

/// Reads a file at any path, for the user who runs the pipeline. The path must lead to a regular file of at most `most` bytes.
///
/// # Errors
///
/// The errors of [`read`].
pub(crate) fn read_any(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bounded(place::open_any(path)?, most)
}

/// Returns the size of a file below the root; `None` if the file does not exist.
pub(super) fn size(root: &Path, path: &Path) -> Option<u64> {
    let file = Place::found(root, path).and_then(|place| place.open(false)).and_then(regular);
    file.and_then(|file| file.metadata()).ok().map(|about| about.len())
}

/// Returns whether a file has exactly this content.
fn holds(root: &Path, path: &Path, content: &[u8]) -> bool {
    let most = content.len() as u64;
    size(root, path) == Some(most) && read(root, path, most).is_ok_and(|found| found == content)
}

fn bounded(file: std::fs::File, most: u64) -> io::Result<Vec<u8>> {
    let file = regular(file)?;
    let mut content = Vec::new();
    // Read one byte more than the limit, because a file may grow during the read.
    file.take(most.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

/// Rejects pipes, devices and directories, because a read of one may never end.
fn regular(file: std::fs::File) -> io::Result<std::fs::File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"))
}

/// Converts a name to one component of a path. Different names give different components, and a component such as `../x` cannot leave its directory.
///
/// The ids of the dialect stay unchanged. Any other character becomes an escape such as `%2E`. So the directory of a node never has the name of a
/// file of the run directory.
pub(super) fn component(name: &str) -> PathBuf {
    use std::fmt::Write as _;
    /// Maximum length of a path component on common file systems, with space for the names of temporary files.
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
        // No other name ends in this way, because two digits follow each `%`.
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
    fn file_write_is_atomic_and_skips_equal_content() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let path = root.join("a/b/c.json");
        write(root, &path, b"one").unwrap();
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        write(root, &path, b"one").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), before);
        write(root, &path, b"two").unwrap();
        append(root, &path, b"\nthree").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\nthree");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no other file may remain");
    }

    /// Whatever a command puts at the path of a file is replaced. The code neither writes through it nor waits for it.
    #[cfg(unix)]
    #[test]
    fn obstacle_at_file_path_is_replaced_never_followed() {
        use std::os::unix::fs::symlink;
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (root, target) = (folder.path(), outside.path().join("target"));
        std::fs::write(&target, "outside").unwrap();
        let path = root.join("t/1.1/status.json");
        let planted: [(&str, &dyn Fn()); 5] = [
            ("a link to a file", &|| symlink(&target, &path).unwrap()),
            ("a link to nothing", &|| symlink(outside.path().join("new"), &path).unwrap()),
            ("a link to a device", &|| symlink("/dev/zero", &path).unwrap()),
            ("a pipe", &|| {
                assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
            }),
            ("a link in place of the directory", &|| {
                std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
                symlink(outside.path(), path.parent().unwrap()).unwrap();
            }),
        ];
        for (what, plant) in planted {
            write(root, &path, b"before").unwrap();
            std::fs::remove_file(&path).unwrap();
            plant();
            assert!(read(root, &path, 1 << 20).is_err(), "{what} must not be read");
            assert!(append(root, &path, b"more").is_err(), "{what} must not be written through");
            write(root, &path, b"content").unwrap();
            assert_eq!(read(root, &path, 7).unwrap(), b"content", "{what}");
            assert_eq!(read(root, &path, 6).unwrap_err().kind(), io::ErrorKind::FileTooLarge, "{what}");
            assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "{what}");
            assert_eq!(std::fs::read(&target).unwrap(), b"outside", "{what}");
            assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "{what}");
            assert!(remove(root, &path).unwrap() && !remove(root, &path).unwrap(), "{what}");
        }
        let above = write(root, &root.join("../x"), b"");
        assert_eq!(above.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
