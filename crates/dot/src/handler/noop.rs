//! Nodes without work: start, exit, conditional, parallel and fan-in.

use async_trait::async_trait;
use ferrata_core::graph::Effect;

use super::{Handler, HandlerError, Stage};
use crate::outcome::StageOutcome;

/// A handler that does nothing and succeeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noop;

#[async_trait]
impl Handler for Noop {
    async fn run(&self, _stage: &Stage) -> Result<StageOutcome, HandlerError> {
        Ok(StageOutcome::success())
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }
}
