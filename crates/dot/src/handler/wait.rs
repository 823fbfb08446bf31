//! A node that waits for a time.

use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::Effect;
use ferrata_core::{Error, ErrorKind};

use super::{Handler, HandlerError, Stage};
use crate::outcome::StageOutcome;
use crate::pipeline::{Node, Pipeline};
use crate::value::Value;

/// Waits for the `duration` of the node. The wait survives a restart, and a long wait uses no memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitHandler;

fn duration_of(node: &Node) -> Option<Duration> {
    node.attributes.get("duration").and_then(Value::as_duration)
}

#[async_trait]
impl Handler for WaitHandler {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let duration = duration_of(&stage.node).unwrap_or_default();
        stage.cx.sleep(duration).await.map_err(HandlerError::of_runtime)?;
        if !duration.is_zero() {
            stage.mark_waited();
        }
        Ok(StageOutcome::success().with_notes(format!("waited for {duration:?}")))
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn times_itself(&self) -> bool {
        true
    }

    fn check(&self, node: &Node, _pipeline: &Pipeline) -> Result<(), Error> {
        if duration_of(node).is_some() {
            return Ok(());
        }
        let message =
            format!("node {}: the wait has no duration; set one, such as `duration=15m`", node.id());
        Err(Error::new(ErrorKind::Invalid, message).with_operation("dot.compile"))
    }
}
