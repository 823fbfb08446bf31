//! What other dialects write and this one reads all the same: each is told by lint, with its place.

use crate::source::Span;

/// How many are kept of one source: a reader takes in no more, and a file may consist of nothing else.
pub(crate) const MOST: usize = 1000;

/// Something that was read although the dialect has it not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tolerance {
    /// The rule of lint that warns of it.
    pub rule: &'static str,
    /// What was read, and how it is taken.
    pub message: String,
    /// What to write instead.
    pub fix: String,
    /// Where it stands.
    pub span: Span,
}

impl Tolerance {
    pub(crate) fn new(
        rule: &'static str,
        span: Span,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { rule, message: message.into(), fix: fix.into(), span }
    }
}

/// Adds one, unless there are enough.
pub(crate) fn note(all: &mut Vec<Tolerance>, one: impl FnOnce() -> Tolerance) {
    if all.len() < MOST {
        all.push(one());
    }
}
