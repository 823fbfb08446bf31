//! The result of a pipeline's node for people: a run continues after many failures, and none of them appears as success.

use anstyle::AnsiColor;
use ferrata::runtime::PastActivation;

/// The result of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeVerdict {
    /// It did its work, or ended with an outcome of its own.
    Done,
    /// It did a part, and the run continues.
    Partial,
    /// It failed, whether or not the run continued.
    Failed,
    /// It did nothing, or was abandoned.
    Skipped,
}

impl NodeVerdict {
    /// Converts the word of an outcome.
    pub(crate) fn of_word(word: &str) -> Self {
        match word {
            "fail" | "retry" => Self::Failed,
            "partial_success" => Self::Partial,
            "skipped" => Self::Skipped,
            _ => Self::Done,
        }
    }

    /// Derives the result from an ended activation.
    pub(crate) fn of(past: &PastActivation) -> Self {
        match &past.verdict {
            _ if !past.ok => Self::Failed,
            Some(verdict) => Self::of_word(&verdict.outcome),
            None => Self::Done,
        }
    }

    /// Returns its symbol.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Done => "✓",
            Self::Partial => "◐",
            Self::Failed => "✗",
            Self::Skipped => "-",
        }
    }

    /// Returns its color.
    pub(crate) const fn color(self) -> AnsiColor {
        match self {
            Self::Done => AnsiColor::Green,
            Self::Partial => AnsiColor::Yellow,
            Self::Failed => AnsiColor::Red,
            Self::Skipped => AnsiColor::BrightBlack,
        }
    }

    /// Returns the word for a line of progress.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partial => "part",
            Self::Failed => "fail",
            Self::Skipped => "skip",
        }
    }
}

/// Returns the word for an activation's outcome: its own, or that of the runtime.
pub(crate) fn word(past: &PastActivation) -> &str {
    match &past.verdict {
        Some(verdict) if past.ok => &verdict.outcome,
        _ if past.ok => "success",
        _ => "fail",
    }
}

/// Returns the reason; empty if there is none.
pub(crate) fn reason(past: &PastActivation) -> &str {
    let said = past.verdict.as_ref().map(|verdict| &*verdict.reason).filter(|reason| !reason.is_empty());
    let failed = past.failure.as_ref().map(|failure| &*failure.message);
    failed.or(said).or(past.notes.as_deref()).unwrap_or_default()
}
