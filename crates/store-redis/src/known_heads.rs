//! A cache of the runs that this process writes. It has each run's index sets after its last record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ferrata_store::index::RunStanding;
use ferrata_store::{RecordId, RunKey, Seq};

use crate::layout::Member;

/// The maximum number of cached runs. Each takes about 400 bytes. A run that was dropped from the cache costs its next append a read.
const MOST: usize = 10_000;

/// The index sets of a run after one record. They are correct while that record is the head, whoever wrote it.
#[derive(Clone, Debug)]
pub(crate) struct RedisKnownHead {
    pub(crate) head: RecordId,
    /// The number of the newest base.
    pub(crate) base: Seq,
    /// `None` for a run that does not exist yet.
    pub(crate) moving: Option<RunStanding>,
    pub(crate) placed: Arc<KnownPlace>,
}

/// The index member of a run, and its index sets that never change.
#[derive(Debug)]
pub(crate) struct KnownPlace {
    pub(crate) member: Member,
    pub(crate) fixed: Vec<String>,
}

/// The runs that this process wrote last.
#[derive(Debug, Default)]
pub(crate) struct RedisKnownHeads(Mutex<HashMap<RunKey, RedisKnownHead>>);

impl RedisKnownHeads {
    /// Returns the state of the run after the record `head`, if it is cached.
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
            // Remove all entries at once: to maintain an order of use would cost every append more than this costs one append in ten thousand.
            runs.clear();
        }
        runs.insert(run.clone(), stood);
    }

    pub(crate) fn remove(&self, run: &RunKey) {
        self.runs().remove(run);
    }

    fn runs(&self) -> std::sync::MutexGuard<'_, HashMap<RunKey, RedisKnownHead>> {
        // Every user of a cached value compares it with the head first.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
