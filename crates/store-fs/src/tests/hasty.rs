//! A file system whose syncs return at once, for tests without power loss. Such tests do not wait for a disk.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

use crate::disk::{Disk, FileAccess, RealDisk};

#[derive(Debug)]
pub(super) struct HastyDisk;

impl Disk for HastyDisk {
    fn open(&self, path: &Path, access: FileAccess) -> io::Result<File> {
        RealDisk.open(path, access)
    }

    fn stat(&self, path: &Path) -> io::Result<Metadata> {
        RealDisk.stat(path)
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        RealDisk.read_at(file, buffer, at)
    }

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        RealDisk.write_at(file, bytes, at)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        RealDisk.set_len(file, len)
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.stat(path).map(|_| ())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.make_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
}
