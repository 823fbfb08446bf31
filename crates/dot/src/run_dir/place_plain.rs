//! Addresses a file by its path, on systems on which a command cannot create links without a permission.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};

/// The path of a file below a root.
pub(super) struct Place(PathBuf);

impl Place {
    /// Returns the path of a file below the root.
    pub(super) fn found(root: &Path, path: &Path) -> io::Result<Self> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "the path is outside the directory");
        let inside = path.strip_prefix(root).map_err(|_| outside())?;
        let is_plain = inside.components().all(|part| matches!(part, Component::Normal(_)));
        if is_plain { Ok(Self(path.to_owned())) } else { Err(outside()) }
    }

    /// Returns the path of a file below the root, and creates missing directories.
    pub(super) fn made(root: &Path, path: &Path) -> io::Result<Self> {
        let place = Self::found(root, path)?;
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        Ok(place)
    }

    /// Opens the file.
    pub(super) fn open(&self, to_append: bool) -> io::Result<File> {
        OpenOptions::new().read(!to_append).append(to_append).open(&self.0)
    }

    /// Creates the file `beside` in the same directory. The name must be unused.
    pub(super) fn create(&self, beside: &str) -> io::Result<File> {
        File::create_new(self.0.with_file_name(beside))
    }

    /// Renames the file `beside` to the name of this file.
    pub(super) fn rename(&self, beside: &str) -> io::Result<()> {
        std::fs::rename(self.0.with_file_name(beside), &self.0)
    }

    /// Removes the file, or the file `beside` in the same directory.
    pub(super) fn remove(&self, beside: Option<&str>) -> io::Result<()> {
        std::fs::remove_file(beside.map_or_else(|| self.0.clone(), |beside| self.0.with_file_name(beside)))
    }
}

/// Opens a file at any path.
pub(super) fn open_any(path: &Path) -> io::Result<File> {
    File::open(path)
}
