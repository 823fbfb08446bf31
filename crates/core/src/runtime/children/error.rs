//! Why a child brought no result.

use std::error::Error as StdError;
use std::fmt;

use crate::error::Error;
use crate::failure::Failure;
use crate::id::RunKey;

/// Why a child brought no result.
///
/// With `?` it fails the node that waits, and the failure of that names every run and node on the way down to the cause.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChildError {
    /// The child failed. The next attempt of the node starts it anew.
    Failed {
        /// The child.
        run: RunKey,
        /// Why.
        cause: ChildFailure,
    },
    /// The child was cancelled. The next attempt of the node starts it anew.
    Cancelled {
        /// The child.
        run: RunKey,
        /// Why, as the signaller said.
        reason: String,
    },
    /// The child was purged before its parent knew what came of it.
    Gone {
        /// The child.
        run: RunKey,
    },
    /// The child cannot be started, or what came of it cannot be read.
    Refused(Error),
}

/// The failure of a child as an error, with its causes.
#[derive(Clone, Debug)]
pub struct ChildFailure {
    failure: Failure,
    causes: Option<Box<Cause>>,
}

/// A cause, and that of it.
#[derive(Clone, Debug)]
struct Cause {
    text: String,
    next: Option<Box<Self>>,
}

impl ChildFailure {
    pub(crate) fn new(failure: Failure) -> Self {
        let chain = |next, text: &String| Some(Box::new(Cause { text: text.clone(), next }));
        let causes = failure.causes.iter().rev().fold(None, chain);
        Self { failure, causes }
    }

    /// Returns the failure as the child's log has it.
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

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Cause {
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
                write!(f, "the child {run} was purged before its parent knew what came of it")
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
