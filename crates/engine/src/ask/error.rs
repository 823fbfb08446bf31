//! The errors of questions that got no answer.

use crate::clock::Timestamp;
use crate::error::Error;

/// The reason why a question of a node has no answer.
///
/// If the node returns this error with `?`, it fails permanently, because the same question would fail again. The failure contains the comment of the
/// person who rejected the question. An `on_failure` edge can handle the failure.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The question was rejected.
    #[error("the question `{question}` was rejected{}: {comment}", author_text(.by.as_deref()))]
    Rejected {
        /// The name of the question.
        question: String,
        /// The comment of the person or program that rejected the question.
        comment: String,
        /// The author of the rejection, if the caller named one.
        by: Option<String>,
    },
    /// No answer arrived before the deadline.
    #[error("the question `{question}` had no answer by {deadline}")]
    Expired {
        /// The name of the question.
        question: String,
        /// The deadline that has passed.
        deadline: Timestamp,
    },
    /// The question could not be asked, or its answer could not be decoded.
    #[error(transparent)]
    Failed(#[from] Error),
}

fn author_text(who: Option<&str>) -> String {
    who.map_or_else(String::new, |who| format!(" by {who}"))
}

/// The reason why a question has no value. A gate's function receives it if the function handles this case itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeclineReason {
    /// The question was rejected.
    #[error("rejected{}: {comment}", author_text(.by.as_deref()))]
    Rejected {
        /// The comment of the person or program that rejected the question.
        comment: String,
        /// The author of the rejection, if the caller named one.
        by: Option<String>,
    },
    /// No answer arrived before the deadline.
    #[error("no answer by {deadline}")]
    Expired {
        /// The deadline that has passed.
        deadline: Timestamp,
    },
}
