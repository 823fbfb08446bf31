//! A node that gives a task to a backend: a model, an agent, any program.

use std::fmt;

use async_trait::async_trait;
use serde_json::{Value as Json, json};

use super::{Handler, HandlerError, PROMPT, Stage};
use crate::fidelity::{Fidelity, Sessions, preamble};
use crate::outcome::StageOutcome;
use crate::transform::expanded;

/// How many characters of an answer the context keeps as `last_response`.
const LAST_RESPONSE: usize = 200;

/// What a backend is asked to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// All that is to be said: what the task is told of the run so far, and the task.
    pub prompt: &'a str,
    /// The task alone: the node's `prompt`, or its label if it has none.
    pub task: &'a str,
    /// How much of the run is told: what was decided for the node, or a summary where a session was lost.
    pub fidelity: Fidelity,
    /// The session that the task belongs to. With [`Fidelity::Full`] it goes on, otherwise a new one takes its place.
    pub thread: Option<&'a str>,
    /// Where it runs.
    pub stage: &'a Stage,
}

impl Request<'_> {
    /// Returns the model, the provider or the effort that the node or the stylesheet chose: `llm_model`, `llm_provider`,
    /// `reasoning_effort`; empty if nothing did, but an effort is `high` then.
    pub fn setting(&self, name: &str) -> String {
        let value = self.stage.node.attributes.text(name).into_owned();
        let value =
            if value.is_empty() { self.stage.pipeline.attributes.text(name).into_owned() } else { value };
        if value.is_empty() && name == "reasoning_effort" { "high".to_owned() } else { value }
    }

    /// Tells whether the model is asked once, without tools of its own: the node is of type `prompt`.
    pub fn is_single_call(&self) -> bool {
        *self.stage.kind == *PROMPT
    }
}

/// What a backend came to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// Text: the node has succeeded.
    Text(String),
    /// An outcome of its own.
    Outcome(StageOutcome),
}

/// Does tasks.
///
/// # Cancel safety
///
/// As of [`Handler`].
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Does a task.
    ///
    /// # Errors
    ///
    /// [`HandlerError`], which also says whether another attempt makes sense.
    async fn run(&self, request: Request<'_>) -> Result<Answer, HandlerError>;
}

/// A backend that does nothing and answers `[Simulated] Response for stage: ` and the node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulate;

#[async_trait]
impl Backend for Simulate {
    async fn run(&self, request: Request<'_>) -> Result<Answer, HandlerError> {
        Ok(Answer::Text(format!("[Simulated] Response for stage: {}", request.stage.node.id())))
    }
}

/// Gives the node's prompt to a backend, after what the task is told of the run so far.
///
/// A `$name` in the prompt stands for what the context holds under that key when the task begins, text as it is and other values as
/// JSON; what the context does not hold is left as it is.
///
/// An answer in text is success, and sets `last_stage` and the first 200 characters of it as `last_response`; the whole of it
/// is `response.` and the node's id.
#[derive(Debug)]
pub struct Codergen<B> {
    backend: B,
    sessions: Sessions,
}

impl<B: Backend> Codergen<B> {
    /// Gives tasks to this backend.
    pub fn new(backend: B) -> Self {
        Self { backend, sessions: Sessions::default() }
    }
}

#[async_trait]
impl<B: Backend> Handler for Codergen<B> {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let task = stage.node.attributes.text("prompt");
        let task = if task.is_empty() { stage.node.label() } else { task };
        let known = |name: &str| match stage.context.get_value(name)? {
            Json::Null => None,
            Json::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        let task = expanded(&task, known);
        let activation = stage.cx.idempotency_key();
        let told = self.sessions.here(&stage.told, &stage.context, &activation);
        if told.fidelity != stage.told.fidelity {
            let event = json!({"node": stage.node.id(), "from": stage.told.fidelity.as_str(), "to": told.fidelity.as_str()});
            stage.cx.emit("fidelity.degraded", event).map_err(HandlerError::of_runtime)?;
        }
        let mut prompt = preamble(told.fidelity, &stage.context, stage.cx.run().run.as_str());
        if !prompt.is_empty() {
            prompt.push_str("Task:\n");
        }
        prompt.push_str(&task);
        let (fidelity, thread) = (told.fidelity, told.thread.as_deref());
        let answer =
            self.backend.run(Request { prompt: &prompt, task: &task, fidelity, thread, stage }).await?;
        self.sessions.remember(activation);
        match answer {
            Answer::Outcome(outcome) => Ok(outcome.with("last_stage", stage.node.id())),
            Answer::Text(text) => {
                let short: String = text.chars().take(LAST_RESPONSE).collect();
                Ok(StageOutcome::success()
                    .with_notes(format!("Stage completed: {}", stage.node.id()))
                    .with("last_stage", stage.node.id())
                    .with("last_response", short)
                    .with(format!("response.{}", stage.node.id()), text))
            }
        }
    }

    fn is_task(&self) -> bool {
        true
    }
}
