//! What tools and backends that are commands have in common: where their commands run, and how much of what they print is kept.

use std::path::PathBuf;

use super::command::Stages;
use super::{HandlerError, Stage};

/// How much of each output of a command is kept: enough to see what went wrong, and little enough to be part of the state.
const KEEP: usize = 64 << 10;

/// Where commands run, where their attempts have files, and how much of each output is kept.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) directory: Option<PathBuf>,
    pub(super) stages: Option<Stages>,
    pub(super) keep: usize,
}

impl Default for Setting {
    fn default() -> Self {
        Self { directory: None, stages: None, keep: KEEP }
    }
}

impl Setting {
    /// Makes the directory of an attempt, with a file that says what is asked.
    ///
    /// # Errors
    ///
    /// That it cannot be made: nothing was done yet.
    pub(super) fn files(&self, stage: &Stage, asked: (&str, &str)) -> Result<Option<PathBuf>, HandlerError> {
        self.stages.as_ref().map(|stages| stages.make(stage, asked)).transpose().map_err(|error| {
            HandlerError::transient(format!("the directory of the stage cannot be made: {error}")).not_done()
        })
    }
}

/// The setters of a handler or backend that has a [`Setting`].
macro_rules! setters {
    ($type:ty) => {
        impl $type {
            /// Sets where commands run, and what a relative `working_dir` begins at; the process's own directory unless set.
            #[must_use]
            pub fn with_directory(mut self, directory: impl Into<PathBuf>) -> Self {
                self.setting.directory = Some(directory.into());
                self
            }

            /// Has each attempt use its directory in a [run directory](crate::run_dir::RunDirectory): `{node}/{visit}.{attempt}/stage`. The
            /// command finds it as `FERRATA_STAGE_DIR`, and a `status.json` or `outcome.json` that it leaves there is its outcome, whatever
            /// the exit status.
            #[must_use]
            pub fn with_run_directory(mut self, directory: impl Into<PathBuf>) -> Self {
                self.setting.stages = Some(Stages::OfRun(directory.into()));
                self
            }

            /// Has each attempt of a [manager](super::Manager)'s child use a directory in that of the run which supervises it:
            /// `{manager}/{visit}.1/child/{node}/{visit}.{attempt}/stage`, so that nodes of the two may have one name.
            #[must_use]
            pub fn with_parent_directory(mut self, directory: impl Into<PathBuf>) -> Self {
                self.setting.stages = Some(Stages::OfChildren(directory.into()));
                self
            }

            /// Sets how many bytes of each output are kept; 64 KiB unless set.
            #[must_use]
            pub fn with_output_limit(mut self, bytes: usize) -> Self {
                self.setting.keep = bytes;
                self
            }
        }
    };
}

pub(super) use setters;
