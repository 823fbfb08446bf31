//! Several faults at once, locks that are not released, and concurrent writers, prunes and purges.

use std::fs::{File, Metadata};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use ferrata_store::{At, Error, ErrorKind, HeadRef, HeaderRange, PruneCut, SystemClock};

use super::author::Author;
use super::faulty::{FaultyDisk, Loss, Trouble};
use super::{append, folder, ids, prune, purge, reopened};
use crate::config::FsOptions;
use crate::disk::{Disk, FileAccess, RealDisk};
use crate::error::FsStoreError;
use crate::inner::FsInner;
use crate::journal::JournalLimits;
use crate::layout::FsLayout;

const EIO: i32 = 5;

fn kind(fault: FsStoreError) -> ErrorKind {
    Error::from(fault).kind()
}

struct Place {
    directory: tempfile::TempDir,
    disk: Arc<FaultyDisk>,
    folder: FsInner,
    author: Author,
}

/// A folder with a run of one record, on a disk that can fail on request.
fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::new(&directory.path().join("graves")));
    let folder = folder(&directory.path().join("store"), Arc::clone(&disk) as _);
    folder.set_up().unwrap();
    let mut author = Author::new("r");
    append(&folder, &author.write(&["0"])).unwrap();
    Place { directory, disk, folder, author }
}

impl Place {
    /// Makes the calls with these numbers fail, counted from 0 and from now on.
    fn fail(&self, calls: &[usize]) {
        let now = self.disk.calls().len();
        calls.iter().for_each(|call| self.disk.trouble_at(now + call, Trouble::Fail(EIO)));
    }

    fn check_durable(&self) {
        self.disk.lose(Loss::Content);
        let left = ids(&reopened(&self.directory.path().join("store")), &self.author.run).unwrap();
        assert_eq!(left.and_then(|ids| ids.last().copied()), self.author.head.map(|head| head.id));
    }
}

/// Guarantees: FS-8.
#[test]
fn failed_write_without_undo_is_indeterminate() {
    let mut place = place();
    let entry = place.author.write(&["1", "2"]);
    // The write fails, and so does the cut back to the old length.
    place.fail(&[0, 1]);
    assert_eq!(kind(append(&place.folder, &entry).unwrap_err()), ErrorKind::Indeterminate);
    // Half of the write is in the file, but no reader sees it.
    assert_eq!(ids(&place.folder, &place.author.run).unwrap().unwrap().len(), 1);
    append(&place.folder, &entry).unwrap();
    place.check_durable();
}

/// Guarantees: FS-9.
#[test]
fn failed_sync_blocks_replies_until_log_is_copied() {
    let mut place = place();
    let entry = place.author.write(&["1"]);
    place.fail(&[1]);
    assert_eq!(kind(append(&place.folder, &entry).unwrap_err()), ErrorKind::Indeterminate);
    // Let each call of making the other file fail in turn: the outcome of the records stays unknown.
    for call in 0..6 {
        place.fail(&[call]);
        assert_eq!(kind(append(&place.folder, &entry).unwrap_err()), ErrorKind::Indeterminate, "call {call}");
    }
    // A reader sees what the system holds.
    assert_eq!(
        ids(&place.folder, &place.author.run).unwrap().unwrap().last(),
        Some(&entry.records[0].header.id)
    );
    append(&place.folder, &entry).unwrap();
    let calls = place.disk.calls();
    assert!(calls.iter().any(|call| call == "rename r.jsonl"), "{calls:?}");
    place.check_durable();
}

