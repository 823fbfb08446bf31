//! How a run stands when nothing moves it any more.

use crate::ask::{OnDeadline, Question, QuestionKind};
use crate::clock::Timestamp;
use crate::engine::machine::Machine;
use crate::engine::questions::{BEFORE, Subject};
use crate::record::{Failure, FailureKind, RunStatus};
use crate::state::State;

/// How a run stands when nothing moves it any more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome<S> {
    /// Every branch has ended; this is the final state.
    Completed(S),
    /// The run failed. The state is that of the last activation that succeeded; `Runtime::retry` goes on from there.
    Failed {
        /// Why.
        failure: Failure,
        /// The state as it is.
        state: S,
    },
    /// Only answers to these questions can move it: see [`Runtime::respond`](super::Runtime::respond).
    Interrupted(Vec<Question>),
    /// Only a message can move it: see [`Runtime::send`](super::Runtime::send).
    AwaitingInput,
    /// Somebody paused it: see [`Runtime::unpause`](super::Runtime::unpause).
    Paused {
        /// Why, as whoever paused it said.
        reason: String,
        /// What is asked meanwhile.
        questions: Vec<Question>,
    },
    /// Some node sleeps for longer: the run is to be resumed when that is over, and uses no memory until then. Answers and messages
    /// that nodes wait for beside it move it before.
    Sleeping {
        /// When it is to be resumed.
        until: Timestamp,
    },
    /// It was cancelled.
    Cancelled {
        /// Why, as whoever cancelled it said.
        reason: String,
        /// The state as it is.
        state: S,
    },
    /// The runtime was shut down before the run ended; whoever resumes it goes on.
    Released,
}

impl<S: State> Outcome<S> {
    pub(crate) fn of(machine: &Machine, state: &S) -> Self {
        match machine.status() {
            RunStatus::Completed => Self::Completed(state.clone()),
            RunStatus::Failed => Self::Failed {
                failure: machine.failure().cloned().unwrap_or_else(|| {
                    Failure::new(FailureKind::Operator, "the log does not say why the run failed")
                }),
                state: state.clone(),
            },
            RunStatus::Cancelled => Self::Cancelled {
                reason: machine.cancel().map(str::to_owned).unwrap_or_default(),
                state: state.clone(),
            },
            RunStatus::Interrupted => match machine.paused() {
                Some(reason) => Self::Paused { reason: reason.to_owned(), questions: questions(machine) },
                None => Self::Interrupted(questions(machine)),
            },
            RunStatus::AwaitingInput => Self::AwaitingInput,
            _ => machine.wake().map_or(Self::Released, |until| Self::Sleeping { until }),
        }
    }

    /// Returns the final state of a completed run.
    pub fn completed(self) -> Option<S> {
        match self {
            Self::Completed(state) => Some(state),
            _ => None,
        }
    }
}

/// Says what is asked about work that must not be repeated.
fn doubt(why: Option<&Failure>) -> String {
    let Some(why) = why else {
        return "It was at work when its process ended; nobody knows whether it was done".to_owned();
    };
    let message = &why.message;
    match why.kind {
        FailureKind::Timeout => {
            "It was at work when its time was up; nobody knows whether it was done".to_owned()
        }
        FailureKind::Panic => format!("It {message}; nobody knows whether it was done"),
        FailureKind::Operator => {
            format!("It is to be tried again, and somebody said that it failed: {message}")
        }
        FailureKind::Update | FailureKind::Route | FailureKind::Graph | FailureKind::ConcurrentWrite => {
            format!("It was done, and what came of it could not be taken in: {message}")
        }
        _ => format!("It failed, and nobody knows whether it was done: {message}"),
    }
}

/// Returns the questions that a run waits for: none once it has ended, for then an answer is refused. Those of a failed run are
/// open again after a retry.
pub(crate) fn questions(machine: &Machine) -> Vec<Question> {
    if machine.status().is_finished() {
        return Vec::new();
    }
    let question = |posed: crate::engine::questions::Posed| {
        let (node, visit) = (machine.name(posed.key.0).clone(), posed.key.1);
        let id = machine.id_of(&posed);
        let plain = |kind| Question {
            id: id.clone(),
            node: node.clone(),
            visit,
            kind,
            text: None,
            expects: None,
            deadline: None,
            default: None,
            problem: None,
            failure: None,
        };
        match posed.about {
            Subject::Doubt => {
                let why =
                    machine.in_flight().get(&posed.key).and_then(|activation| activation.why.as_deref());
                let text = serde_json::Value::from(doubt(why)).to_string();
                Question { text: Some(text), failure: why.cloned(), ..plain(QuestionKind::Doubt) }
            }
            Subject::After => plain(QuestionKind::After),
            Subject::Asked(_) if posed.name.as_deref() == Some(BEFORE) => plain(QuestionKind::Before),
            Subject::Asked(asked) => Question {
                text: Some(asked.ask.question.get().to_owned()),
                expects: Some(asked.ask.expects.clone()),
                deadline: asked.ask.deadline,
                default: match &asked.ask.on_deadline {
                    OnDeadline::Default(text) => Some(text.get().to_owned()),
                    OnDeadline::Tell => None,
                },
                problem: asked.ask.problem.clone(),
                ..plain(QuestionKind::Asked)
            },
        }
    };
    machine.posed().into_iter().map(question).collect()
}
