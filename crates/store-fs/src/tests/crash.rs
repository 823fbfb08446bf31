//! Lets the process die at every call of a long test story, with and without a power loss, and checks what is left.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ferrata_store::{Error, ErrorKind, Page, PruneCut, RecordId, RunAppend, RunKey, RunQuery, Seq};

use super::author::Author;
use super::faulty::{FaultyDisk, Loss, Trouble};
use super::{append, folder, ids, journaled, prune, purge, reopened};
use crate::disk::Disk;
use crate::error::FsStoreError;
use crate::inner::FsInner;

#[derive(Clone, Debug)]
enum Step {
    Append(RunAppend),
    Prune(RunKey, PruneCut),
    Purge(RunKey),
}

/// Ways to lose unsynced data. By chance, each sector is written or not.
const LOSSES: [Loss; 8] = [
    Loss::None,
    Loss::Content,
    Loss::Zeros,
    Loss::FirstSector,
    Loss::Half,
    Loss::Chance(1),
    Loss::Chance(2),
    Loss::Chance(3),
];

/// The records that each run must hold.
type Model = BTreeMap<RunKey, Vec<RecordId>>;

impl Step {
    fn run(&self) -> &RunKey {
        match self {
            Self::Append(entry) => &entry.run,
            Self::Prune(run, _) | Self::Purge(run) => run,
        }
    }

    fn take(&self, folder: &FsInner) -> Result<(), FsStoreError> {
        folder.ready_to_write()?;
        match self {
            Self::Append(entry) => append(folder, entry).map(|_| ()),
            Self::Prune(run, cut) => prune(folder, run, cut).map(|_| ()),
            Self::Purge(run) => purge(folder, run).map(|_| ()),
        }
    }

    fn apply(&self, model: &mut Model) {
        match self {
            Self::Append(entry) => {
                let ids = entry.records.iter().map(|record| record.header.id);
                model.entry(entry.run.clone()).or_default().extend(ids);
            }
            Self::Prune(run, cut) => {
                let records = model.get_mut(run).unwrap();
                let gone = records.len() - usize::try_from(7 - cut.at.get()).unwrap();
                records.drain(..gone);
            }
            Self::Purge(run) => {
                model.remove(run);
            }
        }
    }
}

fn story() -> Vec<Step> {
    let (mut a, mut b) = (Author::new("a"), Author::new("b"));
    let long = format!("\"{}\"", "x".repeat(1_500));
    let mut steps = vec![
        Step::Append(a.write(&["0", "1"])),
        Step::Append(a.write(&["2"])),
        Step::Append(b.write(&[&long])),
        Step::Append(a.write(&["3", &long, "5"])),
        Step::Append(a.write_base(&long)),
        Step::Prune(a.run.clone(), PruneCut { at: Seq::new(6), base: None }),
        Step::Append(a.write(&[&long])),
        Step::Append(b.write(&["1", "2"])),
        Step::Purge(b.run.clone()),
    ];
    let mut anew = Author::new("b");
    steps.push(Step::Append(anew.write(&["0"])));
    steps.push(Step::Append(anew.write(&[&long, &long])));
    steps.push(Step::Append(a.write(&["8"])));
    steps
}

/// The records that the runs must hold before each step, and after the last step.
fn models(steps: &[Step]) -> Vec<Model> {
    let mut models = vec![Model::new()];
    for step in steps {
        let mut model = models.last().unwrap().clone();
        step.apply(&mut model);
        models.push(model);
    }
    models
}

fn take_until_death(folder: &FsInner, steps: &[Step]) -> usize {
    steps.iter().take_while(|step| step.take(folder).is_ok()).count()
}

/// Checks that each run matches `models` after `done` steps or, if `in_doubt` is true, after one more step.
fn check(folder: &FsInner, steps: &[Step], models: &[Model], done: usize, in_doubt: bool) {
    let mut visible = Vec::new();
    for name in ["a", "b"] {
        let run = Author::new(name).run;
        let found = ids(folder, &run).unwrap();
        let is_touched = in_doubt && steps.get(done).is_some_and(|step| *step.run() == run);
        assert!(
            found.as_ref() == models[done].get(&run)
                || is_touched && found.as_ref() == models[done + 1].get(&run),
            "run {name} holds {found:?} after {done} steps, of {models:#?}"
        );
        visible.extend(found.map(|_| run));
    }
    let listed = folder.runs(&RunQuery::default(), &Page::first(10)).unwrap().items;
    let mut listed: Vec<_> = listed.into_iter().map(|head| head.run).collect();
    listed.sort();
    assert_eq!(listed, visible);
}

/// Finishes the story in another process, and removes everything.
fn finish(root: &Path, steps: &[Step], models: &[Model], done: usize) {
    let folder = reopened(root);
    for step in &steps[done..] {
        step.take(&folder).unwrap();
    }
    check(&folder, steps, models, steps.len(), false);
    for name in ["a", "b"] {
        purge(&folder, &Author::new(name).run).unwrap();
    }
    assert_eq!(std::fs::read_dir(root.join("runs/default")).unwrap().count(), 0, "a trace is left");
}

/// Guarantees: FS-7, RUN-2.
#[test]
fn crash_at_any_call_preserves_acknowledged_appends() {
    die_at_every_call(folder, 500);
}

/// Guarantees: FS-7.
#[test]
fn crash_at_any_journal_call_preserves_acknowledged_appends() {
    die_at_every_call(journaled, 700);
}

/// How a process opens the folder.
type Open = fn(&Path, Arc<dyn Disk>) -> FsInner;

