//! A batch of appends that several threads work through.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferrata_store::{HeadRef, Result, RunAppend, RunKey, refusal};

use crate::error::StoreError;

/// The entries still to be done, and the results of those that were.
#[derive(Debug)]
pub(crate) struct Batch {
    runs: Vec<RunKey>,
    work: Mutex<Work>,
}

#[derive(Debug)]
struct Work {
    /// The appends that no row has had, and how many go in one.
    new: VecDeque<(usize, RunAppend)>,
    row: usize,
    /// The appends that wait for another caller or process.
    single: VecDeque<(usize, RunAppend)>,
    results: Vec<Option<Result<HeadRef>>>,
}

impl Batch {
    /// Makes one whose rows have at most so many appends.
    pub(crate) fn new(entries: Vec<RunAppend>, row: usize) -> Self {
        let runs: Vec<RunKey> = entries.iter().map(|entry| entry.run.clone()).collect();
        let mut seen = HashSet::with_capacity(runs.len());
        let results: Vec<Option<Result<HeadRef>>> =
            runs.iter().map(|run| (!seen.insert(run)).then(|| Err(refusal::doubled(run)))).collect();
        let new = entries.into_iter().enumerate().filter(|(number, _)| results[*number].is_none()).collect();
        let work = Work { new, row, single: VecDeque::new(), results };
        Self { runs, work: Mutex::new(work) }
    }

    /// How many rows and how many single appends are to be done.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let work = self.work();
        (work.new.len().div_ceil(work.row), work.single.len())
    }

    /// Takes the next row that is to be done, each entry with its number.
    pub(crate) fn next_row(&self) -> Option<Vec<(usize, RunAppend)>> {
        let work = &mut *self.work();
        let row: Vec<_> = work.new.drain(..work.row.min(work.new.len())).collect();
        Some(row).filter(|row| !row.is_empty())
    }

    /// Takes the next entry that is to be done by itself, and its number.
    pub(crate) fn next(&self) -> Option<(usize, RunAppend)> {
        self.work().single.pop_front()
    }

    /// Puts off appends that wait for another caller or process, to be done by themselves.
    pub(crate) fn put_off(&self, later: Vec<(usize, RunAppend)>) {
        self.work().single.extend(later);
    }

    pub(crate) fn done(&self, number: usize, result: Result<HeadRef>) {
        self.work().results[number] = Some(result);
    }

    /// Returns one result for each entry; of an entry whose thread did not end it is unknown what was written.
    pub(crate) fn results(&self) -> Vec<Result<HeadRef>> {
        let results = std::mem::take(&mut self.work().results);
        let given_up = |run| Err(StoreError::GivenUp.of_run("store.append", run));
        results.into_iter().zip(&self.runs).map(|(done, run)| done.unwrap_or_else(|| given_up(run))).collect()
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        // Nothing in here is left half-done by a panic.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
