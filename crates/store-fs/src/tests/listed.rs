//! Listings that read only the logs which changed since the last listing.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata_store::{Page, PruneCut, RunHead, RunQuery, Seq};

use super::author::Author;
use super::hasty::HastyDisk;
use super::{append, folder, prune, purge, reopened};
use crate::disk::{Disk, FileAccess, RealDisk};
use crate::inner::FsInner;
use crate::listed::{ListedLogs, SETTLED};

/// A file system that counts how often a file is opened.
#[derive(Debug, Default)]
struct CountingDisk(AtomicUsize);

impl Disk for CountingDisk {
    fn open(&self, path: &Path, access: FileAccess) -> io::Result<File> {
        self.0.fetch_add(1, Ordering::Relaxed);
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

    fn sync(&self, file: &File) -> io::Result<()> {
        HastyDisk.sync(file)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        HastyDisk.sync_dir(path)
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

/// Opens the folder like another process that trusts the stamp of every file.
fn trusting(root: &Path, disk: Arc<dyn Disk>, most: usize) -> FsInner {
    let mut folder = folder(root, disk);
    folder.listed = ListedLogs::with_limits(most, Duration::ZERO);
    folder.ready_to_read().expect("it can be read");
    folder
}

fn listed(folder: &FsInner) -> Vec<RunHead> {
    folder.runs(&RunQuery::default(), &Page::first(100)).unwrap().items
}

/// Returns what an instance lists that has read nothing before.
fn fresh(root: &Path) -> Vec<RunHead> {
    listed(&reopened(root))
}

#[test]
fn second_listing_opens_no_unchanged_log() {
    let directory = tempfile::tempdir().unwrap();
    let (root, disk) = (directory.path(), Arc::new(CountingDisk::default()));
    let writer = folder(root, Arc::new(HastyDisk));
    writer.set_up().unwrap();
    let mut authors: Vec<Author> = (0..20).map(|number| Author::new(&format!("r{number}"))).collect();
    for author in &mut authors {
        append(&writer, &author.write(&["0"])).unwrap();
    }
    let reader = trusting(root, Arc::clone(&disk) as _, 100);
    assert_eq!(listed(&reader).len(), 20);
    let opened = disk.0.load(Ordering::Relaxed);
    assert_eq!(listed(&reader), fresh(root));
    assert_eq!(disk.0.load(Ordering::Relaxed), opened, "no log is opened again");
    append(&writer, &authors[7].write(&["1"])).unwrap();
    assert_eq!(listed(&reader), fresh(root));
    assert_eq!(disk.0.load(Ordering::Relaxed), opened + 1, "only the changed log is opened");
}

#[test]
fn listing_sees_changes_of_other_processes() {
    let directory = tempfile::tempdir().unwrap();
    let (root, mut author) = (directory.path(), Author::new("r"));
    let writer = folder(root, Arc::new(HastyDisk));
    writer.set_up().unwrap();
    append(&writer, &author.write(&["0"])).unwrap();
    let reader = trusting(root, Arc::new(HastyDisk), 100);
    let check = |what: &str| assert_eq!(listed(&reader), fresh(root), "{what}");
    check("a start");
    append(&writer, &author.write(&["1", "2"])).unwrap();
    check("an append");
    append(&writer, &author.write_base("{}")).unwrap();
    check("a base");
    let head = author.head.unwrap().seq;
    prune(&writer, &author.run, &PruneCut { at: head, base: None }).unwrap();
    check("a prune");
    assert_ne!(fresh(root)[0].first, Seq::new(0), "the log was pruned");
    purge(&writer, &author.run).unwrap();
    check("a purge");
    assert!(listed(&reader).is_empty());
    append(&writer, &Author::new("r").write(&["the next start"])).unwrap();
    check("a start of the same id");
}

#[test]
fn log_that_has_just_changed_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let writer = folder(directory.path(), Arc::new(HastyDisk));
    writer.set_up().unwrap();
    append(&writer, &Author::new("r").write(&["0"])).unwrap();
    let mut reader = reopened(directory.path());
    reader.listed = ListedLogs::with_limits(100, Duration::from_secs(3_600));
    assert_eq!(listed(&reader).len(), 1);
    assert_eq!(reader.listed.len(), 0, "another change may get the same time");
    assert!(SETTLED >= Duration::from_secs(1), "file systems count time in ticks of up to a second");
}

#[test]
fn number_of_remembered_logs_is_limited() {
    let directory = tempfile::tempdir().unwrap();
    let (root, writer) = (directory.path(), folder(directory.path(), Arc::new(HastyDisk)));
    writer.set_up().unwrap();
    let start = |name: &str| append(&writer, &Author::new(name).write(&["0"])).unwrap();
    for number in 0..8 {
        start(&format!("old-{number}"));
    }
    let reader = trusting(root, Arc::new(HastyDisk), 5);
    assert_eq!(listed(&reader), fresh(root));
    assert_eq!(reader.listed.len(), 5);
    for number in 0..8 {
        purge(&writer, &Author::new(&format!("old-{number}")).run).unwrap();
    }
    for number in 0..3 {
        start(&format!("new-{number}"));
    }
    // The first listing after the purges still keeps what the listing before it has used.
    assert_eq!((listed(&reader), listed(&reader)), (fresh(root), fresh(root)));
    assert!(reader.listed.get(&Author::new("new-0").run, stamp(&reader, "new-0")).is_some());
    assert!(reader.listed.len() <= 5);
}

fn stamp(folder: &FsInner, name: &str) -> crate::listed::FileStamp {
    let path = folder.layout.log(&Author::new(name).run);
    crate::listed::FileStamp::of(&std::fs::metadata(path).unwrap())
}
