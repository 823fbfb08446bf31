//! What a node of a pipeline came to, as people see it: a run goes on after many a failure, and none of them is shown as success.

use anstyle::AnsiColor;
use ferrata::runtime::PastActivation;

/// What a node came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeVerdict {
    /// It did what it was to do, or ended with a word of its own.
    Done,
    /// It did a part, and the run goes on.
    Partial,
    /// It failed, whether the run went on or not.
    Failed,
    /// It did nothing, or was left.
    Skipped,
}

impl NodeVerdict {
    /// Reads the word of an outcome.
    pub(crate) fn of_word(word: &str) -> Self {
        match word {
            "fail" | "retry" => Self::Failed,
            "partial_success" => Self::Partial,
            "skipped" => Self::Skipped,
            _ => Self::Done,
        }
    }

    /// Reads it off an activation that ended.
    pub(crate) fn of(past: &PastActivation) -> Self {
        match &past.verdict {
            _ if !past.ok => Self::Failed,
            Some(verdict) => Self::of_word(&verdict.outcome),
            None => Self::Done,
        }
    }

    /// Returns a sign for it.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Done => "✓",
            Self::Partial => "◐",
            Self::Failed => "✗",
            Self::Skipped => "-",
        }
    }

    /// Returns its colour.
    pub(crate) const fn color(self) -> AnsiColor {
        match self {
            Self::Done => AnsiColor::Green,
            Self::Partial => AnsiColor::Yellow,
            Self::Failed => AnsiColor::Red,
            Self::Skipped => AnsiColor::BrightBlack,
        }
    }

    /// Returns the word of one line of progress.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partial => "part",
            Self::Failed => "fail",
            Self::Skipped => "skip",
        }
    }
}

/// Returns the word of an activation's outcome: what it said itself, or what the runtime knows.
pub(crate) fn word(past: &PastActivation) -> &str {
    match &past.verdict {
        Some(verdict) if past.ok => &verdict.outcome,
        _ if past.ok => "success",
        _ => "fail",
    }
}

/// Returns why it came to that; empty if none was given.
pub(crate) fn reason(past: &PastActivation) -> &str {
    let said = past.verdict.as_ref().map(|verdict| &*verdict.reason).filter(|reason| !reason.is_empty());
    let failed = past.failure.as_ref().map(|failure| &*failure.message);
    failed.or(said).or(past.notes.as_deref()).unwrap_or_default()
}
