//! Why a question brought no answer.

use crate::clock::Timestamp;
use crate::error::Error;

/// Why a question brought no answer to its node.
///
/// A node that passes it on with `?` fails for good: asking the same again would bring the same. What was said stands in the
/// failure, and an `on_failure` edge takes it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// It was rejected.
    #[error("the question `{question}` was rejected{}: {comment}", said_by(.by.as_deref()))]
    Rejected {
        /// The name of the question.
        question: String,
        /// What they said.
        comment: String,
        /// Who, if they said it.
        by: Option<String>,
    },
    /// There was no answer in time.
    #[error("nobody answered the question `{question}` by {deadline}")]
    Expired {
        /// The name of the question.
        question: String,
        /// Until when an answer was possible.
        deadline: Timestamp,
    },
    /// The question could not be asked, or its answer not be read.
    #[error(transparent)]
    Failed(#[from] Error),
}

fn said_by(who: Option<&str>) -> String {
    who.map_or_else(String::new, |who| format!(" by {who}"))
}

/// How a question was left without a value: what a gate's function is given when it deals with that itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeclineReason {
    /// It was rejected.
    #[error("rejected{}: {comment}", said_by(.by.as_deref()))]
    Rejected {
        /// What they said.
        comment: String,
        /// Who, if they said it.
        by: Option<String>,
    },
    /// There was no answer in time.
    #[error("nobody answered by {deadline}")]
    Expired {
        /// Until when an answer was possible.
        deadline: Timestamp,
    },
}
