//! How a run stands when nothing moves it any more.

use std::fmt;

use crate::ask::Question;
use crate::clock::Timestamp;
use crate::engine::machine::Machine;
use crate::past::questions;
use crate::record::{Failure, FailureKind, RunStatus};
use crate::state::{State, as_stored};

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
    /// A signaller paused it: see [`Runtime::unpause`](super::Runtime::unpause).
    Paused {
        /// Why, as the signaller said.
        reason: String,
        /// What is asked meanwhile.
        questions: Vec<Question>,
    },
    /// Some node sleeps for longer: the run is to be resumed when that is over, and uses no memory until then. Answers and messages
    /// that nodes wait for beside it move it before. So it is with a run that waits for [children](super::ChildHandle::result): the end of
    /// one moves it, and the time is when they are looked at next.
    Sleeping {
        /// When it is to be resumed.
        until: Timestamp,
    },
    /// It was cancelled.
    Cancelled {
        /// Why, as the signaller said.
        reason: String,
        /// The state as it is.
        state: S,
    },
    /// The runtime was shut down before the run ended; the next claimer goes on with it.
    Released,
}

/// In a few words, without the state, such as `interrupted, approve@1:gate is asked`.
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
                    [only] => write!(f, ", {} is asked", only.id),
                    [first, more @ ..] => write!(f, ", {} and {} more are asked", first.id, more.len()),
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

    /// Returns the final state of a completed run.
    pub fn completed(self) -> Option<S> {
        match self {
            Self::Completed(state) => Some(state),
            _ => None,
        }
    }
}
