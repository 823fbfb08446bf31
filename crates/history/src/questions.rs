//! The questions of a run.

use crate::ask::{OnDeadline, Question, QuestionKind};
use crate::engine::machine::Machine;
use crate::engine::questions::{BEFORE, QuestionState, QuestionSubject};
use crate::record::{Failure, FailureKind};

/// Returns the text of a question about work that must not be repeated.
fn doubt_text(why: Option<&Failure>) -> String {
    let Some(why) = why else {
        return "It was running when its process ended or was lost; whether its work was done is unknown. A process that is only suspended \
            or cut off may still do the work"
            .to_owned();
    };
    let message = &why.message;
    match why.kind {
        FailureKind::Timeout => {
            "It was running when its timeout expired; whether its work was done is unknown".to_owned()
        }
        FailureKind::Panic => format!("It {message}; whether its work was done is unknown"),
        FailureKind::Operator => {
            format!("It is to be retried, and an answer reported that it failed: {message}")
        }
        FailureKind::Update | FailureKind::Route | FailureKind::Graph | FailureKind::ConcurrentWrite => {
            format!("Its work was done, and its result could not be applied: {message}")
        }
        _ => format!("It failed, and whether its work was done is unknown: {message}"),
    }
}

/// Returns the open questions of a run. An ended run has no open questions, because it rejects answers. If a failed run is retried, its questions are
/// open again.
pub fn questions(machine: &Machine) -> Vec<Question> {
    if machine.status().is_finished() {
        return Vec::new();
    }
    let question = |posed: QuestionState| {
        let (node, visit) = (machine.name(posed.key.0), posed.key.1);
        let id = machine.id_of(&posed);
        let plain = |kind| Question::new(id.clone(), node.clone(), visit, kind);
        match posed.about {
            QuestionSubject::Doubt => {
                let why =
                    machine.in_flight().get(&posed.key).and_then(|activation| activation.why.as_deref());
                let text = serde_json::Value::from(doubt_text(why)).to_string();
                let mut question = plain(QuestionKind::Doubt);
                (question.text, question.failure) = (Some(text), why.cloned());
                question
            }
            QuestionSubject::After => plain(QuestionKind::After),
            QuestionSubject::Asked(_) if posed.name.as_deref() == Some(BEFORE) => plain(QuestionKind::Before),
            QuestionSubject::Asked(asked) => {
                let mut question = plain(QuestionKind::Asked);
                question.text = Some(asked.ask.question.get().to_owned());
                question.expects = Some(asked.ask.expects.clone());
                question.deadline = asked.ask.deadline;
                question.default = match &asked.ask.on_deadline {
                    OnDeadline::Default(text) => Some(text.get().to_owned()),
                    OnDeadline::Tell => None,
                };
                question.problem.clone_from(&asked.ask.problem);
                question
            }
        }
    };
    machine.posed().into_iter().map(question).collect()
}
