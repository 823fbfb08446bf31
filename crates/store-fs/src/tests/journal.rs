//! Journals: which appends go through a journal, and what recovery restores from it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ferrata_store::{At, Error, ErrorKind, PruneCut, Record, RecordId, RunAppend, RunKey};
use ferrata_testing::ManualClock;

use super::author::{Author, key};
use super::faulty::{Chance, FaultyDisk, Loss};
use super::hasty::HastyDisk;
use super::{append, folder_with, ids, journaled, prune, purge};
use crate::batch::AppendBatch;
use crate::caller::CallerGuard;
use crate::error::FsStoreError;
use crate::inner::FsInner;
use crate::journal::{self, JournalLimits};

/// Appends a row. Also returns how many appends had to wait for another caller and were returned.
fn append_row(folder: &FsInner, entries: &[RunAppend]) -> (Vec<Result<(), Error>>, usize) {
    let (batch, waiting) = (AppendBatch::new(entries.to_vec(), 64), CallerGuard::new());
    let later = folder.append_row(batch.next_row().unwrap(), &batch, &waiting.caller());
    (batch.results().into_iter().map(|done| done.map(|_| ())).collect(), later.len())
}

/// A folder with a journal, on a disk without power loss.
fn ready(place: &Path) -> FsInner {
    let folder = journaled(place, Arc::new(HastyDisk));
    folder.ready_to_write().unwrap();
    folder
}

fn authors(folder: &FsInner, number: usize) -> Vec<Author> {
    (0..number)
        .map(|number| {
            let mut author = Author::new(&number.to_string());
            append(folder, &author.write(&["0"])).unwrap();
            author
        })
        .collect()
}

#[test]
fn batch_syncs_once_and_logs_when_journal_fills() {
    let place = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::new(&place.path().join("graves")));
    let limits = JournalLimits { step: 4_096, most: 16 << 10, longest: 4_000 };
    let folder = folder_with(&place.path().join("store"), Arc::clone(&disk) as _, 0, limits);
    folder.ready_to_write().unwrap();
    let mut authors = authors(&folder, 8);
    let mut syncs = Vec::new();
    for round in 0..12 {
        let before = disk.calls().len();
        let row: Vec<_> = authors.iter_mut().map(|author| author.write(&["1"])).collect();
        let (done, later) = append_row(&folder, &row);
        assert!(done.iter().all(Result::is_ok) && later == 0, "round {round}");
        syncs.push(disk.calls()[before..].iter().filter(|call| *call == "sync ").count());
    }
    // The append that finds the journal full syncs the eight logs, the heading, and the journal itself.
    syncs.sort_unstable();
    assert_eq!(syncs, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 10]);
    let journals = folder.layout.journals().to_owned();
    assert_eq!(journal::all(&journals).unwrap().len(), 1);
    drop(folder);
    assert!(journal::all(&journals).unwrap().is_empty(), "it goes with its instance");
}

#[test]
fn blocked_appends_return_while_batch_continues() {
    let place = tempfile::tempdir().unwrap();
    let folder = ready(place.path());
    let mut authors = authors(&folder, 4);
    let row: Vec<_> = authors.iter_mut().map(|author| author.write(&["1"])).collect();
    // One run is in use by a caller in this process, and another run by another process.
    let slot = folder.slots.slot_of(&row[0].run);
    let _turn = slot.lock_turn();
    let other = fs::File::open(folder.layout.log(&row[1].run)).unwrap();
    other.try_lock().unwrap();
    // Another run is purged.
    purge(&folder, &row[2].run).unwrap();
    let (done, later) = append_row(&folder, &row);
    assert_eq!(later, 2);
    assert_eq!(done[2].as_ref().unwrap_err().kind(), ErrorKind::Conflict);
    assert!(done[3].is_ok());
}

/// Two processes write to the same runs, are killed, and lose power, at random. Acknowledged records survive.
///
/// Guarantees: FS-7, RUN-2.
#[test]
fn acknowledged_appends_survive_random_kills_and_power_loss() {
    for seed in 0..100 {
        let place = tempfile::tempdir().unwrap();
        let told = std::panic::catch_unwind(|| Story::new(place.path(), seed).go());
        assert!(told.is_ok(), "seed {seed}");
    }
}

struct Story<'a> {
    place: &'a Path,
    chance: Chance,
    seed: u64,
    disk: Arc<FaultyDisk>,
    processes: [Option<FsInner>; 2],
    /// The record ids of each run, oldest first, and the run's next writer.
    runs: BTreeMap<RunKey, (Vec<RecordId>, Author)>,
}

