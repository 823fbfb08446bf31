//! Why a source is no pipeline: what kind of mistake, where, and what to write instead.

use std::fmt;

use ferrata_core::{Error, ErrorKind};

use crate::source::{Position, Snippet, Span};

/// What kind of mistake a [`ParseError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The file does not begin with `digraph Name {`.
    NotAGraph,
    /// An undirected `graph`, or an edge `--`.
    Undirected,
    /// A `strict` graph.
    Strict,
    /// Something follows the end of the graph.
    SecondGraph,
    /// A label in `<` and `>`.
    HtmlLabel,
    /// Something that is part of DOT, but not of the dialect: ports, quoted ids, edges to subgraphs.
    NotInDialect,
    /// Something else was expected.
    Unexpected,
    /// A string, a comment, a bracket or a brace that is not closed.
    Unclosed,
    /// A string that is not UTF-8.
    NotText,
    /// A number or duration that is written wrongly or out of range.
    BadNumber,
    /// More than the parser takes: a bound that keeps its work and memory proportional to the source.
    TooLarge,
}

/// Why a source is no pipeline.
///
/// `Display` is one line; [`report`](Self::report) shows the place as well.
///
/// # Examples
///
/// ```
/// use ferrata_dot::{ParseErrorKind, Pipeline};
///
/// let error = Pipeline::parse(b"digraph G { a -- b }").unwrap_err();
/// assert_eq!(error.kind(), ParseErrorKind::Undirected);
/// assert_eq!(error.position().to_string(), "line 1, column 15");
/// assert_eq!(error.suggestion(), Some("write `->`"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    // Boxed, because every result of the parser carries room for it.
    inner: Box<Inner>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    kind: ParseErrorKind,
    message: String,
    suggestion: Option<String>,
    /// The place, and whatever else explains it.
    labels: Vec<Snippet>,
}

impl ParseError {
    /// Says what is wrong at a span of a source.
    pub(crate) fn new(
        kind: ParseErrorKind,
        source: &[u8],
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        let labels = vec![Snippet::of(source, span, label)];
        Self { inner: Box::new(Inner { kind, message: message.into(), suggestion: None, labels }) }
    }

    /// Says what to write instead.
    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.inner.suggestion = Some(suggestion.into());
        self
    }

    /// Points at another place.
    pub(crate) fn also(mut self, source: &[u8], span: Span, label: &str) -> Self {
        self.inner.labels.push(Snippet::of(source, span, label));
        self
    }

    /// Returns what kind of mistake it is.
    pub fn kind(&self) -> ParseErrorKind {
        self.inner.kind
    }

    /// Returns what is wrong, without the place.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Returns what to write instead, if that can be said.
    pub fn suggestion(&self) -> Option<&str> {
        self.inner.suggestion.as_deref()
    }

    /// Returns the place in bytes of the source.
    pub fn span(&self) -> Span {
        self.inner.labels[0].span
    }

    /// Returns the place as people count it.
    pub fn position(&self) -> Position {
        self.inner.labels[0].position
    }

    /// Returns the places to show, the place of the mistake first.
    pub fn labels(&self) -> &[Snippet] {
        &self.inner.labels
    }

    /// Returns the mistake with its places and the suggestion, as plain text of several lines; `file` names the source.
    pub fn report(&self, file: &str) -> String {
        let mut report = format!("error: {}\n", self.inner.message);
        for label in &self.inner.labels {
            let Position { line, column } = label.position;
            report += &format!(" --> {file}:{line}:{column}\n{label}\n");
        }
        if let Some(suggestion) = &self.inner.suggestion {
            report += &format!("help: {suggestion}\n");
        }
        report
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position(), self.inner.message)?;
        match &self.inner.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ParseError {}

impl From<ParseError> for Error {
    /// [`ErrorKind::TooLarge`] for what is over a bound, otherwise [`ErrorKind::Invalid`].
    fn from(error: ParseError) -> Self {
        let kind = match error.kind() {
            ParseErrorKind::TooLarge => ErrorKind::TooLarge,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, error.to_string()).with_operation("dot.parse").with_source(error)
    }
}
