//! What this process remembers of the runs it writes: where each stood in the index with its last record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ferrata_store::index::Standing;
use ferrata_store::{RecordId, RunKey, Seq};

use crate::layout::Member;

/// How many runs are remembered. One costs some 400 bytes; one that is forgotten costs its next append a look.
const MOST: usize = 10_000;

/// Where a run stood with one record. Right for as long as that record is the head, whoever wrote since.
#[derive(Clone, Debug)]
pub(crate) struct KnownHead {
    pub(crate) head: RecordId,
    /// The number of the newest base.
    pub(crate) base: Seq,
    /// Absent for a run that is not yet there.
    pub(crate) moving: Option<Standing>,
    pub(crate) placed: Arc<IndexEntry>,
}

/// Where a run stands for good.
#[derive(Debug)]
pub(crate) struct IndexEntry {
    pub(crate) member: Member,
    pub(crate) fixed: Vec<String>,
}

/// The runs that this process wrote last.
#[derive(Debug, Default)]
pub(crate) struct KnownHeads(Mutex<HashMap<RunKey, KnownHead>>);

impl KnownHeads {
    /// Returns where the run stood with this record.
    pub(crate) fn at(&self, run: &RunKey, head: RecordId) -> Option<KnownHead> {
        self.runs().get(run).filter(|stood| stood.head == head).cloned()
    }

    pub(crate) fn remember(&self, run: &RunKey, stood: KnownHead) {
        let mut runs = self.runs();
        if let Some(known) = runs.get_mut(run) {
            *known = stood;
            return;
        }
        if runs.len() >= MOST {
            // All at once: a list of who came last would cost every append more than this costs one in ten thousand.
            runs.clear();
        }
        runs.insert(run.clone(), stood);
    }

    pub(crate) fn forget(&self, run: &RunKey) {
        self.runs().remove(run);
    }

    fn runs(&self) -> std::sync::MutexGuard<'_, HashMap<RunKey, KnownHead>> {
        // What is remembered is compared with the head before it is used.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
