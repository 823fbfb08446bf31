//! The reason why a child has no final state.

use std::error::Error as StdError;
use std::fmt;

use crate::error::Error;
use crate::failure::Failure;
use crate::id::RunKey;

/// The reason why a child has no final state.
///
/// If the waiting node returns the error with `?`, the node fails. The recorded failure names every run and node on the path to the cause.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChildError {
    /// The child failed. The next attempt of the node starts a new child.
    Failed {
        /// The key of the child.
        run: RunKey,
        /// The failure of the child, with its causes.
        cause: ChildFailure,
    },
    /// The child was cancelled. The next attempt of the node starts a new child.
    Cancelled {
        /// The key of the child.
        run: RunKey,
        /// The reason of the cancellation.
        reason: String,
    },
    /// The child was purged before its parent recorded a result.
    Gone {
        /// The key of the child.
        run: RunKey,
    },
    /// The child cannot be started, or its result cannot be loaded.
    Refused(Error),
}

/// The failure of a child, as an error with a chain of causes.
#[derive(Clone, Debug)]
pub struct ChildFailure {
    failure: Failure,
    causes: Option<Box<ChildCause>>,
}

/// One cause in the chain, with the next cause.
#[derive(Clone, Debug)]
struct ChildCause {
    text: String,
    next: Option<Box<Self>>,
}

impl ChildFailure {
    pub(crate) fn new(failure: Failure) -> Self {
        let chain = |next, text: &String| Some(Box::new(ChildCause { text: text.clone(), next }));
        let causes = failure.causes.iter().rev().fold(None, chain);
        Self { failure, causes }
    }

    /// Returns the failure from the child's log.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }
}

impl fmt::Display for ChildFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)
    }
}

impl StdError for ChildFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.causes.as_deref().map(|cause| cause as _)
    }
}

impl fmt::Display for ChildCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for ChildCause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.next.as_deref().map(|cause| cause as _)
    }
}

impl fmt::Display for ChildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { run, .. } => write!(f, "the child {run} failed"),
            Self::Cancelled { run, reason } => write!(f, "the child {run} was cancelled: {reason}"),
            Self::Gone { run } => {
                write!(f, "the child {run} was purged before its parent received its result")
            }
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl StdError for ChildError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Failed { cause, .. } => Some(cause),
            Self::Cancelled { .. } | Self::Gone { .. } => None,
            Self::Refused(error) => error.source(),
        }
    }
}

impl From<Error> for ChildError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}
