//! The outcome of a pipeline node: the status that conditions test, and the data for later nodes.

use std::collections::BTreeMap;
use std::fmt;

use ferrata_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::suggest::beginning_for_message;

/// The status with which a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The node did its work.
    Success,
    /// The node did a part of its work, enough to continue.
    PartialSuccess,
    /// The node requests another attempt.
    Retry,
    /// The node failed, and a retry would not help.
    Fail,
    /// The node had nothing to do.
    Skipped,
}

/// All statuses.
const STATUSES: [Status; 5] =
    [Status::Success, Status::PartialSuccess, Status::Retry, Status::Fail, Status::Skipped];

/// The names of statuses in other dialects, in lower case.
const ALIASES: [(&str, Status); 9] = [
    ("succeeded", Status::Success),
    ("ok", Status::Success),
    ("partial", Status::PartialSuccess),
    ("partially_succeeded", Status::PartialSuccess),
    ("failed", Status::Fail),
    ("failure", Status::Fail),
    ("error", Status::Fail),
    ("skip", Status::Skipped),
    ("retrying", Status::Retry),
];

impl Status {
    /// Returns the name that conditions compare with `outcome`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::PartialSuccess => "partial_success",
            Self::Retry => "retry",
            Self::Fail => "fail",
            Self::Skipped => "skipped",
        }
    }

    /// Parses the name of a status in upper or lower case. Names of other dialects, such as `succeeded`, are accepted too.
    pub fn of_word(word: &str) -> Option<Self> {
        let word = word.trim().to_lowercase();
        let named = STATUSES.into_iter().find(|status| status.as_str() == word);
        named.or_else(|| ALIASES.iter().find(|(alias, _)| *alias == word).map(|(_, status)| *status))
    }

    /// Returns whether a goal gate with this status is met.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success | Self::PartialSuccess)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::of_word(&word).ok_or_else(|| {
            let message = format!("the outcome `{}` does not exist", beginning_for_message(&word));
            serde::de::Error::custom(message)
        })
    }
}

/// The outcome of a node.
///
/// An external program may write the outcome as JSON into `status.json` or `outcome.json`. The only required field there is the status, named
/// `outcome` or `status`.
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
    /// The status of the node.
    #[serde(rename = "outcome", alias = "status")]
    pub status: Status,
    /// A word for the outcome that the pipeline itself defines, as in an edge with `outcome=has_dod`. Conditions compare this word instead of the
    /// status. The status is then success.
    #[serde(default, deserialize_with = "nothing", skip_serializing_if = "String::is_empty")]
    pub own_outcome: String,
    /// The label of the preferred edge.
    #[serde(default, deserialize_with = "nothing")]
    pub preferred_label: String,
    /// The ids of the suggested next nodes, the best first.
    #[serde(default, deserialize_with = "nothing")]
    pub suggested_next_ids: Vec<String>,
    /// The changes of the context.
    #[serde(default, deserialize_with = "nothing")]
    pub context_updates: BTreeMap<String, Value>,
    /// Text for people.
    #[serde(default, deserialize_with = "nothing")]
    pub notes: String,
    /// The reason of the failure; empty if the node did not fail.
    #[serde(default, deserialize_with = "nothing")]
    pub failure_reason: String,
    /// The usage of the work, which counts for the budget of the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Whether the status was derived only from the exit status of a command.
    #[serde(skip)]
    pub(crate) is_exit_status: bool,
}

/// The usage of work. In JSON, every field is optional. `cost_usd` is accepted instead of `cost`, and `total_tokens` instead of `tokens`. If there is
/// no total, `input_tokens` and `output_tokens` are added.
///
/// # Examples
///
/// ```
/// use ferrata_dot::outcome::{StageOutcome, Usage};
///
/// let outcome = StageOutcome::from_json(br#"{"outcome": "success", "usage": {"cost": 0.25, "input_tokens": 900, "output_tokens": 100}}"#)?;
/// assert_eq!(outcome.usage, Some(Usage::new(0.25, 1000, 0.0)));
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Reported")]
#[non_exhaustive]
pub struct Usage {
    /// The cost, in the currency of the pipeline's `max_cost`.
    pub cost: f64,
    /// The number of input and output tokens of models.
    pub tokens: u64,
    /// The time in seconds.
    pub seconds: f64,
}

impl Usage {
    /// Creates a usage of cost, tokens and seconds. A value that is negative or not a number counts as zero.
    pub fn new(cost: f64, tokens: u64, seconds: f64) -> Self {
        let amount = |value: f64| if value.is_finite() && value > 0.0 { value } else { 0.0 };
        Self { cost: amount(cost), tokens, seconds: amount(seconds) }
    }

