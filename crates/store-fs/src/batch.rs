//! A batch of appends that several threads work through.

use std::collections::HashSet;
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
    waiting: std::iter::Enumerate<std::vec::IntoIter<RunAppend>>,
    results: Vec<Option<Result<HeadRef>>>,
}

impl Batch {
    pub(crate) fn new(entries: Vec<RunAppend>) -> Self {
        let runs: Vec<RunKey> = entries.iter().map(|entry| entry.run.clone()).collect();
        let mut seen = HashSet::with_capacity(runs.len());
        let results =
            runs.iter().map(|run| (!seen.insert(run)).then(|| Err(refusal::doubled(run)))).collect();
        let work = Work { waiting: entries.into_iter().enumerate(), results };
        Self { runs, work: Mutex::new(work) }
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Takes the next entry that is to be done, and its number.
    pub(crate) fn next(&self) -> Option<(usize, RunAppend)> {
        let mut work = self.work();
        loop {
            let (number, entry) = work.waiting.next()?;
            if work.results[number].is_none() {
                return Some((number, entry));
            }
        }
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
