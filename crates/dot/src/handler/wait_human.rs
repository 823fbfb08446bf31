//! A node at which a person chooses the next edge: a gate.

use async_trait::async_trait;
use ferrata_core::ask::{AUTOMATIC, Ask, AskError};
use ferrata_core::graph::Effect;
use ferrata_core::{Error, ErrorKind};
use serde_json::json;

use super::{Handler, HandlerError, Stage};
use crate::fidelity::latest_answers;
use crate::outcome::{StageOutcome, Status};
use crate::pipeline::{Edge, Node, Pipeline};
use crate::select::accelerator;
use crate::suggest::shortened;
use crate::value::Value;
use crate::variable::expand;

/// Asks a person which edge of the node to follow. Only edges without a condition are choices.
///
/// - The question is an object. `text` is the node's own `prompt`, or its label. If there is a prompt, `title` is the label. `stage` is the node's
///   id, and `shown` is the latest answer of a task. `options` is a list of `key`, `label` and `to`. The key is the accelerator in the label (`[Y]
///   Yes`, `Y) Yes`, `Y - Yes`), or the first letter of the label.
/// - An answer is a key in upper or lower case, a label with or without its accelerator, or the id of a target. Any other answer is rejected at once,
///   so that a typing mistake decides nothing.
/// - The context stores the chosen key as `human.gate.selected` and the label as `human.gate.label`. The outcome suggests the target of the edge.
/// - If an edge has `freeform=true`, any other answer follows this edge, and the context stores the answer as `human.gate.text`.
/// - After the node's `timeout`, the run follows the edge that `human.default_choice` names. If there is no default choice, the outcome is `retry`,
///   so the question is repeated as often as the node may retry. A rejected question fails the node.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitHuman;

/// Maximum number of characters of the latest answer that a question shows.
const SHOWN: usize = 8_000;

/// An edge that a person may choose.
struct HumanChoice {
    key: String,
    label: String,
    to: String,
}

impl HumanChoice {
    /// Returns the accepted answers for this choice. The label comes first.
    fn answers(&self) -> [String; 5] {
        let plain = accelerator(&self.label).map_or(&*self.label, |(_, rest)| rest).to_owned();
        [self.label.clone(), plain, self.to.clone(), self.key.clone(), self.key.to_lowercase()]
    }
}

/// Finds the choice for an answer. Labels take precedence over ids, and ids over keys.
fn find_choice<'a>(choices: &'a [HumanChoice], answer: &str) -> Option<&'a HumanChoice> {
    (0..5).find_map(|place| choices.iter().find(|choice| choice.answers()[place] == answer))
}

/// Returns the edges that a person may take.
fn open<'a>(node: &'a Node, pipeline: &'a Pipeline) -> impl Iterator<Item = &'a Edge> {
    pipeline.edges().iter().filter(|edge| *edge.from == *node.id() && edge.condition().is_empty())
}

fn is_freeform(edge: &Edge) -> bool {
    edge.attributes.get("freeform").and_then(Value::as_bool).unwrap_or(false)
}

/// Returns the edge for answers that match no choice; `None` if no edge has `freeform=true`.
fn freeform<'a>(node: &'a Node, pipeline: &'a Pipeline) -> Option<&'a Edge> {
    open(node, pipeline).find(|edge| is_freeform(edge))
}

/// Returns the choices at a node.
fn choices(node: &Node, pipeline: &Pipeline) -> Vec<HumanChoice> {
    let edges = open(node, pipeline).filter(|edge| !is_freeform(edge));
    let choice = |edge: &Edge| {
        let label = edge.label();
        let label = if label.trim().is_empty() { edge.to.to_string() } else { label.trim().to_owned() };
        let key =
            accelerator(&label).map_or_else(|| label.chars().take(1).collect(), |(key, _)| key.to_owned());
        HumanChoice { key: key.to_uppercase(), label, to: edge.to.to_string() }
    };
    edges.map(choice).collect()
}

/// Returns the outcome of a gate for an answer that is not a choice.
fn freeform_outcome(edge: &Edge, answer: &str) -> StageOutcome {
    StageOutcome::success()
        .suggest(&*edge.to)
        .with("human.gate.selected", "")
        .with("human.gate.label", &*edge.label())
        .with("human.gate.text", answer)
        .with_notes(format!("written: {}", shortened(answer, 80)))
}