/// Guarantees: FS-9.
#[test]
fn copied_log_is_locked_before_writing() {
    let mut place = place();
    let entry = place.author.write(&["1"]);
    place.fail(&[1]);
    assert_eq!(kind(append(&place.folder, &entry).unwrap_err()), ErrorKind::Indeterminate);
    // The copy has its name, and another process appends to it before the first process continues.
    let root = place.directory.path().join("store");
    let rival = place.author.clone().write(&["2"]);
    let (said, hears) = std::sync::mpsc::channel();
    let their_append = rival.clone();
    place.disk.meanwhile("sync_dir default", move || {
        said.send(append(&reopened(&root), &their_append).is_ok()).unwrap();
    });
    let ours = append(&place.folder, &place.author.clone().write(&["3"]));
    assert!(hears.recv().unwrap(), "no process holds the copy open, so the other process is not refused");
    let theirs = rival.records[0].header.head();
    let is_refused = matches!(ours, Err(FsStoreError::Conflict { actual, .. }) if actual == Some(theirs));
    assert!(is_refused, "{ours:?}");
    let left = ids(&reopened(&place.directory.path().join("store")), &place.author.run).unwrap().unwrap();
    assert_eq!(left.last(), Some(&theirs.id), "acknowledged records must exist");
}

/// Guarantees: FS-10.
#[test]
fn repeated_append_syncs_before_acknowledgment() {
    let mut place = place();
    let entry = place.author.write(&["1"]);
    let now = place.disk.calls().len();
    place.disk.trouble_at(now + 1, Trouble::DieBefore);
    assert!(append(&place.folder, &entry).is_err());
    // Another process finds the records that the first process has written but not synced.
    let other = reopened(&place.directory.path().join("store"));
    let log = other.layout.log(&place.author.run);
    let disk = Arc::new(FaultyDisk::new(&place.directory.path().join("graves")));
    let other = folder(&place.directory.path().join("store"), Arc::clone(&disk) as _);
    append(&other, &entry).unwrap();
    assert!(log.exists());
    assert_eq!(disk.calls()[disk.calls().len() - 3..], ["sync ", "sync_dir default", "sync_dir runs"]);
}

#[test]
fn long_lock_fails_writers_and_spares_readers() {
    let directory = tempfile::tempdir().unwrap();
    let options = FsOptions::default().with_lock_wait(Duration::from_millis(20));
    let layout = FsLayout::new(directory.path().into());
    let folder = FsInner::new(
        Arc::new(RealDisk),
        layout,
        Arc::new(SystemClock::new()),
        options,
        JournalLimits::default(),
    );
    folder.set_up().unwrap();
    let mut author = Author::new("r");
    append(&folder, &author.write(&["0"])).unwrap();
    let holder = File::open(folder.layout.log(&author.run)).unwrap();
    holder.lock().unwrap();
    let entry = author.write(&["1"]);
    assert_eq!(kind(append(&folder, &entry).unwrap_err()), ErrorKind::Unavailable);
    let cut = PruneCut { at: ferrata_store::Seq::new(0), base: None };
    assert_eq!(kind(prune(&folder, &author.run, &cut).unwrap_err()), ErrorKind::Unavailable);
    assert_eq!(kind(purge(&folder, &author.run).unwrap_err()), ErrorKind::Unavailable);
    assert_eq!(ids(&folder, &author.run).unwrap().unwrap().len(), 1);
    append(&folder, &Author::new("other").write(&["0"])).unwrap();
    drop(holder);
    append(&folder, &entry).unwrap();
}

/// A disk on which the first read of a log happens while a writer cuts it off and writes it again. Or a disk on which a log is always missing when
/// it is opened, but exists when it is searched for.
#[derive(Debug)]
struct Shifting {
    is_read: AtomicBool,
    is_gone: bool,
}

impl Disk for Shifting {
    fn read_at(&self, file: &File, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
        let read = RealDisk.read_at(file, buffer, at)?;
        if !self.is_read.swap(true, Ordering::Relaxed) {
            buffer[read / 2] ^= 1;
        }
        Ok(read)
    }

    fn open(&self, path: &Path, access: FileAccess) -> std::io::Result<File> {
        if self.is_gone { Err(std::io::ErrorKind::NotFound.into()) } else { RealDisk.open(path, access) }
    }

    fn stat(&self, path: &Path) -> std::io::Result<Metadata> {
        RealDisk.stat(path)
    }

    fn write_at(&self, _file: &File, _bytes: &[u8], _at: u64) -> std::io::Result<()> {
        unreachable!("readers change nothing")
    }

