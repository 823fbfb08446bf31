//! A finding of a lint rule: its severity, its location, and how to correct it.

use std::borrow::Cow;
use std::fmt;

use crate::pipeline::{Edge, Node};
use crate::source::{Snippet, Span};

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The pipeline does not run.
    Error,
    /// The pipeline runs, but probably not as intended.
    Warning,
    /// Additional information.
    Info,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        })
    }
}

/// A finding of a lint rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The id of the rule that made the finding.
    pub rule: Cow<'static, str>,
    /// The severity.
    pub severity: Severity,
    /// The description of the problem.
    pub message: String,
    /// The node that the finding is about.
    pub node: Option<String>,
    /// The edge that the finding is about, as source and target.
    pub edge: Option<(String, String)>,
    /// The location in the source. If the finding has no location, the span is empty and at the beginning.
    pub span: Span,
    /// How to correct the problem; `None` if there is no suggestion.
    pub fix: Option<String>,
}

impl Diagnostic {
    /// Creates a finding about the whole graph.
    pub fn new(rule: impl Into<Cow<'static, str>>, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            rule: rule.into(),
            severity,
            message: message.into(),
            node: None,
            edge: None,
            span: Span::default(),
            fix: None,
        }
    }

    /// Sets the node that the finding is about, and takes its location.
    #[must_use]
    pub fn at_node(mut self, node: &Node) -> Self {
        self.node = Some(node.id().to_owned());
        self.span = node.span();
        self
    }

    /// Sets the edge that the finding is about, and takes its location.
    #[must_use]
    pub fn at_edge(mut self, edge: &Edge) -> Self {
        self.edge = Some((edge.from.to_string(), edge.to.to_string()));
        self.span = edge.span;
        self
    }

    /// Sets a more precise location. `None` changes nothing.
    #[must_use]
    pub fn at_span(mut self, span: Option<Span>) -> Self {
        self.span = span.unwrap_or(self.span);
        self
    }

    /// Sets the suggestion how to correct the problem.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Formats the finding with its location, as plain text of several lines. `file` is the name of the source.
    pub fn report(&self, file: &str, source: &[u8]) -> String {
        let mut report = format!("{}[{}]: {}\n", self.severity, self.rule, self.message);
        if self.span != Span::default() {
            let snippet = Snippet::of(source, self.span, "");
            let position = snippet.position;
            let text = snippet.to_string();
            report += &format!(" --> {file}:{}:{}\n{}\n", position.line, position.column, text.trim_end());
        }
        if let Some(fix) = &self.fix {
            report += &format!("help: {fix}\n");
        }
        report
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: ", self.severity, self.rule)?;
        match (&self.node, &self.edge) {
            (Some(node), _) => write!(f, "node {node}: ")?,
            (None, Some((from, to))) => write!(f, "edge {from} -> {to}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.message)?;
        match &self.fix {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}