impl<'a> Story<'a> {
    fn new(place: &'a Path, seed: u64) -> Self {
        let disk = Arc::new(FaultyDisk::new(&place.join("graves")));
        Self { place, chance: Chance(seed), seed, disk, processes: [None, None], runs: BTreeMap::new() }
    }

    fn below(&mut self, number: usize) -> usize {
        (0..16).filter(|_| self.chance.next()).count() * 31 % number
    }

    fn process(&mut self) -> &FsInner {
        let number = self.below(2);
        let (place, disk) = (self.place.join("store"), Arc::clone(&self.disk));
        let process = self.processes[number].get_or_insert_with(|| journaled(&place, disk as _));
        process.ready_to_write().unwrap();
        process
    }

    fn go(&mut self) {
        for step in 0..60 {
            match self.below(12) {
                0 => self.kill(),
                1 => self.lose_power(step),
                2 => self.prune(),
                3 => self.purge(),
                _ => self.append(),
            }
        }
        self.lose_power(60);
        self.check();
    }

    /// Kills one process, or all processes without a power loss.
    fn kill(&mut self) {
        let number = self.below(2);
        self.disk.lose(Loss::None);
        self.processes[number] = None;
        self.disk.revive();
    }

    fn lose_power(&mut self, step: u64) {
        self.disk.lose(Loss::Chance(self.seed * 1_000 + step));
        self.processes = [None, None];
        self.disk.revive();
    }

    fn append(&mut self) {
        let mut row = Vec::new();
        for number in 0..4 {
            let run = key(&number.to_string());
            if self.below(2) == 0 {
                continue;
            }
            let long = format!("\"{}\"", "x".repeat(self.below(900)));
            let bodies = [&*long, "1", "2"];
            let of = 1 + self.below(3);
            match self.runs.get_mut(&run) {
                Some((ids, author)) => {
                    let entry = author.write(&bodies[..of]);
                    ids.extend(entry.records.iter().map(|record| record.header.id));
                    row.push(entry);
                }
                None => {
                    let mut author = Author::new(&number.to_string());
                    let entry = author.write(&bodies[..of]);
                    let ids = entry.records.iter().map(|record| record.header.id).collect();
                    self.runs.insert(run, (ids, author));
                    row.push(entry);
                }
            }
        }
        if !row.is_empty() {
            let (done, later) = append_row(self.process(), &row);
            assert!(done.iter().all(Result::is_ok) && later == 0, "{done:?}");
        }
    }

    fn some_run(&mut self) -> Option<RunKey> {
        let number = self.below(4);
        self.runs.keys().nth(number).cloned()
    }

    fn prune(&mut self) {
        let Some(run) = self.some_run() else { return };
        let (ids, author) = self.runs.get_mut(&run).unwrap();
        let base = author.write_base("0");
        ids.push(base.records[0].header.id);
        let at = base.records[0].header.seq;
        ids.drain(..ids.len() - 1);
        append(self.process(), &base).unwrap();
        prune(self.process(), &run, &PruneCut { at, base: None }).unwrap();
    }

    fn purge(&mut self) {
        let Some(run) = self.some_run() else { return };
        self.runs.remove(&run);
        purge(self.process(), &run).unwrap();
    }

    fn check(&mut self) {
        let expected: Vec<_> = self.runs.iter().map(|(run, (ids, _))| (run.clone(), ids.clone())).collect();
        for (run, expected) in expected {
            assert_eq!(ids(self.process(), &run).unwrap(), Some(expected), "{run}");
        }
        for run in (0..4).map(|number| key(&number.to_string())) {
            if self.runs.contains_key(&run) {
                continue;
            }
            assert_eq!(ids(self.process(), &run).unwrap(), None, "{run}");
        }
    }
}

/// A folder whose machine has stopped while one log lacked records that a journal holds.
fn crashed(place: &Path) -> (Author, Vec<RecordId>) {
    let disk = Arc::new(FaultyDisk::new(&place.join("graves")));
    let folder = journaled(&place.join("store"), Arc::clone(&disk) as _);
    folder.ready_to_write().unwrap();
    let mut authors = authors(&folder, 2);
    for body in ["1", "2", "3"] {
        for author in &mut authors {
            append(&folder, &author.write(&[body])).unwrap();
        }
    }
    let ids = ids(&folder, &authors[0].run).unwrap().unwrap();
    disk.lose(Loss::Content);
    (authors.swap_remove(0), ids)
}

