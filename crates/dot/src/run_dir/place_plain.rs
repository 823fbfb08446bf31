//! Where a file is, by its path: on systems on which commands can make no links without being allowed to.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};

/// A path below a root.
pub(super) struct Place(PathBuf);

impl Place {
    /// Finds the place of a file below the root.
    pub(super) fn found(root: &Path, path: &Path) -> io::Result<Self> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "it is not inside of the directory");
        let inside = path.strip_prefix(root).map_err(|_| outside())?;
        let is_plain = inside.components().all(|part| matches!(part, Component::Normal(_)));
        if is_plain { Ok(Self(path.to_owned())) } else { Err(outside()) }
    }

    /// Finds it, and makes the directories that lead there.
    pub(super) fn made(root: &Path, path: &Path) -> io::Result<Self> {
        let place = Self::found(root, path)?;
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        Ok(place)
    }

    /// Opens what is there.
    pub(super) fn open(&self, to_append: bool) -> io::Result<File> {
        OpenOptions::new().read(!to_append).append(to_append).open(&self.0)
    }

    /// Makes a file beside it under a name that nothing has.
    pub(super) fn create(&self, beside: &str) -> io::Result<File> {
        File::create_new(self.0.with_file_name(beside))
    }

    /// Puts the file beside it in its place.
    pub(super) fn rename(&self, beside: &str) -> io::Result<()> {
        std::fs::rename(self.0.with_file_name(beside), &self.0)
    }

    /// Removes what is there, or the file beside it.
    pub(super) fn remove(&self, beside: Option<&str>) -> io::Result<()> {
        std::fs::remove_file(beside.map_or_else(|| self.0.clone(), |beside| self.0.with_file_name(beside)))
    }
}

/// Opens a file, wherever it is.
pub(super) fn open_any(path: &Path) -> io::Result<File> {
    File::open(path)
}
