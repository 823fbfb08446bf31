//! The error of the parser: the kind of mistake, its location, and a suggested replacement.

use std::fmt;

use ferrata_core::{Error, ErrorKind};

use crate::source::{Snippet, SourcePosition, Span};

/// The kind of mistake of a [`ParseError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The source does not begin with `digraph Name {`.
    NotAGraph,
    /// The source is an undirected `graph`, or contains an edge `--`.
    Undirected,
    /// The source is a `strict` graph.
    Strict,
    /// There is text after the end of the graph.
    SecondGraph,
    /// A label is written in `<` and `>`.
    HtmlLabel,
    /// The source uses a part of DOT that is not in the dialect: ports, quoted ids, or edges to subgraphs.
    NotInDialect,
    /// The parser expected something else at this position.
    Unexpected,
    /// A string, a comment, a bracket or a brace is not closed.
    Unclosed,
    /// A string is not UTF-8.
    NotText,
    /// A number or a duration is malformed or out of range.
    BadNumber,
    /// A size exceeds a limit of the parser. The limits keep its time and memory proportional to the source.
    TooLarge,
}

/// The reason why a source is not a pipeline.
///
/// `Display` writes one line; [`report`](Self::report) also shows the location.
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
    // Boxed, because every result of the parser reserves space for the error.
    inner: Box<ParseErrorInner>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ParseErrorInner {
    kind: ParseErrorKind,
    message: String,
    suggestion: Option<String>,
    /// The location of the mistake, and other locations that explain it.
    labels: Vec<Snippet>,
}

impl ParseError {
    /// Creates an error at a span of a source.
    pub(crate) fn new(
        kind: ParseErrorKind,
        source: &[u8],
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        let labels = vec![Snippet::of(source, span, label)];
        Self { inner: Box::new(ParseErrorInner { kind, message: message.into(), suggestion: None, labels }) }
    }

    /// Sets the suggested replacement.
    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.inner.suggestion = Some(suggestion.into());
        self
    }

    /// Adds another location.
    pub(crate) fn also(mut self, source: &[u8], span: Span, label: &str) -> Self {
        self.inner.labels.push(Snippet::of(source, span, label));
        self
    }

    /// Returns the kind of mistake.
    pub fn kind(&self) -> ParseErrorKind {
        self.inner.kind
    }

    /// Returns the message without the location.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Returns the suggested replacement, if any.
    pub fn suggestion(&self) -> Option<&str> {
        self.inner.suggestion.as_deref()
    }

    /// Returns the location of the mistake in the bytes of the source.
    pub fn span(&self) -> Span {
        self.inner.labels[0].span
    }

    /// Returns the line and column of the mistake.
    pub fn position(&self) -> SourcePosition {
        self.inner.labels[0].position
    }

    /// Returns the locations to show. The location of the mistake is first.
    pub fn labels(&self) -> &[Snippet] {
        &self.inner.labels
    }

    /// Formats the mistake with its locations and the suggestion, as plain text of several lines. `file` is the name of the source.
    pub fn report(&self, file: &str) -> String {
        let mut report = format!("error: {}\n", self.inner.message);
        for label in &self.inner.labels {
            let SourcePosition { line, column } = label.position;
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
    /// Converts the error to an [`ErrorKind::TooLarge`] if a size exceeds a limit, and otherwise to an [`ErrorKind::Invalid`].
    fn from(error: ParseError) -> Self {
        let kind = match error.kind() {
            ParseErrorKind::TooLarge => ErrorKind::TooLarge,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, error.to_string()).with_operation("dot.parse").with_source(error)
    }
}
