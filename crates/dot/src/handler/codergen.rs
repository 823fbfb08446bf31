//! A node that gives a task to a backend: a model, an agent or any other program.

use std::fmt;

use async_trait::async_trait;
use serde_json::json;

use super::{Handler, HandlerError, PROMPT, Stage};
use crate::fidelity::{Fidelity, TaskSessions, preamble};
use crate::outcome::{StageOutcome, Status};
use crate::suggest::{one_line, shortened};
use crate::variable::expand;

/// Maximum number of characters of an answer that the context stores as `last_response`.
const LAST_RESPONSE: usize = 200;

/// Maximum number of characters of an answer that become the reason of a failure.
const REASON: usize = 500;

/// A task for a backend.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskRequest<'a> {
    /// The full prompt: the summary of the previous run, followed by the task.
    pub prompt: &'a str,
    /// The task without the summary: the `prompt` of the node, or its label if it has no prompt.
    pub task: &'a str,
    /// How much of the previous run the prompt contains: the fidelity chosen for the node, or a summary if the session was lost.
    pub fidelity: Fidelity,
    /// The session of the task. With [`Fidelity::Full`], the task continues this session. With any other fidelity, a new session replaces this
    /// session.
    pub thread: Option<&'a str>,
    /// The attempt to which the task belongs, with its run, node, visit and attempt number.
    pub stage: &'a Stage,
}

impl TaskRequest<'_> {
    /// Returns a setting that the node or the stylesheet sets: `llm_model`, `llm_provider` or `reasoning_effort`. The default is an empty text, and
    /// `high` for the effort.
    pub fn setting(&self, name: &str) -> String {
        let value = self.stage.node.attributes.text(name).into_owned();
        let value =
            if value.is_empty() { self.stage.pipeline.attributes.text(name).into_owned() } else { value };
        if value.is_empty() && name == "reasoning_effort" { "high".to_owned() } else { value }
    }

    /// Returns whether the node has the type `prompt`. For such a node, the backend calls the model only once, without tools of its own.
    pub fn is_single_call(&self) -> bool {
        *self.stage.kind == *PROMPT
    }
}

/// The result of a task: a text answer, an outcome, or both.
///
/// Text without an outcome counts as a success. If the answer has an outcome, only the outcome decides how the node ends.
///
/// # Examples
///
/// ```
/// use ferrata_dot::handler::BackendAnswer;
/// use ferrata_dot::outcome::{StageOutcome, Usage};
///
/// let outcome = StageOutcome::success().with_usage(Usage::new(0.02, 1800, 3.5));
/// let answer = BackendAnswer::outcome(outcome).with_text("The plan: parse, check, print.");
/// assert_eq!(answer.text.as_deref(), Some("The plan: parse, check, print."));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BackendAnswer {
    /// The text of the answer.
    pub text: Option<String>,
    /// The outcome of the work; `None` if the text is the whole result.
    pub outcome: Option<StageOutcome>,
}

impl BackendAnswer {
    /// Creates an answer with text and without an outcome, so that the node succeeds.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), outcome: None }
    }

    /// Creates an answer with an outcome and no text.
    pub fn outcome(outcome: StageOutcome) -> Self {
        Self { text: None, outcome: Some(outcome) }
    }

    /// Adds the text of the answer.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }
}

/// A model, an agent or another program that performs the tasks of nodes.
///
/// # Cancel safety
///
/// The same as for [`Handler`].
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Performs a task.
    ///
    /// # Errors
    ///
    /// [`HandlerError`] if the task has no result. The error also states whether a retry makes sense.
    async fn run(&self, request: TaskRequest<'_>) -> Result<BackendAnswer, HandlerError>;
}

/// A backend that does no work. The backend answers `[Simulated] Response for stage: ` and the node. The notes of the outcome mark the answer as
/// simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulate;

#[async_trait]
impl Backend for Simulate {
    async fn run(&self, request: TaskRequest<'_>) -> Result<BackendAnswer, HandlerError> {
        let node = request.stage.node.id();
        let outcome = StageOutcome::success().with_notes(format!("Simulated, without a backend: {node}"));
        Ok(BackendAnswer::outcome(outcome).with_text(format!("[Simulated] Response for stage: {node}")))
    }
}

/// Sends the prompt of a node to a backend, after a summary of the previous run.
///
/// When the task begins, each variable in the prompt (`$name`, `${name}` or `{{ name }}`) is replaced by the context's value for this key. Text is
/// inserted verbatim, and other values as JSON. A name may have dots: `${response.plan}` is the whole answer of the node `plan`, and `$item.title` is
/// a part of a branch's item. `goal` is the goal of the run, and `inputs.x` is the same as `x`. A variable without a value stays in the prompt, but a
/// missing `inputs.x` fails the task.
///
/// The context stores the answer under `response.` and the node's id, its first 200 characters as `last_response`, and the node as `last_stage`. An
/// answer without an outcome is a success.
#[derive(Debug)]
pub struct Codergen<B> {
    backend: B,
    sessions: TaskSessions,
}

impl<B: Backend> Codergen<B> {
    /// Creates a handler that sends tasks to `backend`.
    pub fn new(backend: B) -> Self {
        Self { backend, sessions: TaskSessions::default() }
    }
}

/// Adds the answer of a node to its outcome, unless the outcome sets these keys itself. If a failure has no reason, the answer becomes the reason.
pub(super) fn with_answer(mut outcome: StageOutcome, node: &str, text: String) -> StageOutcome {
    if text.trim().is_empty() {
        return outcome;
    }
    if matches!(outcome.status, Status::Fail | Status::Retry) && outcome.failure_reason.is_empty() {
        outcome.failure_reason = shortened(&one_line(&text), REASON).into_owned();
    }
    let short: String = text.chars().take(LAST_RESPONSE).collect();
    let updates = &mut outcome.context_updates;
    updates.entry("last_response".to_owned()).or_insert_with(|| short.into());
    updates.entry(response_key(node)).or_insert_with(|| text.into());
    outcome
}

/// Returns the error for a task whose prompt contains a name without a value.
fn refused(why: impl fmt::Display) -> HandlerError {
    HandlerError::permanent(format!("the prompt: {why}")).not_done()
}

/// Returns the context key of the answer of a node.
pub(crate) fn response_key(node: &str) -> String {
    format!("response.{node}")
}

#[async_trait]
impl<B: Backend> Handler for Codergen<B> {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let task = stage.node.attributes.text("prompt");
        let task = if task.is_empty() { stage.node.label() } else { task };
        let task = if stage.is_expanded { task } else { expand(&task, &stage.context).map_err(refused)? };
        let activation = stage.cx.idempotency_key();
        let told = self.sessions.effective_fidelity(&stage.told, &stage.context, &activation);
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
            self.backend.run(TaskRequest { prompt: &prompt, task: &task, fidelity, thread, stage }).await?;
        self.sessions.insert(activation);
        let node = stage.node.id();
        let BackendAnswer { text, outcome } = answer;
        let outcome = match (outcome, &text) {
            (Some(outcome), _) => outcome,
            (None, Some(_)) => StageOutcome::success().with_notes(format!("Stage completed: {node}")),
            (None, None) => {
                return Err(HandlerError::no_status("the backend returned neither an answer nor an outcome"));
            }
        };
        let outcome = match stage.printed.take() {
            Some(printed) => printed.add_cuts_to(outcome, node),
            None => outcome,
        };
        let outcome = outcome.with("last_stage", node);
        Ok(match text {
            Some(text) => with_answer(outcome, node, text),
            None => outcome,
        })
    }

    fn is_task(&self) -> bool {
        true
    }
}
