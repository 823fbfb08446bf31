//! A batch of appends: what is still to be done of it, and what came of the rest.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferrata_core::store::RunAppend;
use ferrata_core::{Error, ErrorKind, HeadRef, Result, RunKey};

use crate::error::Fault;

/// An entry and its place in the batch.
pub(crate) type Numbered = (usize, RunAppend);

/// The entries still to be done, and the results of those that were.
#[derive(Debug)]
pub(crate) struct Batch {
    runs: Vec<RunKey>,
    work: Mutex<Work>,
}

#[derive(Debug)]
struct Work {
    waiting: Vec<Numbered>,
    results: Vec<Option<Result<HeadRef>>>,
}

impl Batch {
    pub(crate) fn new(entries: Vec<RunAppend>) -> Self {
        let runs: Vec<RunKey> = entries.iter().map(|entry| entry.run.clone()).collect();
        let mut seen = HashSet::with_capacity(runs.len());
        let results: Vec<_> = runs.iter().map(|run| (!seen.insert(run)).then(|| Err(twice(run)))).collect();
        let waiting = entries.into_iter().enumerate().filter(|(number, _)| results[*number].is_none());
        let work = Work { waiting: waiting.collect(), results };
        Self { runs, work: Mutex::new(work) }
    }

    /// Returns how many entries are to be done.
    pub(crate) fn waiting(&self) -> usize {
        self.work().waiting.len()
    }

    /// Takes all entries that are to be done.
    pub(crate) fn take(&self) -> Vec<Numbered> {
        std::mem::take(&mut self.work().waiting)
    }

    /// Takes an entry that is to be done.
    pub(crate) fn next(&self) -> Option<Numbered> {
        self.work().waiting.pop()
    }

    /// Gives back what was taken and cannot be done yet.
    pub(crate) fn put_back(&self, entries: Vec<Numbered>) {
        self.work().waiting.extend(entries);
    }

    pub(crate) fn done(&self, number: usize, result: Result<HeadRef, Fault>) {
        let result = result.map_err(|fault| fault.of_run("store.append", &self.runs[number]));
        self.work().results[number] = Some(result);
    }

    /// Returns one result for each entry; of an entry whose thread did not end it is unknown what was written.
    pub(crate) fn results(&self) -> Vec<Result<HeadRef>> {
        let results = std::mem::take(&mut self.work().results);
        let given_up = |run| Err(Fault::GivenUp.of_run("store.append", run));
        results.into_iter().zip(&self.runs).map(|(done, run)| done.unwrap_or_else(|| given_up(run))).collect()
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        // Nothing in here is left half-done by a panic.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn twice(run: &RunKey) -> Error {
    Error::new(ErrorKind::Invalid, "the run stands in the batch twice; join its records in one entry")
        .with_operation("store.append")
        .with_run(run)
}
