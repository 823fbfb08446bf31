//! What a rule found: how bad it is, where, and what to do about it.

use std::borrow::Cow;
use std::fmt;

use crate::pipeline::{Edge, Node};
use crate::source::{Snippet, Span};

/// How bad a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The pipeline does not run.
    Error,
    /// It runs, but hardly as it was meant.
    Warning,
    /// Worth knowing.
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

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The id of the rule.
    pub rule: Cow<'static, str>,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// The node it is about.
    pub node: Option<String>,
    /// The edge it is about: where it begins and where it leads.
    pub edge: Option<(String, String)>,
    /// The place in the source; empty at its beginning if there is none to name.
    pub span: Span,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Diagnostic {
    /// Says what a rule found; it is about the whole graph unless more is said.
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

    /// Says that it is about a node.
    #[must_use]
    pub fn at_node(mut self, node: &Node) -> Self {
        self.node = Some(node.id().to_owned());
        self.span = node.span();
        self
    }

    /// Says that it is about an edge.
    #[must_use]
    pub fn at_edge(mut self, edge: &Edge) -> Self {
        self.edge = Some((edge.from.to_string(), edge.to.to_string()));
        self.span = edge.span;
        self
    }

    /// Names the place more precisely.
    #[must_use]
    pub fn at_span(mut self, span: Option<Span>) -> Self {
        self.span = span.unwrap_or(self.span);
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Returns it with its place, as plain text of several lines; `file` names the source that it was found in.
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
