//! The interface to the file system. All calls go through it, so that tests can make any call fail, stop halfway or lose its effect.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The purpose of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileAccess {
    /// Opens a file only for reading, so that a reader needs no permission to write.
    Read,
    /// Opens an existing file for reading and writing. Fails if the name is a link.
    Write,
    /// Opens a file for reading and writing. Creates a missing file, and never truncates a file. Fails if the name is a link, or if the file has
    /// another name. Otherwise a user who can create links in the folder could make the store overwrite any file that this process may write.
    Create,
}

/// The identity of a file, whatever its names are.
///
/// Two identities may be compared while one of the files is open, because the system does not reuse the number of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdent {
    device: u64,
    inode: u64,
}

impl FileIdent {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    pub(crate) fn inode(self) -> u64 {
        self.inode
    }
}

/// The calls that the store makes to the file system.
pub(crate) trait Disk: fmt::Debug + Send + Sync + 'static {
    fn open(&self, path: &Path, access: FileAccess) -> io::Result<File>;

    fn stat(&self, path: &Path) -> io::Result<Metadata>;

    /// Returns the identity of the file with this name. It must not read the times of the file: Linux would then update them at the next write,
    /// which adds a block to the next sync.
    fn ident(&self, path: &Path) -> io::Result<FileIdent> {
        self.stat(path).map(|metadata| FileIdent::of(&metadata))
    }

    /// Reads up to `buffer.len()` bytes. Reads fewer only at the end of the file.
    fn read_at(&self, file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()>;

    fn set_len(&self, file: &File, len: u64) -> io::Result<()>;

    /// Makes the file's content and length durable.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory; `Ok` if it exists.
    fn make_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames a file, and replaces any file with the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// Syncs files concurrently, and returns the result of each sync. The file system then writes many files to the disk together.
pub(crate) fn sync_each(disk: &dyn Disk, files: &[Arc<File>], parallel: usize) -> Vec<io::Result<()>> {
    if files.len() < 2 || parallel < 2 {
        return files.iter().map(|file| disk.sync(file)).collect();
    }
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(files.len())));
    let work = || {
        while let Some((at, file)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, files.get(at)?)))
        {
            let synced = disk.sync(file);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, synced));
        }
    };
    std::thread::scope(|threads| {
        (1..parallel.min(files.len())).for_each(|_| drop(threads.spawn(work)));
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, synced)| synced).collect()
}

/// The file system of the machine.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, access: FileAccess) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true);
        if access != FileAccess::Read {
            options.write(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        }
        if access == FileAccess::Create {
            options.create(true).truncate(false);
        }
        let file = options.open(path)?;
        match access == FileAccess::Create && file.metadata()?.nlink() > 1 {
            true => Err(Errno::MLINK.into()),
            false => Ok(file),
        }
    }

    fn stat(&self, path: &Path) -> io::Result<Metadata> {
        fs::metadata(path)
    }

    #[cfg(target_os = "linux")]
    fn ident(&self, path: &Path) -> io::Result<FileIdent> {
        use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO)?;
        let device = makedev(found.stx_dev_major, found.stx_dev_minor);
        Ok(FileIdent { device, inode: found.stx_ino })
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            result => result,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}
