//! What tools and backends that are commands have in common: where their commands run, and how much of what they print is kept.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::capture::{CapturedOutput, CommandOutputs, KeepPolicy, OutputSource};
use super::command::Stages;
use super::{HandlerError, Stage, codergen};
use crate::outcome::StageOutcome;
use crate::run_dir::left;

/// Where commands run, where their attempts have files, and how much of each output is kept in memory.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) directory: Option<PathBuf>,
    pub(super) stages: Option<Stages>,
    pub(super) keep: KeepPolicy,
}

impl Setting {
    pub(super) fn new(keep: KeepPolicy) -> Self {
        Self { directory: None, stages: None, keep }
    }

    /// Sets how many bytes of each output stay in memory.
    pub(super) fn limit(&mut self, bytes: usize) {
        self.keep = match self.keep {
            KeepPolicy::BothEnds(_) => KeepPolicy::BothEnds(bytes),
            KeepPolicy::Beginning(_) => KeepPolicy::Beginning(bytes),
        };
    }

    /// Begins to collect what the command of an attempt prints.
    pub(super) fn begin_output(&self, stage: &Stage, source: OutputSource) {
        let place = self.stages.as_ref().and_then(|stages| stages.whole_place(stage));
        stage.printed.begin(source, self.keep, place.as_ref());
    }

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
                self.setting.stages = Some($crate::handler::command::Stages::OfRun(directory.into()));
                self
            }

            /// Has each attempt of a [manager](super::Manager)'s child use a directory in that of the run which supervises it:
            /// `{manager}/{visit}.1/child/{node}/{visit}.{attempt}/stage`, so that nodes of the two may have one name.
            #[must_use]
            pub fn with_parent_directory(mut self, directory: impl Into<PathBuf>) -> Self {
                self.setting.stages = Some($crate::handler::command::Stages::OfChildren(directory.into()));
                self
            }

            /// Sets how many bytes of each output the context holds; of a tool by default 64 KiB, half from the beginning and half from
            /// the end, of an answer the first 1 MiB. A run directory keeps the whole of a longer one as an artifact.
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
    /// Adds to an outcome what a command printed, as keys of the context, and notes what they lack.
    pub(crate) fn add_to(self, outcome: StageOutcome, node: &str) -> StageOutcome {
        let outcome = self.add_cuts_to(outcome, node);
        match self.source {
            OutputSource::Tool => {
                // Unless it ended, it has none; that of another tool is not its own.
                let outcome = outcome.with("tool.exit_code", Json::Null);
                outcome.with("tool.output", self.output.text).with("tool.errors", self.errors.text)
            }
            OutputSource::Backend => codergen::with_answer(outcome, node, self.output.text),
        }
    }

    /// Notes which of the outputs are cut, and names the artifacts that hold them whole.
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
                outcome.context_updates.insert(left::key(&format!("{node}.{file}")), told);
            }
        }
        outcome
    }
}