    fn set_len(&self, _file: &File, _len: u64) -> std::io::Result<()> {
        unreachable!("readers change nothing")
    }

    fn sync(&self, _file: &File) -> std::io::Result<()> {
        unreachable!("readers change nothing")
    }

    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        RealDisk.sync_dir(path)
    }

    fn make_dir(&self, _path: &Path) -> std::io::Result<()> {
        unreachable!("readers change nothing")
    }

    fn rename(&self, _from: &Path, _to: &Path) -> std::io::Result<()> {
        unreachable!("readers change nothing")
    }

    fn remove(&self, _path: &Path) -> std::io::Result<()> {
        unreachable!("readers change nothing")
    }
}

/// Guarantees: FS-6.
#[test]
fn apparent_damage_is_reread_under_lock() {
    let place = place();
    let root = place.directory.path().join("store");
    let look = || folder(&root, Arc::new(Shifting { is_read: AtomicBool::new(false), is_gone: false }));
    let run = &place.author.run;
    assert_eq!(look().load(run, At::Latest).unwrap().unwrap().len(), 1);
    assert_eq!(look().headers(run, HeaderRange::newest(50)).unwrap().items.len(), 1);
    assert_eq!(look().head(run).unwrap().map(|head| head.head()), place.author.head);
}

#[test]
fn purge_without_lock_reports_existing_run() {
    let place = place();
    let root = place.directory.path().join("store");
    let shifting = folder(&root, Arc::new(Shifting { is_read: AtomicBool::new(false), is_gone: true }));
    let fault = purge(&shifting, &place.author.run).unwrap_err();
    assert_eq!(kind(fault), ErrorKind::Unavailable);
    assert_eq!(ids(&place.folder, &place.author.run).unwrap().unwrap().len(), 1);
}

#[test]
fn half_created_run_of_dead_process_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let folder = reopened(directory.path());
    folder.set_up().unwrap();
    let mut author = Author::new("r");
    let unborn = folder.layout.unnamed_log(&author.run);
    std::fs::create_dir(unborn.parent().unwrap()).unwrap();
    std::fs::write(&unborn, "half a line that is longer than what will be written".repeat(100)).unwrap();
    append(&folder, &author.write(&["0", "1"])).unwrap();
    assert!(!unborn.exists());
    assert_eq!(ids(&reopened(directory.path()), &author.run).unwrap().unwrap().len(), 2);
    // If the file remains next to an existing run, the purge of the run removes it.
    std::fs::write(&unborn, "half").unwrap();
    append(&folder, &author.write(&["2"])).unwrap();
    purge(&folder, &author.run).unwrap();
    assert!(!unborn.exists());
}

