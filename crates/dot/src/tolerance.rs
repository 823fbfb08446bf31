//! Constructs of other dialects that the parser tolerates. Lint reports each of them with its location.

use crate::source::Span;

/// Maximum number of reported constructs in a source. A reader needs no more, and a file may contain very many.
pub(crate) const MOST: usize = 1000;

/// A construct outside of the dialect that the parser tolerated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tolerance {
    /// The lint rule that reports the construct.
    pub rule: &'static str,
    /// A message with the construct, and how the parser interprets it.
    pub message: String,
    /// The text to write instead.
    pub fix: String,
    /// The location of the construct.
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

/// Adds a construct, unless the maximum is reached.
pub(crate) fn note(all: &mut Vec<Tolerance>, one: impl FnOnce() -> Tolerance) {
    if all.len() < MOST {
        all.push(one());
    }
}
