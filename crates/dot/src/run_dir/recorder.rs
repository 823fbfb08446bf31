//! A handler that stores the output of attempts in the directory of the run, including output that is not recorded in the log.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use ferrata_core::Error;
use ferrata_core::graph::Effect;
use serde_json::Value as Json;

use super::{RunDirectory, artifacts_of_attempt, files};
use crate::handler::{Handler, HandlerError, STAGE, Stage, response_key};
use crate::outcome::StageOutcome;
use crate::pipeline::{Node, Pipeline};

/// Runs the inner handler, and stores the output of its attempts.
#[derive(Debug)]
pub(super) struct OutputRecorder {
    inner: Arc<dyn Handler>,
    root: Arc<Path>,
}

impl OutputRecorder {
    pub(super) fn new(inner: Arc<dyn Handler>, root: Arc<Path>) -> Self {
        Self { inner, root }
    }
}

/// Returns the context keys that appear as files of an attempt, each with the name of the file.
fn texts(node: &str) -> [(String, &'static str); 3] {
    [
        ("tool.output".to_owned(), "output.txt"),
        ("tool.errors".to_owned(), "errors.txt"),
        (response_key(node), "response.md"),
    ]
}

/// Writes a file of an attempt. Returns a note if it fails: the work is done, and a full disk is no reason to repeat it.
fn write(root: &Path, attempt: &Path, name: &str, text: &str) -> Option<String> {
    let written = files::write(root, &attempt.join(name), text.as_bytes());
    written.err().map(|error| format!("cannot write {name}: {error}"))
}

/// An attempt whose handler has not returned an outcome, so that no record contains its output.
struct UnfinishedAttempt<'a> {
    root: &'a Path,
    attempt: &'a Path,
    stage: &'a Stage,
    is_over: bool,
}

impl UnfinishedAttempt<'_> {
    /// Returns the standard error of a task; `None` for a tool.
    fn errors(&self) -> Option<String> {
        let printed = self.stage.printed.captured().filter(|printed| printed.is_task())?;
        Some(printed.errors.text).filter(|text| !text.trim().is_empty())
    }
}

impl Drop for UnfinishedAttempt<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let Some(printed) = self.stage.printed.captured() else { return };
        let outcome = printed.add_to(StageOutcome::success(), self.stage.node.id());
        let of_context = texts(self.stage.node.id()).into_iter();
        let of_context = of_context
            .filter_map(|(key, name)| Some((name, outcome.context_updates.get(&key)?.as_str()?.to_owned())));
        for (name, text) in of_context.chain(self.errors().map(|text| ("errors.txt", text))) {
            if let Some(problem) = write(self.root, self.attempt, name, &text) {
                self.stage.printed.add_problem(problem);
            }
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Handler for OutputRecorder {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let attempt =
            RunDirectory::attempt(&self.root, stage.node.id(), stage.cx.visit().get(), stage.cx.attempt());
        // The output is stored however the attempt ends, even if a timeout drops this future.
        let mut unfinished = UnfinishedAttempt { root: &self.root, attempt: &attempt, stage, is_over: false };
        let mut outcome = self.inner.run(stage).await?;
        unfinished.is_over = true;
        artifacts_of_attempt::collect(&self.root, &attempt.join(STAGE), &mut outcome);
        let mut problems = Vec::new();
        for (key, name) in texts(stage.node.id()) {
            if let Some(text) = outcome.context_updates.get(&key).and_then(Json::as_str) {
                problems.extend(write(&self.root, &attempt, name, text));
            }
        }
        // The context does not contain the standard error of a task.
        if let Some(text) = unfinished.errors() {
            problems.extend(write(&self.root, &attempt, "errors.txt", &text));
        }
        problems.iter().for_each(|problem| outcome.add_note(problem));
        Ok(outcome)
    }

    fn effect(&self) -> Effect {
        self.inner.effect()
    }

    fn is_task(&self) -> bool {
        self.inner.is_task()
    }

    fn times_itself(&self) -> bool {
        self.inner.times_itself()
    }

    fn check(&self, node: &Node, pipeline: &Pipeline) -> Result<(), Error> {
        self.inner.check(node, pipeline)
    }
}
