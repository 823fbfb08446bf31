//! The settings that tools and command backends share: the working directory and the captured output.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::capture::{CapturedOutput, CommandOutputs, KeepPolicy, OutputSource};
use super::command::Stages;
use super::{HandlerError, Stage, codergen};
use crate::outcome::StageOutcome;
use crate::run_dir::artifacts_of_attempt;

/// The working directory of commands, the directory for files of attempts, and the maximum size of each output in memory.
#[derive(Clone, Debug)]
pub(super) struct CommandSetting {
    pub(super) directory: Option<PathBuf>,
    pub(super) stages: Option<Stages>,
    pub(super) keep: KeepPolicy,
}

impl CommandSetting {
    pub(super) fn new(keep: KeepPolicy) -> Self {
        Self { directory: None, stages: None, keep }
    }

    /// Sets the maximum number of bytes of each output that stay in memory.
    pub(super) fn limit(&mut self, bytes: usize) {
        self.keep = match self.keep {
            KeepPolicy::BothEnds(_) => KeepPolicy::BothEnds(bytes),
            KeepPolicy::Beginning(_) => KeepPolicy::Beginning(bytes),
        };
    }

    /// Starts to capture the output of an attempt's command.
    pub(super) fn begin_output(&self, stage: &Stage, source: OutputSource) {
        let place = self.stages.as_ref().and_then(|stages| stages.whole_place(stage));
        stage.printed.begin(source, self.keep, place.as_ref());
    }

    /// Creates the directory of an attempt, with a file that contains the task.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be created. No work was done yet.
    pub(super) fn files(&self, stage: &Stage, asked: (&str, &str)) -> Result<Option<PathBuf>, HandlerError> {
        self.stages.as_ref().map(|stages| stages.make(stage, asked)).transpose().map_err(|error| {
            HandlerError::transient(format!("cannot create the directory of the node: {error}")).not_done()
        })
    }
}

/// Defines the setters of a handler or backend that has a [`CommandSetting`].
macro_rules! setters {
    ($type:ty) => {
        impl $type {
            /// Sets the working directory of commands. A relative `working_dir` starts at this directory. The default is the working directory of the
            /// process.
            #[must_use]
            pub fn with_directory(mut self, directory: impl Into<PathBuf>) -> Self {
                self.setting.directory = Some(directory.into());
                self
            }

            /// Gives each attempt its own directory in a [run directory](crate::run_dir::RunDirectory): `{node}/{visit}.{attempt}/stage`. The command
            /// gets the path as `FERRATA_STAGE_DIR`. If the command leaves a `status.json` or `outcome.json` there, this file is its outcome,
            /// whatever the exit status is.
            #[must_use]
            pub fn with_run_directory(mut self, directory: impl Into<PathBuf>) -> Self {
                self.setting.stages = Some($crate::handler::command::Stages::OfRun(directory.into()));
                self
            }

            /// Gives each attempt of a [manager](super::Manager)'s child its own directory in the directory of the supervising run:
            /// `{manager}/{visit}.1/child/{node}/{visit}.{attempt}/stage`. So nodes of both runs may have the same name.
            #[must_use]
            pub fn with_parent_directory(mut self, directory: impl Into<PathBuf>) -> Self {
                self.setting.stages = Some($crate::handler::command::Stages::OfChildren(directory.into()));
                self
            }

            /// Sets the maximum number of bytes of each output that the context stores. The default for a tool is 64 KiB, half from the beginning and
            /// half from the end. The default for an answer is the first 1 MiB. A run directory stores a longer output completely, as an artifact.
            #[must_use]
            pub fn with_output_limit(mut self, bytes: usize) -> Self {
                self.setting.limit(bytes);
                self
            }
        }
    };
}

pub(super) use setters;

impl CommandOutputs {
    /// Adds the output of a command to an outcome as context keys, and adds notes about missing parts.
    pub(crate) fn add_to(self, outcome: StageOutcome, node: &str) -> StageOutcome {
        let outcome = self.add_cuts_to(outcome, node);
        match self.source {
            OutputSource::Tool => {
                // A command that has not ended has no exit code, so remove the exit code of an earlier tool.
                let outcome = outcome.with("tool.exit_code", Json::Null);
                outcome.with("tool.output", self.output.text).with("tool.errors", self.errors.text)
            }
            OutputSource::Backend => codergen::with_answer(outcome, node, self.output.text),
        }
    }

    /// Adds notes that say which outputs are incomplete, and the artifacts with the complete outputs.
    pub(crate) fn add_cuts_to(&self, mut outcome: StageOutcome, node: &str) -> StageOutcome {
        let outputs: &[(&str, &str, &CapturedOutput)] = match self.source {
            OutputSource::Tool => &[
                ("`tool.output`", "output.txt", &self.output),
                ("`tool.errors`", "errors.txt", &self.errors),
            ],
            OutputSource::Backend => &[("the answer", "response.md", &self.output)],
        };
        for (what, file, output) in outputs {
            if let Some(note) = output.note(what) {
                outcome.add_note(&note);
            }
            if let Some(whole) = output.whole.as_ref().filter(|whole| whole.is_artifact) {
                let told = json!({"path": whole.path, "bytes": whole.bytes});
                outcome.context_updates.insert(artifacts_of_attempt::key(&format!("{node}.{file}")), told);
            }
        }
        outcome
    }
}
