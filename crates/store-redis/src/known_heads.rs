//! A cache of the runs that this process writes: each run's places in the index with its last record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ferrata_store::index::RunStanding;
use ferrata_store::{RecordId, RunKey, Seq};

use crate::layout::Member;

/// The number of cached runs. Each takes some 400 bytes; a forgotten run costs its next append a read.
const MOST: usize = 10_000;

/// The places of a run with one record. They are right for as long as that record is the head, for any later writer.
#[derive(Clone, Debug)]
pub(crate) struct RedisKnownHead {
    pub(crate) head: RecordId,
    /// The number of the newest base.
    pub(crate) base: Seq,
    /// Absent for a run that is not yet there.
    pub(crate) moving: Option<RunStanding>,
    pub(crate) placed: Arc<KnownPlace>,
}

/// The fixed place of a run.
#[derive(Debug)]
pub(crate) struct KnownPlace {
    pub(crate) member: Member,
    pub(crate) fixed: Vec<String>,
}

/// The runs that this process wrote last.
#[derive(Debug, Default)]
pub(crate) struct RedisKnownHeads(Mutex<HashMap<RunKey, RedisKnownHead>>);

impl RedisKnownHeads {
    /// Returns where the run stood with this record.
    pub(crate) fn at(&self, run: &RunKey, head: RecordId) -> Option<RedisKnownHead> {
        self.runs().get(run).filter(|stood| stood.head == head).cloned()
    }

    pub(crate) fn remember(&self, run: &RunKey, stood: RedisKnownHead) {
        let mut runs = self.runs();
        if let Some(known) = runs.get_mut(run) {
            *known = stood;
            return;
        }
        if runs.len() >= MOST {
            // Clear everything: an order of use would cost every append more than a clear costs one append in ten thousand.
            runs.clear();
        }
        runs.insert(run.clone(), stood);
    }

    pub(crate) fn remove(&self, run: &RunKey) {
        self.runs().remove(run);
    }

    fn runs(&self) -> std::sync::MutexGuard<'_, HashMap<RunKey, RedisKnownHead>> {
        // Every use compares the cached value with the head first.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
