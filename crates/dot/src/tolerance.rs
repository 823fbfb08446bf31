//! Constructs of other dialects that the parser tolerates: lint reports each with its location.

use crate::source::Span;

/// Maximum number per source: a reader needs no more, and a file may consist of nothing else.
pub(crate) const MOST: usize = 1000;

/// A tolerated construct outside of the dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tolerance {
    /// The lint rule that reports it.
    pub rule: &'static str,
    /// The construct, and its interpretation.
    pub message: String,
    /// The replacement.
    pub fix: String,
    /// The location.
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

/// Adds one, up to the maximum.
pub(crate) fn note(all: &mut Vec<Tolerance>, one: impl FnOnce() -> Tolerance) {
    if all.len() < MOST {
        all.push(one());
    }
}