fn die_at_every_call(open: Open, least: usize) {
    let steps = story();
    let models = models(&steps);
    let mut deaths = 0;
    for trouble in [Trouble::DieBefore, Trouble::DieAfter] {
        for loss in LOSSES {
            for call in 0.. {
                let place = tempfile::tempdir().unwrap();
                let root = place.path().join("store");
                let disk = Arc::new(FaultyDisk::new(&place.path().join("graves")));
                disk.trouble_at(call, trouble);
                let folder = open(&root, Arc::clone(&disk) as _);
                let done = take_until_death(&folder, &steps);
                let died = disk.is_dead();
                let told =
                    format!("{trouble:?} at call {call} ({:?}), {loss:?}, {done} steps", disk.calls().last());
                drop(folder);
                disk.lose(loss);
                let outcome = std::panic::catch_unwind(|| {
                    check(&reopened(&root), &steps, &models, done, true);
                    finish(&root, &steps, &models, done);
                });
                outcome.unwrap_or_else(|_| panic!("{told}"));
                if !died {
                    assert_eq!(done, steps.len());
                    break;
                }
                deaths += 1;
            }
        }
    }
    assert!(deaths > least, "{deaths} deaths are too few for this story");
}

/// Guarantees: FS-8.
#[test]
fn any_failed_call_errs_honestly_and_retries() {
    fail_at_every_call(folder);
}

/// Guarantees: FS-8.
#[test]
fn any_failed_journal_call_errs_honestly_and_retries() {
    fail_at_every_call(journaled);
}

fn fail_at_every_call(open: Open) {
    const EIO: i32 = 5;
    const ENOSPC: i32 = 28;
    let steps = story();
    let models = models(&steps);
    for error in [EIO, ENOSPC] {
        for loss in [Loss::Content, Loss::Zeros, Loss::Chance(7)] {
            // Lose power either right after the retried step succeeded, or at the end of the story.
            for stops in [true, false] {
                for call in 0.. {
                    let place = tempfile::tempdir().unwrap();
                    let root = place.path().join("store");
                    let disk = Arc::new(FaultyDisk::new(&place.path().join("graves")));
                    disk.trouble_at(call, Trouble::Fail(error));
                    let folder = open(&root, Arc::clone(&disk) as _);
                    let told = || format!("error {error} at call {call} of {:?}", disk.calls());
                    let mut done = 0;
                    let mut failed = false;
                    while done < steps.len() && !(stops && failed) {
                        while let Err(fault) = steps[done].take(&folder) {
                            assert!(!failed, "{fault}: {}", told());
                            failed = true;
                            let kind = Error::from(fault).kind();
                            let in_doubt = match (kind, &steps[done]) {
                                (ErrorKind::Unavailable, Step::Append(_)) => false,
                                (ErrorKind::Unavailable | ErrorKind::Indeterminate, _) => true,
                                (kind, _) => panic!("{kind}: {}", told()),
                            };
                            check(&folder, &steps, &models, done, in_doubt);
                            check(&reopened(&root), &steps, &models, done, in_doubt);
                        }
                        done += 1;
                        check(&folder, &steps, &models, done, false);
                    }
                    let reached = disk.calls().len() > call;
                    drop(folder);
                    disk.lose(loss);
                    let outcome = std::panic::catch_unwind(|| {
                        check(&reopened(&root), &steps, &models, done, false);
                        finish(&root, &steps, &models, done);
                    });
                    outcome.unwrap_or_else(|_| panic!("{loss:?} after {done} steps, {}", told()));
                    if !reached {
                        break;
                    }
                }
            }
        }
    }
}

/// Guarantees: FS-10.
#[test]
fn next_writer_syncs_unsynced_records_of_killed_one() {
    for (first, second) in
        [(folder as Open, folder as Open), (journaled, folder), (folder, journaled), (journaled, journaled)]
    {
        write_behind_a_killed_writer(first, second);
    }
}

fn write_behind_a_killed_writer(first: Open, second: Open) {
    let long = format!("\"{}\"", "x".repeat(1_500));
    for loss in LOSSES {
        for call in 0.. {
            let place = tempfile::tempdir().unwrap();
            let root = place.path().join("store");
            let disk = Arc::new(FaultyDisk::new(&place.path().join("graves")));
            let killed = first(&root, Arc::clone(&disk) as _);
            killed.set_up().unwrap();
            let mut author = Author::new("a");
            append(&killed, &author.write(&["0"])).unwrap();
            let safe = author.head.unwrap();
            // The write happens, the sync does not.
            disk.trouble_at(disk.calls().len() + 1, Trouble::DieBefore);
            append(&killed, &author.write(&[&long])).unwrap_err();
            disk.revive();
            let next = second(&root, Arc::clone(&disk) as _);
            disk.trouble_at(disk.calls().len() + call, Trouble::DieBefore);
            let said = append(&next, &author.write(&[&long, &long]));
            let (died, told) = (disk.is_dead(), format!("{loss:?} at call {call} of {:?}", disk.calls()));
            disk.lose(loss);
            drop((killed, next));
            let left = ids(&reopened(&root), &author.run);
            let left = left.unwrap_or_else(|fault| panic!("{fault}: {told}")).unwrap();
            assert_eq!(left[0], safe.id, "{told}");
            if said.is_ok() {
                assert_eq!(
                    (left.len(), left.last()),
                    (4, author.head.map(|head| head.id).as_ref()),
                    "{told}"
                );
            }
            if !died {
                break;
            }
        }
    }
}
