//! A batch of appends that several threads process.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferrata_store::{HeadRef, Result, RunAppend, RunKey, refusal};

use crate::error::FsStoreError;

/// The pending appends of a batch, and the results of the finished appends.
#[derive(Debug)]
pub(crate) struct AppendBatch {
    runs: Vec<RunKey>,
    work: Mutex<BatchWork>,
}

#[derive(Debug)]
struct BatchWork {
    /// The appends that were not tried yet. Threads take them in rows: groups of appends that a thread writes one after the other and syncs
    /// together.
    new: VecDeque<(usize, RunAppend)>,
    row: usize,
    /// The appends that must wait for another caller or process. Threads take them one by one.
    single: VecDeque<(usize, RunAppend)>,
    results: Vec<Option<Result<HeadRef>>>,
}

impl AppendBatch {
    /// Creates a batch whose rows have at most `row` appends.
    pub(crate) fn new(entries: Vec<RunAppend>, row: usize) -> Self {
        let runs: Vec<RunKey> = entries.iter().map(|entry| entry.run.clone()).collect();
        let mut seen = HashSet::with_capacity(runs.len());
        let results: Vec<Option<Result<HeadRef>>> =
            runs.iter().map(|run| (!seen.insert(run)).then(|| Err(refusal::doubled(run)))).collect();
        let new = entries.into_iter().enumerate().filter(|(number, _)| results[*number].is_none()).collect();
        let work = BatchWork { new, row, single: VecDeque::new(), results };
        Self { runs, work: Mutex::new(work) }
    }

    /// Returns the numbers of pending rows and of pending single appends.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let work = self.lock_work();
        (work.new.len().div_ceil(work.row), work.single.len())
    }

    /// Takes the next pending row. Each entry has its index in the batch.
    pub(crate) fn next_row(&self) -> Option<Vec<(usize, RunAppend)>> {
        let work = &mut *self.lock_work();
        let row: Vec<_> = work.new.drain(..work.row.min(work.new.len())).collect();
        Some(row).filter(|row| !row.is_empty())
    }

    /// Takes the next pending single append, with its index in the batch.
    pub(crate) fn next(&self) -> Option<(usize, RunAppend)> {
        self.lock_work().single.pop_front()
    }

    /// Postpones appends that must wait for another caller or process. Each of them then runs alone.
    pub(crate) fn postpone(&self, later: Vec<(usize, RunAppend)>) {
        self.lock_work().single.extend(later);
    }

    pub(crate) fn set_result(&self, number: usize, result: Result<HeadRef>) {
        self.lock_work().results[number] = Some(result);
    }

    /// Returns one result for each entry. If a thread died before it finished an entry, the result is `Indeterminate`.
    pub(crate) fn results(&self) -> Vec<Result<HeadRef>> {
        let results = std::mem::take(&mut self.lock_work().results);
        let given_up = |run| Err(FsStoreError::GivenUp.of_run("store.append", run));
        results.into_iter().zip(&self.runs).map(|(done, run)| done.unwrap_or_else(|| given_up(run))).collect()
    }

    fn lock_work(&self) -> MutexGuard<'_, BatchWork> {
        // A panic leaves the data valid.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
