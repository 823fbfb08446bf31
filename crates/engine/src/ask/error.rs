//! Errors of questions without an answer.

use crate::clock::Timestamp;
use crate::error::Error;

/// The reason that a question of a node has no answer.
///
/// A node that returns it with `?` fails permanently, because the same question would fail again. The failure contains the signaller's comment, and
/// an `on_failure` edge can handle it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// A signaller rejected the question.
    #[error("the question `{question}` was rejected{}: {comment}", author_text(.by.as_deref()))]
    Rejected {
        /// The name of the question.
        question: String,
        /// The comment of the signaller.
        comment: String,
        /// The signaller, if named.
        by: Option<String>,
    },
    /// No answer arrived in time.
    #[error("the question `{question}` had no answer by {deadline}")]
    Expired {
        /// The name of the question.
        question: String,
        /// The deadline for an answer.
        deadline: Timestamp,
    },
    /// The question could not be asked, or its answer could not be decoded.
    #[error(transparent)]
    Failed(#[from] Error),
}

fn author_text(who: Option<&str>) -> String {
    who.map_or_else(String::new, |who| format!(" by {who}"))
}

/// The reason that a question has no value, for a gate's function that handles this itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeclineReason {
    /// A signaller rejected the question.
    #[error("rejected{}: {comment}", author_text(.by.as_deref()))]
    Rejected {
        /// The comment of the signaller.
        comment: String,
        /// The signaller, if named.
        by: Option<String>,
    },
    /// No answer arrived in time.
    #[error("no answer by {deadline}")]
    Expired {
        /// The deadline for an answer.
        deadline: Timestamp,
    },
}
