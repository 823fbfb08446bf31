//! The result of a pipeline's node for people. A run may continue after a failure, but the failure never appears as success.

use anstyle::AnsiColor;
use ferrata::runtime::PastActivation;

/// The result of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeVerdict {
    /// The node did its work, or ended with an outcome that the pipeline defines.
    Done,
    /// The node did a part of its work, and the run continues.
    Partial,
    /// The node failed, whether or not the run continued.
    Failed,
    /// The node did nothing, or was abandoned.
    Skipped,
}

impl NodeVerdict {
    /// Returns the result that the word of an outcome stands for.
    pub(crate) fn of_word(word: &str) -> Self {
        match word {
            "fail" | "retry" => Self::Failed,
            "partial_success" => Self::Partial,
            "skipped" => Self::Skipped,
            _ => Self::Done,
        }
    }

    /// Returns the result of an ended activation.
    pub(crate) fn of(past: &PastActivation) -> Self {
        match &past.verdict {
            _ if !past.ok => Self::Failed,
            Some(verdict) => Self::of_word(&verdict.outcome),
            None => Self::Done,
        }
    }

    /// Returns the symbol of the result.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Done => "✓",
            Self::Partial => "◐",
            Self::Failed => "✗",
            Self::Skipped => "-",
        }
    }

    /// Returns the color of the result.
    pub(crate) const fn color(self) -> AnsiColor {
        match self {
            Self::Done => AnsiColor::Green,
            Self::Partial => AnsiColor::Yellow,
            Self::Failed => AnsiColor::Red,
            Self::Skipped => AnsiColor::BrightBlack,
        }
    }

    /// Returns the word for the result in a line of progress.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partial => "part",
            Self::Failed => "fail",
            Self::Skipped => "skip",
        }
    }
}

/// Returns the word for the outcome of an activation: the word of the pipeline, or else that of the runtime.
pub(crate) fn word(past: &PastActivation) -> &str {
    match &past.verdict {
        Some(verdict) if past.ok => &verdict.outcome,
        _ if past.ok => "success",
        _ => "fail",
    }
}

/// Returns the reason for the result of an activation; an empty text if there is none.
pub(crate) fn reason(past: &PastActivation) -> &str {
    let said = past.verdict.as_ref().map(|verdict| &*verdict.reason).filter(|reason| !reason.is_empty());
    let failed = past.failure.as_ref().map(|failure| &*failure.message);
    failed.or(said).or(past.notes.as_deref()).unwrap_or_default()
}
