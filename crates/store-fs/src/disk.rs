//! The one door to the file system, so that tests can fail, cut short or undo any call that goes through it.

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
    /// Reading only, so that a reader needs no right to write.
    Read,
    /// Reading and writing what exists, if its name is no link.
    Write,
    /// Reading and writing. Creates a missing file, never truncates. Neither its name nor another one of it may be a link: otherwise a user who can
    /// create links in the folder could make the store overwrite any file that this process may write.
    Create,
}

/// The identity of a path's or an open file's file, independent of its names.
///
/// Comparing two identities is safe while one of the files is open, because the system does not reuse the number of an open file.
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

/// The calls the store makes.
pub(crate) trait Disk: fmt::Debug + Send + Sync + 'static {
    fn open(&self, path: &Path, access: FileAccess) -> io::Result<File>;

    fn stat(&self, path: &Path) -> io::Result<Metadata>;

    /// Returns the identity of the named file, and reads nothing else: after a read of a file's times, Linux updates them at its next write, which
    /// adds a block to its next sync.
    fn ident(&self, path: &Path) -> io::Result<FileIdent> {
        self.stat(path).map(|metadata| FileIdent::of(&metadata))
    }

    /// Reads up to `buffer.len()` bytes; fewer than that only at the end of the file.
    fn read_at(&self, file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()>;

    fn set_len(&self, file: &File, len: u64) -> io::Result<()>;

    /// Brings the file's content and length to stable storage.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Brings the names in a directory to stable storage.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory; `Ok` if it exists.
    fn make_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames a file, and replaces any file with the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// Syncs files concurrently, and returns the result of each: the file system writes many files to the disk together.
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

/// The machine's own file system.
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
