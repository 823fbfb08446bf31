//! What every verb works with: the global options, the output, the store.

use std::sync::Arc;

use ferrata::{CheckpointStore, Clock, Runtime, SystemClock, Timestamp};

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{Output, completed};
use crate::store;

/// What every verb works with.
#[derive(Debug)]
pub(crate) struct Context {
    /// The options that every verb takes.
    pub(crate) global: Global,
    /// Where data and notes go.
    pub(crate) out: Output,
    /// The store of the run, where a copy of its log is read because it is damaged.
    pub(crate) real_store: Option<String>,
    /// The one clock.
    pub(crate) clock: SystemClock,
}

impl Context {
    /// Makes the context of a command line.
    pub(crate) fn new(global: Global) -> Self {
        let out = Output::new(&global);
        Self { global, out, real_store: None, clock: SystemClock::new() }
    }

    /// Returns what the time is.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Tells which command one would type now.
    pub(crate) fn next(&self, command: &str) {
        self.out.note(&format!("next: {}", completed(command, &self.global)));
    }

    /// Opens the store, which has to be there. Nothing is read or written yet.
    pub(crate) fn store(&self) -> Result<Arc<dyn CheckpointStore>, Failure> {
        store::open_existing(&self.global.store)
    }

    /// Opens the store, also one that is still to be made. Nothing is read or written yet.
    pub(crate) fn new_store(&self) -> Result<Arc<dyn CheckpointStore>, Failure> {
        store::open_soon(&self.global.store)
    }

    /// Opens the store for reading and steering runs. Nothing is read or written yet.
    pub(crate) fn runtime(&self) -> Result<Runtime, Failure> {
        Ok(Runtime::builder_with(self.store()?).operator())
    }
}
