//! How a run stands when nothing moves it any more.

use crate::engine::machine::Machine;
use crate::id::{NodeName, Visit};
use crate::record::{Failure, RunStatus};
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

/// Something that somebody must answer before the run can go on.
///
/// Asked when a process ended while an `External` node was at work: nobody knows whether the work was done, and it must not
/// be done twice.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Question {
    /// What to answer it by.
    pub id: String,
    /// The node it is about.
    pub node: NodeName,
    /// Which visit of it.
    pub visit: Visit,
}

impl<S: State> Outcome<S> {
    pub(crate) fn of(machine: &Machine, state: &S) -> Self {
        match machine.status {
            RunStatus::Completed => Self::Completed(state.clone()),
            RunStatus::Failed => Self::Failed {
                failure: machine.failure.clone().unwrap_or_else(|| {
                    Failure::new(
                        crate::record::FailureKind::Operator,
                        "the log does not say why the run failed",
                    )
                }),
                state: state.clone(),
            },
            RunStatus::Cancelled => {
                Self::Cancelled { reason: machine.cancel.clone().unwrap_or_default(), state: state.clone() }
            }
            RunStatus::Interrupted | RunStatus::AwaitingInput => Self::Interrupted(questions(machine)),
            RunStatus::InProgress => Self::Released,
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

pub(crate) fn questions(machine: &Machine) -> Vec<Question> {
    let question =
        |key| Question { id: machine.question_id(key), node: machine.name(key.0).clone(), visit: key.1 };
    machine.open_questions().map(question).collect()
}
