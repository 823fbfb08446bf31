//! Addresses a file by its open directory and its name, so that a later change of the path does not lead to another file.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, open, openat, renameat, unlinkat};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// The mode of new files: only the user who runs the pipeline may read prompts, answers and outputs.
const PRIVATE: Mode = Mode::from_raw_mode(0o600);
const PRIVATE_DIRECTORY: Mode = Mode::from_raw_mode(0o700);

/// An open directory, and the name of a file in it.
pub(super) struct Place {
    directory: OwnedFd,
    name: OsString,
}

impl Place {
    /// Opens the directory of a file below the root.
    pub(super) fn found(root: &Path, path: &Path) -> io::Result<Self> {
        Self::of(root, path, |directory, name| {
            openat(directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
        })
    }

    /// Opens the directory of a file below the root, and creates missing directories.
    pub(super) fn made(root: &Path, path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        Self::of(root, path, |directory, name| {
            let enter = || openat(directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
            match enter() {
                Err(Errno::NOENT) => {}
                // Something other than a directory is at this path, perhaps a link to a directory. Remove it.
                Err(Errno::NOTDIR | Errno::LOOP) => unlinkat(directory, name, AtFlags::empty())?,
                entered => return entered,
            }
            match mkdirat(directory, name, PRIVATE_DIRECTORY) {
                Ok(()) | Err(Errno::EXIST) => enter(),
                Err(error) => Err(error),
            }
        })
    }

    fn of(
        root: &Path,
        path: &Path,
        enter: impl Fn(&OwnedFd, &OsStr) -> rustix::io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "the path is outside the directory");
        let inside = path.strip_prefix(root).map_err(|_| outside())?;
        let part = |part| match part {
            Component::Normal(name) => Ok(name),
            _ => Err(outside()),
        };
        let mut parts = inside.components().map(part).collect::<io::Result<Vec<&OsStr>>>()?;
        let name = parts.pop().ok_or_else(outside)?.to_owned();
        let mut directory = open(root, DIRECTORY, Mode::empty())?;
        for part in parts {
            directory = enter(&directory, part)?;
        }
        Ok(Self { directory, name })
    }

    /// Opens the file. The call does not wait and does not follow a link.
    pub(super) fn open(&self, to_append: bool) -> io::Result<File> {
        let access = if to_append { OFlags::WRONLY | OFlags::APPEND } else { OFlags::RDONLY };
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.directory, &self.name, flags, Mode::empty())?.into())
    }

    /// Creates the file `beside` in the same directory. The name must be unused.
    pub(super) fn create(&self, beside: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.directory, beside, flags, PRIVATE)?.into())
    }

    /// Renames the file `beside` to the name of this file.
    pub(super) fn rename(&self, beside: &str) -> io::Result<()> {
        Ok(renameat(&self.directory, beside, &self.directory, &self.name)?)
    }

    /// Removes the file, or the file `beside` in the same directory.
    pub(super) fn remove(&self, beside: Option<&str>) -> io::Result<()> {
        let name = beside.map_or(&*self.name, OsStr::new);
        Ok(unlinkat(&self.directory, name, AtFlags::empty())?)
    }
}

/// Opens a file at any path. The call does not wait.
pub(super) fn open_any(path: &Path) -> io::Result<File> {
    Ok(open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?.into())
}