/// Runs `work` on several threads at the same time, each with its own instance.
fn at_once<T: Send>(root: &Path, threads: usize, work: impl Fn(usize, &FsInner) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(threads);
    let work = |number: usize| {
        let folder = reopened(root);
        barrier.wait();
        work(number, &folder)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Returns the head of the winner, and checks the errors of the others.
fn winner(results: &[Result<HeadRef, FsStoreError>]) -> HeadRef {
    let won: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(won.len(), 1, "{results:?}");
    for result in results {
        if let Err(fault) = result {
            assert!(
                matches!(fault, FsStoreError::Conflict { actual: Some(actual), .. } if actual == won[0]),
                "{fault:?}"
            );
        }
    }
    *won[0]
}

#[test]
fn racing_appends_to_one_head_have_one_winner() {
    let directory = tempfile::tempdir().unwrap();
    let mut author = Author::new("r");
    let mut written = Vec::new();
    for round in 0..30 {
        let results = at_once(directory.path(), 4, |_, folder| {
            folder.set_up().unwrap();
            append(folder, &author.clone().write(&["1", "2"]))
        });
        let head = winner(&results);
        written.push(head.id);
        author.head = Some(head);
        let found = ids(&reopened(directory.path()), &author.run).unwrap().unwrap();
        assert_eq!(found.len(), 2 * (round + 1));
        assert!(found.iter().skip(1).step_by(2).eq(&written));
    }
}

#[test]
fn racing_creations_of_run_have_one_winner() {
    let directory = tempfile::tempdir().unwrap();
    reopened(directory.path()).set_up().unwrap();
    for round in 0..60 {
        let author = Author::new(&format!("r{round}"));
        let results =
            at_once(directory.path(), 6, |_, folder| append(folder, &author.clone().write(&["1", "2"])));
        let head = winner(&results);
        let found = ids(&reopened(directory.path()), &author.run).unwrap().unwrap();
        assert_eq!((found.len(), found.last()), (2, Some(&head.id)));
    }
}

/// Guarantees: FS-20.
#[test]
fn many_instances_set_up_one_folder() {
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("new");
        at_once(&root, 8, |_, folder| folder.set_up().unwrap());
        assert_eq!(std::fs::read(root.join("ferrata.json")).unwrap(), b"{\"version\":1}\n");
    }
}

/// Tells the other threads to stop when it is dropped, even by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Stop<'_> {
    fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn pruning_while_others_append_and_read_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut author = Author::new("r");
    let folder = reopened(directory.path());
    folder.set_up().unwrap();
    append(&folder, &author.write(&["0"])).unwrap();
    let (run, stop) = (author.run.clone(), AtomicBool::new(false));
    let last = at_once(directory.path(), 3, |number, folder| {
        let stop = Stop(&stop);
        let mut author = author.clone();
        let mut count = 0;
        while !stop.is_said() {
            count += 1;
            let records = folder.load(&run, At::Latest).unwrap().unwrap();
            match number {
                0 => {
                    assert_eq!(records.last().map(|record| record.header.head()), author.head);
                    let entry =
                        if count % 5 == 0 { author.write_base("{}") } else { author.write(&["1", "22"]) };
                    assert_eq!(append(folder, &entry).unwrap(), author.head.unwrap());
                }
                1 => {
                    let cut = PruneCut { at: records[0].header.seq, base: None };
                    let pruned = prune(folder, &run, &cut).unwrap();
                    // The other thread has written enough for many prunes.
                    if pruned.records > 0 && cut.at.get() > 500 {
                        break;
                    }
                }
                _ => {
                    let head = folder.head(&run).unwrap().unwrap();
                    assert!(records.iter().all(|record| record.header.seq <= head.seq));
                    let page = folder.headers(&run, HeaderRange::newest(50)).unwrap();
                    assert!(page.items.last().unwrap().seq >= head.seq);
                }
            }
        }
        author.head
    })[0];
    let records = reopened(directory.path()).load(&run, At::Latest).unwrap().unwrap();
    assert_eq!(records.last().map(|record| record.header.head()), last);
}

#[test]
fn purge_during_appends_leaves_whole_runs_or_none() {
    let directory = tempfile::tempdir().unwrap();
    reopened(directory.path()).set_up().unwrap();
    let (run, stop) = (Author::new("r").run, AtomicBool::new(false));
    at_once(directory.path(), 4, |number, folder| {
        let stop = Stop(&stop);
        let mut author = Author::new("r");
        let mut purged = 0;
        while !stop.is_said() {
            match number {
                0 => {
                    purged += usize::from(purge(folder, &run).unwrap().records > 0);
                    if purged == 100 {
                        break;
                    }
                }
                1 | 2 => match append(folder, &author.clone().write(&["0", "1"])) {
                    Ok(head) => author.head = Some(head),
                    Err(FsStoreError::Conflict { actual, .. }) => author.head = actual,
                    Err(fault) => panic!("{fault}"),
                },
                _ => {
                    if let Some(records) = folder.load(&run, At::Latest).unwrap() {
                        assert!(records.len() % 2 == 0 && records[0].header.seq.get() == 0);
                    }
                }
            }
        }
    });
    let folder = reopened(directory.path());
    purge(&folder, &run).unwrap();
    assert_eq!(std::fs::read_dir(directory.path().join("runs/default")).unwrap().count(), 0);
}
