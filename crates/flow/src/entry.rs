//! The records that a flow writes for its operations.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::FailureRecord;

/// A record of a flow. The tag names the kind of operation that wrote the record.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FlowEntry<T> {
    /// The result of a step that has an effect.
    Step(T),
    /// The result of a step that only reads.
    Read(T),
    /// A time, a random number or an id.
    Value(T),
    /// The result of a compensation.
    Undo(T),
    /// Whether the code of the run has a patch.
    Patch(bool),
    /// An external step is about to start. The number counts the starts of this step, this start included.
    Begun(u32),
    /// An operation of this kind failed with this error.
    Failed(OperationKind, FailureRecord),
}

/// The beginnings of the records of results.
pub(crate) const STEP_TAG: &str = "{\"step\":";
pub(crate) const READ_TAG: &str = "{\"read\":";
pub(crate) const VALUE_TAG: &str = "{\"value\":";

impl<T: DeserializeOwned> FlowEntry<T> {
    /// Parses a record. Parses a result without its tag: a run may have thousands of results.
    pub(crate) fn of_text(text: &str) -> serde_json::Result<Self> {
        let result = |tag| text.strip_prefix(tag).and_then(|rest| rest.strip_suffix('}'));
        if let Some(result) = result(STEP_TAG) {
            return serde_json::from_str(result).map(Self::Step);
        }
        if let Some(result) = result(READ_TAG) {
            return serde_json::from_str(result).map(Self::Read);
        }
        serde_json::from_str(text)
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OperationKind {
    Step,
    Value,
    Undo,
    Patch,
    Timer,
    Question,
    Message,
    Child,
}

impl OperationKind {
    /// Returns whether operations of this kind have no effect outside the function. A later version of the function may add, remove or repeat them.
    pub(crate) fn is_safe(self) -> bool {
        matches!(self, Self::Value | Self::Patch | Self::Timer)
    }

    /// Returns whether the driver of the run, rather than the function, ends operations of this kind.
    pub(crate) fn is_wait(self) -> bool {
        matches!(self, Self::Timer | Self::Question | Self::Message | Self::Child)
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Step => "step",
            Self::Value => "value",
            Self::Undo => "compensation",
            Self::Patch => "patch",
            Self::Timer => "timer",
            Self::Question => "question",
            Self::Message => "receive",
            Self::Child => "child",
        })
    }
}