/// Returns the question for a person: the node's own `prompt`, or its label. If the node has both, also returns the label as the title. A prompt that
/// is a default for all nodes is meant for tasks and is ignored.
fn question_of(stage: &Stage) -> Result<(String, Option<String>), HandlerError> {
    let of_node = |text: &str| match expand(text, &stage.context) {
        Ok(text) => Ok(text.into_owned()),
        Err(why) => Err(HandlerError::permanent(format!("the question: {why}")).not_done()),
    };
    let attributes = &stage.node.attributes;
    let label = of_node(&stage.node.label())?;
    if !attributes.is_own("prompt") || attributes.text("prompt").trim().is_empty() {
        return Ok((label, None));
    }
    Ok((of_node(&attributes.text("prompt"))?, Some(label).filter(|_| attributes.is_own("label"))))
}

#[async_trait]
impl Handler for WaitHuman {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let choices = choices(&stage.node, &stage.pipeline);
        let freeform = freeform(&stage.node, &stage.pipeline);
        if choices.is_empty() && freeform.is_none() {
            return Ok(StageOutcome::fail("the gate has no edge to choose"));
        }
        let options: Vec<_> = choices
            .iter()
            .map(|choice| json!({"key": choice.key, "label": choice.label, "to": choice.to}))
            .collect();
        let (text, title) = question_of(stage)?;
        let mut question = json!({"text": text, "stage": stage.node.id(), "options": options});
        if let Some(title) = title {
            question["title"] = title.into();
        }
        let answers = latest_answers(&stage.context);
        let shown: String = answers.iter().map(|answer| answer.excerpt(SHOWN / answers.len())).collect();
        if !shown.is_empty() {
            question["shown"] = shown.into();
        }
        if let Some(edge) = freeform {
            question["freeform"] = json!({"label": edge.label(), "to": &*edge.to});
        }
        let mut answers: Vec<String> = Vec::new();
        // List labels first, because a client with a single list of answers shows its beginning.
        for place in 0..5 {
            for answer in choices.iter().map(|choice| choice.answers()[place].clone()) {
                if !answers.contains(&answer) {
                    answers.push(answer);
                }
            }
        }
        let mut ask = Ask::<String>::new(question);
        if freeform.is_none() {
            ask = ask.choices(answers);
        }
        if let Some(timeout) = stage.node.attributes.get("timeout").and_then(Value::as_duration) {
            ask = ask.deadline(timeout);
            let default = stage.node.attributes.text("human.default_choice");
            if let Some(choice) = find_choice(&choices, &default) {
                ask = ask.or_default(choice.label.clone());
            } else if freeform.is_some() && !default.is_empty() {
                ask = ask.or_default(default.into_owned());
            }
        }
        // Each attempt has its own question, because the question of the previous attempt was closed without an answer.
        let name = match stage.cx.attempt() {
            1 => "choice".to_owned(),
            attempt => format!("choice.{attempt}"),
        };
        match stage.cx.ask_signed(name, ask).await {
            Ok((answer, by)) => {
                // An automatic answer does not count as a wait.
                if by.as_deref() != Some(AUTOMATIC) {
                    stage.mark_waited();
                }
                let Some(choice) = find_choice(&choices, &answer) else {
                    if let Some(edge) = freeform {
                        return Ok(freeform_outcome(edge, &answer));
                    }
                    let message = format!("the answer `{answer}` matches no edge");
                    return Err(HandlerError::permanent(message));
                };
                Ok(StageOutcome::success()
                    .suggest(&*choice.to)
                    .with("human.gate.selected", &*choice.key)
                    .with("human.gate.label", &*choice.label)
                    .with_notes(format!("chosen: {}", choice.label)))
            }
            Err(AskError::Expired { .. }) => {
                stage.mark_waited();
                let mut outcome = StageOutcome::new(Status::Retry);
                outcome.failure_reason = "no answer arrived before the timeout".to_owned();
                Ok(outcome)
            }
            Err(AskError::Rejected { comment, by, .. }) => {
                if by.as_deref() != Some(AUTOMATIC) {
                    stage.mark_waited();
                }
                Ok(StageOutcome::fail(format!("the question was rejected: {comment}")))
            }
            Err(error) => Err(HandlerError::of_runtime(error)),
        }
    }

    fn effect(&self) -> Effect {
        Effect::Human
    }

    fn times_itself(&self) -> bool {
        true
    }

    fn check(&self, node: &Node, pipeline: &Pipeline) -> Result<(), Error> {
        let default = node.attributes.text("human.default_choice");
        let written = freeform(node, pipeline).is_some();
        if default.is_empty() || written || find_choice(&choices(node, pipeline), &default).is_some() {
            return Ok(());
        }
        let message = format!(
            "node {}: `human.default_choice` is `{default}`, which matches no edge; use a target, a label or a key",
            node.id()
        );
        Err(Error::new(ErrorKind::Invalid, message).with_operation("dot.compile"))
    }
}
