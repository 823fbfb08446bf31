//! Changes of runs by this process, for libraries that track runs.

use std::sync::Arc;

use crate::id::{HeadRef, RunKey, Seq};
use crate::record::RunFacts;

/// A run that this process has stopped driving.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(hidden)]
pub struct LeftRun {
    /// The key of the run.
    pub run: RunKey,
    /// The facts that the run recorded at its start. `None` if this process never drove the run.
    pub facts: Option<Arc<RunFacts>>,
    /// The number of the record that ended the run, if this process wrote it. It is 0 if checkpoints are disabled. If `None`, the run is idle, or
    /// active in another process, or its status is unknown to this process.
    pub ended_at: Option<Seq>,
}

/// A change of a run by this process, for libraries that track runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(hidden)]
pub enum RunChange {
    /// This process has stopped driving the run.
    Left(LeftRun),
    /// A call in this process paused the run until the run gets a slot of its [queue](crate::runtime::queue_name).
    Held {
        /// The key of the run.
        run: RunKey,
        /// The start facts of the run.
        facts: Arc<RunFacts>,
        /// The record that pauses the run.
        head: HeadRef,
    },
    /// This process purged the run.
    Purged {
        /// The key of the run.
        run: RunKey,
        /// The start facts of the run.
        facts: Arc<RunFacts>,
    },
}
