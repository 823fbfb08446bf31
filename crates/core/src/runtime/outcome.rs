//! Outcomes of runs.

use std::fmt;

use crate::ask::Question;
use crate::clock::Timestamp;
use crate::engine::machine::Machine;
use crate::past::questions;
use crate::record::{Failure, FailureKind, RunStatus};
use crate::state::{State, as_stored};

/// The outcome of a run that has ended or is idle.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome<S> {
    /// Every branch of the run has ended. The value is the final state.
    Completed(S),
    /// The run failed. The state is the state after the last successful activation. `Runtime::retry` continues from there.
    Failed {
        /// The reason why the run failed.
        failure: Failure,
        /// The current state of the run.
        state: S,
    },
    /// The run waits for answers to these questions. [`Runtime::respond`](super::Runtime::respond) answers a question.
    Interrupted(Vec<Question>),
    /// The run waits for a message. [`Runtime::send`](super::Runtime::send) sends one.
    AwaitingInput,
    /// The run is paused. [`Runtime::unpause`](super::Runtime::unpause) continues it.
    Paused {
        /// The reason that the caller gave.
        reason: String,
        /// The open questions.
        questions: Vec<Question>,
    },
    /// The run waits for a time and has left the memory. Resume it at `until`, or serve its workflow. If a node also waits for an answer or a
    /// message, the run continues earlier when this arrives. A run that waits for [children](super::ChildHandle::result) has this outcome too: it
    /// continues when a child ends, and `until` is the time when it next checks its children.
    Sleeping {
        /// The time at which the run can be resumed.
        until: Timestamp,
    },
    /// The run was cancelled.
    Cancelled {
        /// The reason that the caller gave.
        reason: String,
        /// The current state of the run.
        state: S,
    },
    /// The runtime shut down before the run ended. The process that next claims the run continues it.
    Released,
}

/// Formats the outcome in a few words, without the state, such as `interrupted, approve@1:gate is asked`.
///
/// ```
/// use ferrata_core::runtime::Outcome;
///
/// assert_eq!(Outcome::Completed(7).to_string(), "completed");
/// assert_eq!(Outcome::<()>::Paused { reason: "lunch".into(), questions: Vec::new() }.to_string(), "paused: lunch");
/// ```
impl<S> fmt::Display for Outcome<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed(_) => f.write_str("completed"),
            Self::Failed { failure, .. } => write!(f, "failed: {failure}"),
            Self::Interrupted(questions) => {
                f.write_str("interrupted")?;
                match questions.as_slice() {
                    [] => Ok(()),
                    [only] => write!(f, ", waiting for an answer to `{}`", only.id),
                    [first, more @ ..] => {
                        write!(f, ", waiting for answers to `{}` and {} more", first.id, more.len())
                    }
                }
            }
            Self::AwaitingInput => f.write_str("awaiting a message"),
            Self::Paused { reason, .. } => write!(f, "paused: {reason}"),
            Self::Sleeping { until } => write!(f, "sleeping until {until}"),
            Self::Cancelled { reason, .. } => write!(f, "cancelled: {reason}"),
            Self::Released => f.write_str("released"),
        }
    }
}

impl<S: State> Outcome<S> {
    pub(crate) fn of(machine: &Machine, state: &S) -> Self {
        match machine.status() {
            RunStatus::Completed => Self::Completed(as_stored(state).into_owned()),
            RunStatus::Failed => Self::Failed {
                failure: machine.failure().cloned().unwrap_or_else(|| {
                    Failure::new(FailureKind::Operator, "the log does not say why the run failed")
                }),
                state: as_stored(state).into_owned(),
            },
            RunStatus::Cancelled => Self::Cancelled {
                reason: machine.cancel().map(str::to_owned).unwrap_or_default(),
                state: as_stored(state).into_owned(),
            },
            RunStatus::Interrupted => match machine.paused() {
                Some(reason) => Self::Paused { reason: reason.to_owned(), questions: questions(machine) },
                None => Self::Interrupted(questions(machine)),
            },
            RunStatus::AwaitingInput => Self::AwaitingInput,
            _ => machine.wake().map_or(Self::Released, |until| Self::Sleeping { until }),
        }
    }

    /// Returns the final state if the run completed, and `None` for every other outcome.
    pub fn completed(self) -> Option<S> {
        match self {
            Self::Completed(state) => Some(state),
            _ => None,
        }
    }
}
