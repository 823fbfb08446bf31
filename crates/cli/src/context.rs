//! The context of every verb: the global options, the output, the store.

use std::sync::Arc;

use ferrata::{CheckpointStore, Clock, Runtime, SystemClock, Timestamp};

use crate::args::GlobalArgs;
use crate::failure::CommandFailure;
use crate::output::{Output, completed};
use crate::store;

/// The context of every verb.
#[derive(Debug)]
pub(crate) struct CommandContext {
    /// The options that every verb takes.
    pub(crate) global: GlobalArgs,
    /// The output for data and notes.
    pub(crate) out: Output,
    /// The store of the run, if the command reads a copy of a damaged log.
    pub(crate) real_store: Option<String>,
    /// The one clock.
    pub(crate) clock: SystemClock,
}

impl CommandContext {
    /// Creates the context of a command line.
    pub(crate) fn new(global: GlobalArgs) -> Self {
        let out = Output::new(&global);
        Self { global, out, real_store: None, clock: SystemClock::new() }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the command to type next.
    pub(crate) fn next(&self, command: &str) {
        self.out.note(&format!("next: {}", completed(command, &self.global)));
    }

    /// Opens the store, which must exist. It reads and writes nothing yet.
    pub(crate) fn store(&self) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
        store::open_existing(&self.global.store)
    }

    /// Opens the store, which need not exist yet. It reads and writes nothing yet.
    pub(crate) fn new_store(&self) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
        store::open_soon(&self.global.store)
    }

    /// Opens the store for reading and steering runs. It reads and writes nothing yet.
    pub(crate) fn runtime(&self) -> Result<Runtime, CommandFailure> {
        Ok(Runtime::builder_with(self.store()?).operator())
    }
}
