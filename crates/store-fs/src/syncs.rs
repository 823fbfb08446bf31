//! Brings several files to stable storage at once, so that the file system joins them in few commits of its journal.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

use crate::disk::Disk;

/// How many files a thread syncs one after the other: when its first is on stable storage, what the others wait for has
/// mostly been done along with it, and a thread more costs about as much as that.
const EACH: usize = 4;

/// Files that several threads work through.
#[derive(Debug)]
struct Syncs {
    files: Vec<Arc<File>>,
    work: Mutex<Work>,
    ended: Condvar,
}

#[derive(Debug)]
struct Work {
    next: usize,
    results: Vec<io::Result<()>>,
    /// How many of the files are not through.
    left: usize,
}

/// Syncs each file, and returns what came of each; up to `parallel` at the same time.
///
/// The thread that calls does a part of it. Where tokio has no thread for the others, or none to spare, it does all.
pub(crate) fn sync_each(
    disk: &Arc<dyn Disk>,
    files: Vec<Arc<File>>,
    parallel: NonZeroUsize,
) -> Vec<io::Result<()>> {
    let threads = files.len().div_ceil(EACH).min(parallel.get());
    let results = files.iter().map(|_| Ok(())).collect();
    let work = Work { next: 0, results, left: files.len() };
    let syncs = Arc::new(Syncs { files, work: Mutex::new(work), ended: Condvar::new() });
    if let Ok(runtime) = Handle::try_current() {
        for _ in 1..threads {
            let (syncs, disk) = (Arc::clone(&syncs), Arc::clone(disk));
            // Not waited for: what it has not begun, nobody waits for, either.
            drop(runtime.spawn_blocking(move || syncs.take_part(&*disk)));
        }
    }
    syncs.take_part(&**disk);
    let mut work = syncs.work();
    while work.left > 0 {
        work = syncs.ended.wait(work).unwrap_or_else(PoisonError::into_inner);
    }
    std::mem::take(&mut work.results)
}

impl Syncs {
    fn take_part(&self, disk: &dyn Disk) {
        let mut work = self.work();
        while let Some(file) = self.files.get(work.next) {
            let number = work.next;
            work.next += 1;
            drop(work);
            let done = disk.sync(file);
            work = self.work();
            work.results[number] = done;
            work.left -= 1;
        }
        if work.left == 0 {
            self.ended.notify_one();
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        // A thread that panicked in here has left a number and a result, and no part of one.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;
    use std::sync::Barrier;

    use super::*;
    use crate::disk::{Access, RealDisk};

    /// A disk on which syncs end only when as many are under way as there are to be threads, and fail for odd files.
    #[derive(Debug)]
    struct Meeting {
        threads: Barrier,
        seen: Mutex<HashSet<u64>>,
    }

    impl Disk for Meeting {
        fn sync(&self, file: &File) -> io::Result<()> {
            self.threads.wait();
            let len = file.metadata()?.len();
            assert!(self.seen.lock().unwrap().insert(len), "file {len} was synced before");
            if len % 2 == 1 { Err(io::Error::from_raw_os_error(i32::try_from(len).unwrap())) } else { Ok(()) }
        }

        fn open(&self, path: &Path, access: Access) -> io::Result<File> {
            RealDisk.open(path, access)
        }

        fn stat(&self, path: &Path) -> io::Result<std::fs::Metadata> {
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

        fn sync_dir(&self, path: &Path) -> io::Result<()> {
            RealDisk.sync_dir(path)
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

    /// Syncs files of 0, 1, 2 … bytes, and checks that each is told what came of its own.
    fn check(files: usize, parallel: usize, threads: usize) {
        let seen = Mutex::default();
        let disk: Arc<dyn Disk> = Arc::new(Meeting { threads: Barrier::new(threads), seen });
        let made = (0..files).map(|len| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(len as u64).unwrap();
            Arc::new(file)
        });
        let results = sync_each(&disk, made.collect(), NonZeroUsize::new(parallel).unwrap());
        let told: Vec<_> =
            results.into_iter().map(|done| done.err().and_then(|e| e.raw_os_error())).collect();
        let expected: Vec<_> =
            (0..files).map(|len| (len % 2 == 1).then(|| i32::try_from(len).unwrap())).collect();
        assert_eq!(told, expected);
    }

    #[tokio::test]
    async fn as_many_threads_as_the_files_are_worth_sync_each_of_them_once() {
        let work = || {
            check(0, 16, 1);
            check(1, 16, 1);
            check(EACH, 16, 1);
            check(4 * EACH, 16, 4);
            check(4 * EACH, 2, 2);
        };
        tokio::task::spawn_blocking(work).await.unwrap();
    }

    #[test]
    fn without_a_runtime_one_thread_does_all() {
        check(64, 16, 1);
    }
}
