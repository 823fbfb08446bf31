//! The answer to a question.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Resolution;
use crate::error::{Error, ErrorKind, Result};
use crate::state::strict;

/// The answer to a question of a run. Send it with `Runtime::respond`.
///
/// # Examples
///
/// ```
/// use ferrata_core::ask::Answer;
///
/// let yes = Answer::accept(true)?;
/// let no = Answer::reject("the amount is wrong");
/// assert_eq!(yes.to_string(), "yes");
/// assert_eq!(no.to_string(), "rejected: the amount is wrong");
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// Accepts the question with this value, as JSON. The value must fit the shape that the question expects.
    Accept(Box<RawValue>),
    /// Rejects the question for this reason. The node that asked receives the reason, and fails unless it handles the rejection.
    Reject(String),
    /// Cancels the run for this reason, instead of answering the question.
    Cancel(String),
    /// Resolves the unknown outcome of an activation that must not be repeated.
    Resolve(Resolution),
}

impl Answer {
    /// Creates an answer that accepts the question with `value`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the value cannot be expressed in JSON without loss.
    pub fn accept(value: impl Serialize) -> Result<Self> {
        strict::to_raw_value(&value).map(Self::Accept)
    }

    /// Creates an answer that rejects the question with a comment.
    pub fn reject(comment: impl Into<String>) -> Self {
        Self::Reject(comment.into())
    }

    /// Creates an answer that cancels the run instead of answering the question.
    pub fn cancel(reason: impl Into<String>) -> Self {
        Self::Cancel(reason.into())
    }

    /// Checks the value of the answer, and returns the answer in its stored form, which has the canonical spelling of records.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if a value cannot be stored, see [`strict`].
    pub(crate) fn into_stored(self) -> Result<Self> {
        match self {
            Self::Accept(value) => Self::accept(value),
            Self::Resolve(Resolution::Supply(patch)) => {
                let patch = patch.into_stored().map_err(|error| {
                    let message = format!("the patch is not valid: {}", error.message());
                    Error::new(ErrorKind::Invalid, message).with_source(error)
                })?;
                Ok(Self::Resolve(Resolution::Supply(patch)))
            }
            plain => Ok(plain),
        }
    }
}

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Accept(one), Self::Accept(other)) => one.get() == other.get(),
            (Self::Reject(one), Self::Reject(other)) | (Self::Cancel(one), Self::Cancel(other)) => {
                one == other
            }
            (Self::Resolve(one), Self::Resolve(other)) => one == other,
            _ => false,
        }
    }
}

impl From<Resolution> for Answer {
    fn from(resolution: Resolution) -> Self {
        Self::Resolve(resolution)
    }
}

/// Formats the answer for reports: the value as JSON, a boolean as `yes` or `no`.
impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accept(value) => f.write_str(match value.get() {
                "true" => "yes",
                "false" => "no",
                json => json,
            }),
            Self::Reject(comment) => write!(f, "rejected: {comment}"),
            Self::Cancel(reason) => write!(f, "cancel the run: {reason}"),
            Self::Resolve(resolution) => resolution.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of an answer shows its value, so that a "no" is not shown as "accepted".
    #[test]
    fn answer_shows_its_value() {
        let shown = |value: serde_json::Value| Answer::accept(value).unwrap().to_string();
        assert_eq!(shown(false.into()), "no");
        assert_eq!(shown(serde_json::json!({ "eur": 7 })), r#"{"eur":7}"#);
        let resolved = [Resolution::Skip, Resolution::Retry].map(|one| Answer::from(one).to_string());
        assert!(resolved.iter().all(|text| text.starts_with("it ")), "{resolved:?}");
    }
}