    /// Returns the sum of two usages.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        let tokens = self.tokens.saturating_add(other.tokens);
        // A sum that is too large for its type becomes the largest number, so it exceeds each limit.
        let sum = |a: f64, b: f64| (a + b).min(f64::MAX);
        Self::new(sum(self.cost, other.cost), tokens, sum(self.seconds, other.seconds))
    }
}

/// The usage in the form that external programs report.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reported {
    #[serde(alias = "cost_usd")]
    cost: Option<f64>,
    #[serde(alias = "total_tokens")]
    tokens: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    seconds: Option<f64>,
}

impl TryFrom<Reported> for Usage {
    type Error = String;

    fn try_from(reported: Reported) -> Result<Self, String> {
        let amount = |name: &str, value: Option<f64>| match value.unwrap_or_default() {
            value if value.is_finite() && value >= 0.0 => Ok(value),
            value => Err(format!("`{name}` of `usage` is {value}; use a number of at least 0")),
        };
        let parts = [reported.input_tokens, reported.output_tokens].into_iter().flatten();
        let tokens = reported.tokens.unwrap_or_else(|| parts.fold(0, u64::saturating_add));
        Ok(Self {
            cost: amount("cost", reported.cost)?,
            tokens,
            seconds: amount("seconds", reported.seconds)?,
        })
    }
}

/// Reads `null` like a missing value.
fn nothing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl StageOutcome {
    /// Creates an outcome that has only a status.
    pub fn new(status: Status) -> Self {
        Self {
            status,
            own_outcome: String::new(),
            preferred_label: String::new(),
            suggested_next_ids: Vec::new(),
            context_updates: BTreeMap::new(),
            notes: String::new(),
            failure_reason: String::new(),
            usage: None,
            is_exit_status: false,
        }
    }

    /// Creates an outcome with the status success.
    pub fn success() -> Self {
        Self::new(Status::Success)
    }

    /// Creates a failure after which a retry would not succeed.
    pub fn fail(reason: impl Into<String>) -> Self {
        Self { failure_reason: reason.into(), ..Self::new(Status::Fail) }
    }

    /// Returns the word that conditions compare: the outcome that the pipeline defines, or else the name of the status.
    pub fn word(&self) -> &str {
        if self.own_outcome.is_empty() { self.status.as_str() } else { &self.own_outcome }
    }

    /// Adds a change of the context: sets `key` to `value`.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.context_updates.insert(key.into(), value.into());
        self
    }

    /// Sets the label of the edge that the run should prefer.
    #[must_use]
    pub fn prefer(mut self, label: impl Into<String>) -> Self {
        self.preferred_label = label.into();
        self
    }

    /// Adds a suggested next node. The new suggestion comes after earlier suggestions.
    #[must_use]
    pub fn suggest(mut self, node: impl Into<String>) -> Self {
        self.suggested_next_ids.push(node.into());
        self
    }

    /// Sets the usage.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Sets the text for people.
    #[must_use]
    pub fn with_notes(mut self, notes: impl Into<String>) -> Self {
        self.notes = notes.into();
        self
    }

    /// Adds a note to the text for people.
    pub(crate) fn add_note(&mut self, note: &str) {
        let separator = if self.notes.is_empty() { "" } else { "; " };
        self.notes += &format!("{separator}{note}");
    }

    /// Parses an outcome that an external program wrote as JSON.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the bytes are not a JSON object with a known status.
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        Self::from_json_with(json, |_| false)
    }

    /// Parses an outcome like [`from_json`](Self::from_json). A status word that `is_own` accepts becomes a success. This success prefers the edge of
    /// the same name, unless the outcome prefers another label.
    pub(crate) fn from_json_with(json: &[u8], is_own: impl Fn(&str) -> bool) -> Result<Self, Error> {
        let read = || -> serde_json::Result<Self> {
            let mut said: Value = serde_json::from_slice(json)?;
            let key = if said.get("outcome").is_some() { "outcome" } else { "status" };
            let word = said.get(key).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
            let own = !word.is_empty() && Status::of_word(&word).is_none() && is_own(&word);
            if own {
                said[key] = Status::Success.as_str().into();
            }
            let mut outcome: Self = serde_json::from_value(said)?;
            if own {
                if outcome.preferred_label.is_empty() {
                    outcome.preferred_label.clone_from(&word);
                }
                outcome.own_outcome = word;
            }
            Ok(outcome)
        };
        read().map_err(|source| {
            let message = format!(
                "the outcome is invalid: {source}; write {{\"outcome\": \"success\"}}, or `partial_success`, `retry`, `fail` or \
                 `skipped`"
            );
            Error::new(ErrorKind::Invalid, message).with_source(source)
        })
    }
}