#[test]
fn a_record_in_another_envelope_keeps_it() {
    let place = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::new(&place.path().join("graves")));
    let folder = journaled(&place.path().join("store"), Arc::clone(&disk) as _);
    folder.ready_to_write().unwrap();
    let mut author = Author::new("a");
    let mut written = Vec::new();
    for body in ["0", "1", "2"] {
        let entry = author.write(&[body]);
        append(&folder, &entry).unwrap();
        written.extend(entry.records);
    }
    // As long as the previous version, so that the bytes after it keep their offsets.
    let new = Record::seal(written[1].header.clone(), (&b"7"[..]).into()).unwrap();
    assert_eq!(folder.reseal(&author.run, std::slice::from_ref(&new)).unwrap(), 1);
    disk.lose(Loss::None);
    drop(folder);
    let folder = opened(place.path());
    assert!(the_journal(&folder).exists());
    folder.ready_to_read().unwrap();
    let loaded = folder.load(&author.run, At::Latest).unwrap().unwrap();
    assert_eq!(loaded.iter().map(|record| &*record.body).collect::<Vec<_>>(), [&b"0"[..], b"7", b"2"]);
}

fn opened(place: &Path) -> FsInner {
    journaled(&place.join("store"), Arc::new(HastyDisk))
}

fn the_journal(folder: &FsInner) -> std::path::PathBuf {
    journal::all(folder.layout.journals()).unwrap().pop().unwrap()
}

fn kind(fault: FsStoreError) -> ErrorKind {
    Error::from(fault).kind()
}

#[test]
fn recovery_restores_lost_records_before_reads() {
    let place = tempfile::tempdir().unwrap();
    let (author, expected) = crashed(place.path());
    let folder = opened(place.path());
    let journal = the_journal(&folder);
    folder.ready_to_read().unwrap();
    assert_eq!(ids(&folder, &author.run).unwrap(), Some(expected));
    assert!(!journal.exists());
}

#[test]
fn returned_store_folder_is_recovered_again() {
    let place = tempfile::tempdir().unwrap();
    let (author, expected) = crashed(place.path());
    let (store, away) = (place.path().join("store"), place.path().join("away"));
    fs::rename(&store, &away).unwrap();
    let folder = opened(place.path());
    folder.set_up().unwrap();
    fs::remove_dir_all(&store).unwrap();
    assert_eq!(kind(folder.check_still_there(Ok(())).unwrap_err()), ErrorKind::Unavailable);
    fs::rename(&away, &store).unwrap();
    folder.ready_to_write().unwrap();
    assert_eq!(ids(&folder, &author.run).unwrap(), Some(expected));
}

/// Guarantees: FS-11.
#[test]
fn damaged_journal_is_refused_until_moved_away() {
    let place = tempfile::tempdir().unwrap();
    crashed(place.path());
    let folder = opened(place.path());
    let journal = the_journal(&folder);
    let mut bytes = fs::read(&journal).unwrap();
    // Damage the first group. Later groups know that it was durable.
    bytes[600] ^= 1;
    fs::write(&journal, &bytes).unwrap();
    for _ in 0..2 {
        let fault = folder.ready_to_read().unwrap_err();
        assert!(fault.to_string().contains(&*journal.to_string_lossy()), "{fault}");
        assert!(
            fault.to_string().contains("at byte 512:") && fault.to_string().contains("move the file away")
        );
        assert_eq!(kind(fault), ErrorKind::Corrupt);
        assert_eq!(kind(folder.ready_to_write().unwrap_err()), ErrorKind::Corrupt);
    }
    let away = place.path().join("away");
    fs::rename(&journal, &away).unwrap();
    // Another file with the same content.
    fs::copy(&away, &journal).unwrap();
    folder.ready_to_read().unwrap();
    let last = |run: &RunKey| folder.head(run).unwrap().unwrap().seq.get();
    assert!(last(&key("0")) + last(&key("1")) < 6, "what only it held is lost");
    assert!(!journal.exists());
}

/// Guarantees: FS-3.
#[test]
fn a_journal_of_a_newer_version_is_unsupported() {
    let place = tempfile::tempdir().unwrap();
    crashed(place.path());
    let folder = opened(place.path());
    let mut newer = br#"{"journal":2"#.to_vec();
    crate::line::write_sum(&mut newer, 0);
    fs::write(the_journal(&folder), newer).unwrap();
    assert_eq!(kind(folder.ready_to_read().unwrap_err()), ErrorKind::Unsupported);
}

/// Guarantees: FS-12.
#[test]
fn only_unrecoverable_run_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (author, expected) = crashed(place.path());
    let folder = opened(place.path());
    let (log, away) = (folder.layout.log(&author.run), place.path().join("away"));
    fs::rename(&log, &away).unwrap();
    fs::create_dir(&log).unwrap();
    folder.ready_to_read().unwrap();
    assert_eq!(ids(&folder, &key("1")).unwrap().unwrap().len(), 4);
    for _ in 0..2 {
        let fault = folder.head(&author.run).unwrap_err();
        assert!(fault.to_string().contains(&*log.to_string_lossy()), "{fault}");
        assert_eq!(kind(fault), ErrorKind::Unavailable);
    }
    fs::remove_dir(&log).unwrap();
    fs::rename(&away, &log).unwrap();
    assert_eq!(ids(&folder, &author.run).unwrap(), Some(expected));
    assert!(journal::all(folder.layout.journals()).unwrap().is_empty());
}

