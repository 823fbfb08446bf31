//! What a node of a pipeline came to: the status that edges ask for, and what it hands on.

use std::collections::BTreeMap;
use std::fmt;

use ferrata_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It did what it was to do.
    #[serde(alias = "SUCCESS")]
    Success,
    /// It did a part of it, and that is enough to go on.
    #[serde(alias = "PARTIAL_SUCCESS")]
    PartialSuccess,
    /// It wants to be tried again.
    #[serde(alias = "RETRY")]
    Retry,
    /// It failed; trying again would not help.
    #[serde(alias = "FAIL", alias = "error", alias = "ERROR")]
    Fail,
    /// It had nothing to do.
    #[serde(alias = "SKIPPED")]
    Skipped,
}

impl Status {
    /// Returns the name, as conditions compare it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::PartialSuccess => "partial_success",
            Self::Retry => "retry",
            Self::Fail => "fail",
            Self::Skipped => "skipped",
        }
    }

    /// Tells whether it satisfies a goal gate.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success | Self::PartialSuccess)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a node came to.
///
/// The same as JSON is what an external program may write into `status.json` or `outcome.json`; only the status, named
/// `outcome` or `status`, is required there.
///
/// # Examples
///
/// ```
/// use ferrata_dot::outcome::{StageOutcome, Status};
///
/// let outcome = StageOutcome::from_json(br#"{"outcome": "fail", "failure_reason": "2 tests fail"}"#)?;
/// assert_eq!(outcome.status, Status::Fail);
/// assert_eq!(outcome.failure_reason, "2 tests fail");
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StageOutcome {
    /// How it ended.
    #[serde(rename = "outcome", alias = "status")]
    pub status: Status,
    /// The label of the edge that it would take.
    #[serde(default, deserialize_with = "nothing")]
    pub preferred_label: String,
    /// The nodes that it would go on to, the best first.
    #[serde(default, deserialize_with = "nothing")]
    pub suggested_next_ids: Vec<String>,
    /// What it sets in the context.
    #[serde(default, deserialize_with = "nothing")]
    pub context_updates: BTreeMap<String, Value>,
    /// Text for people.
    #[serde(default, deserialize_with = "nothing")]
    pub notes: String,
    /// Why it failed.
    #[serde(default, deserialize_with = "nothing")]
    pub failure_reason: String,
}

/// Reads `null` as if nothing had been written.
fn nothing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl StageOutcome {
    /// An outcome with this status and nothing else.
    pub fn new(status: Status) -> Self {
        Self {
            status,
            preferred_label: String::new(),
            suggested_next_ids: Vec::new(),
            context_updates: BTreeMap::new(),
            notes: String::new(),
            failure_reason: String::new(),
        }
    }

    /// A success.
    pub fn success() -> Self {
        Self::new(Status::Success)
    }

    /// A failure that trying again would not help.
    pub fn fail(reason: impl Into<String>) -> Self {
        Self { failure_reason: reason.into(), ..Self::new(Status::Fail) }
    }

    /// Sets a key of the context.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.context_updates.insert(key.into(), value.into());
        self
    }

    /// Prefers the edge with a label.
    #[must_use]
    pub fn prefer(mut self, label: impl Into<String>) -> Self {
        self.preferred_label = label.into();
        self
    }

    /// Suggests a node to go on to, after those suggested before.
    #[must_use]
    pub fn suggest(mut self, node: impl Into<String>) -> Self {
        self.suggested_next_ids.push(node.into());
        self
    }

    /// Adds text for people.
    #[must_use]
    pub fn with_notes(mut self, notes: impl Into<String>) -> Self {
        self.notes = notes.into();
        self
    }

    /// Reads an outcome that an external program wrote.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is no JSON object with a status that there is.
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(json).map_err(|source| {
            let message = format!(
                "this is no outcome: {source}; write {{\"outcome\": \"success\"}}, or `partial_success`, `retry`, `fail` or \
                 `skipped`"
            );
            Error::new(ErrorKind::Invalid, message).with_source(source)
        })
    }
}
