//! The data that every command needs: the global options, the output and the store.

use std::sync::Arc;

use ferrata::{CheckpointStore, Clock, Runtime, SystemClock, Timestamp};

use crate::args::GlobalArgs;
use crate::failure::CommandFailure;
use crate::output::{Output, completed};
use crate::store;

/// The data that every command needs.
#[derive(Debug)]
pub(crate) struct CommandContext {
    /// The options that every command takes.
    pub(crate) global: GlobalArgs,
    /// The output for data and notes.
    pub(crate) out: Output,
    /// The original store of the run, if the command reads a copy of a damaged log.
    pub(crate) real_store: Option<String>,
    /// The clock of all parts of the command.
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

    /// Prints the command that the user should type next.
    pub(crate) fn next(&self, command: &str) {
        self.out.note(&format!("next: {}", completed(command, &self.global)));
    }

    /// Opens the store, which must already exist. The call neither reads nor writes.
    pub(crate) fn store(&self) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
        store::open_existing(&self.global.store)
    }

    /// Opens the store, which may not exist yet. The call neither reads nor writes.
    pub(crate) fn new_store(&self) -> Result<Arc<dyn CheckpointStore>, CommandFailure> {
        store::open_soon(&self.global.store)
    }

    /// Opens a runtime that reads and controls runs of the store. The call neither reads nor writes.
    pub(crate) fn runtime(&self) -> Result<Runtime, CommandFailure> {
        Ok(Runtime::builder_with(self.store()?).operator())
    }
}