#[test]
fn journal_removed_with_folder_is_recreated() {
    let place = tempfile::tempdir().unwrap();
    let folder = ready(place.path());
    let mut authors = authors(&folder, 1);
    append(&folder, &authors[0].write(&["1"])).unwrap();
    let first = the_journal(&folder);
    append(&folder, &authors[0].write(&["1"])).unwrap();
    assert_eq!(the_journal(&folder), first);
    fs::remove_dir_all(folder.layout.journals()).unwrap();
    append(&folder, &authors[0].write(&["2"])).unwrap();
    assert_ne!(the_journal(&folder), first);
}

/// Two callers of an instance may use two slots of the same run, and the caller that purges may be late.
#[test]
fn late_replacement_does_not_evict_current_log() {
    let place = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::new(&place.path().join("graves")));
    let folder = journaled(&place.path().join("store"), Arc::clone(&disk) as _);
    folder.ready_to_write().unwrap();
    let first = authors(&folder, 1).pop().unwrap();
    let gone = folder.slots.cached_log(&first.run).unwrap();
    purge(&folder, &first.run).unwrap();
    authors(&folder, 1);
    folder.journal.forget_log(&folder, &first.run, Some(gone.ident));
    let expected = ids(&folder, &first.run).unwrap();
    disk.lose(Loss::Content);
    drop(folder);
    let folder = opened(place.path());
    folder.ready_to_read().unwrap();
    assert_eq!(ids(&folder, &first.run).unwrap(), expected);
}

/// Guarantees: FS-14.
#[test]
fn journal_retains_no_purged_or_pruned_record() {
    let place = tempfile::tempdir().unwrap();
    let folder = ready(place.path());
    let (mut first, mut second) = (Author::new("a"), Author::new("b"));
    for author in [&mut first, &mut second] {
        append(&folder, &author.write(&["\"Fowler\""])).unwrap();
        append(&folder, &author.write_base("1")).unwrap();
    }
    let journal = the_journal(&folder);
    let is_there = || fs::read(&journal).unwrap().windows(6).any(|part| part == b"Fowler");
    assert!(is_there());
    purge(&folder, &first.run).unwrap();
    assert!(!is_there());
    append(&folder, &second.write(&["\"Fowler\""])).unwrap();
    append(&folder, &second.write_base("2")).unwrap();
    assert!(is_there());
    prune(&folder, &second.run, &PruneCut { at: second.head.unwrap().seq, base: None }).unwrap();
    assert!(!is_there());
    // Records that another process removes leave the journal within a minute.
    append(&folder, &second.write(&["\"Fowler\""])).unwrap();
    folder.journal.restart_if_old(&folder);
    assert!(is_there());
    folder.journal.restart_if_old(&folder_at(place.path(), 61));
    assert!(!is_there());
}

/// The same folder, `seconds` later.
fn folder_at(place: &Path, seconds: u64) -> FsInner {
    let clock = ManualClock::default();
    let now = crate::clock::MachineClock::new();
    clock.advance(ferrata_store::Clock::monotonic(&now) + std::time::Duration::from_secs(seconds));
    let options = crate::config::FsOptions::default();
    let layout = crate::layout::FsLayout::new(place.into());
    FsInner::new(Arc::new(HastyDisk), layout, Arc::new(clock), options, JournalLimits::default())
}

#[test]
fn what_is_no_file_is_no_journal() {
    let place = tempfile::tempdir().unwrap();
    let (author, expected) = crashed(place.path());
    let folder = opened(place.path());
    let journals = folder.layout.journals().to_owned();
    fs::create_dir(journals.join("folder.journal")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(journals.join("pipe.journal")).status().unwrap();
    assert!(made.success());
    folder.ready_to_read().unwrap();
    assert_eq!(ids(&folder, &author.run).unwrap(), Some(expected));
    assert_eq!(journal::all(&journals).unwrap().len(), 2);
}

/// Guarantees: FS-13.
#[test]
fn journal_of_live_process_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let folder = ready(place.path());
    let mut authors = authors(&folder, 1);
    append(&folder, &authors[0].write(&["1"])).unwrap();
    let other = journaled(place.path(), Arc::new(HastyDisk));
    other.ready_to_read().unwrap();
    assert!(the_journal(&folder).exists());
    assert_eq!(ids(&other, &authors[0].run).unwrap().unwrap().len(), 2);
}
