//! A handler whose attempts leave what they printed in the directory of the run, also when nothing of it gets into the log.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use ferrata_core::Error;
use ferrata_core::graph::Effect;
use serde_json::Value as Json;

use super::{RunDirectory, files, left};
use crate::handler::{Handler, HandlerError, STAGE, Stage};
use crate::outcome::StageOutcome;
use crate::pipeline::{Node, Pipeline};

/// Does what the handler inside does, and keeps its output.
#[derive(Debug)]
pub(super) struct Recorder {
    inner: Arc<dyn Handler>,
    root: Arc<Path>,
}

impl Recorder {
    pub(super) fn new(inner: Arc<dyn Handler>, root: Arc<Path>) -> Self {
        Self { inner, root }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Handler for Recorder {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let mut outcome = self.inner.run(stage).await?;
        let attempt =
            RunDirectory::attempt(&self.root, stage.node.id(), stage.cx.visit().get(), stage.cx.attempt());
        left::collect(&self.root, &attempt.join(STAGE), &mut outcome);
        for (key, name) in [("tool.output", "output.txt"), ("tool.errors", "errors.txt")] {
            let Some(text) = outcome.context_updates.get(key).and_then(Json::as_str) else { continue };
            let path = attempt.join(name);
            if let Err(error) = files::write(&self.root, &path, text.as_bytes()) {
                // The work is done, and a full disk is no reason to do it again; what is lost is said where the run is kept.
                let separator = if outcome.notes.is_empty() { "" } else { "; " };
                outcome.notes += &format!("{separator}{name} cannot be written: {error}");
            }
        }
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
