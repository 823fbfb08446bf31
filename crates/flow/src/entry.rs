//! What a flow records under the name of an operation.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::FailureRecord;

/// A record of a flow: the tag says which kind of operation made it.
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
    /// The code of the run has a patch.
    Patch(bool),
    /// An external step is about to begin, for the n-th time.
    Begun(u32),
    /// An operation of this kind failed.
    Failed(OperationKind, FailureRecord),
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
    /// Whether the operation has no effect outside of the function, so it may be added, removed and repeated.
    pub(crate) fn is_safe(self) -> bool {
        matches!(self, Self::Value | Self::Patch | Self::Timer)
    }

    /// Whether the driver ends the operation, and not the function itself.
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
