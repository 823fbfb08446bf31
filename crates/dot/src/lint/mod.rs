//! Checks a pipeline before it runs, with the rules of the specification, further built-in rules, and custom rules.

mod diagnostic;
mod rules;
mod view;

use std::fmt;

use ferrata_core::{Error, ErrorKind};

pub use diagnostic::{Diagnostic, Severity};
pub use view::View;

use crate::handler::Registry;
use crate::pipeline::{Pipeline, SHAPES};

/// A custom lint rule.
///
/// # Examples
///
/// ```
/// use ferrata_dot::Pipeline;
/// use ferrata_dot::lint::{Diagnostic, LintRule, Linter, Severity, View};
///
/// struct NeedsTimeout;
///
/// impl LintRule for NeedsTimeout {
///     fn check(&self, view: &View<'_>, found: &mut Vec<Diagnostic>) {
///         for (at, node) in view.nodes() {
///             if view.handler_type(at) == "tool" && node.attributes.get("timeout").is_none() {
///                 let message = "a tool without a timeout may never end";
///                 found.push(Diagnostic::new("needs_timeout", Severity::Warning, message).at_node(node));
///             }
///         }
///     }
/// }
///
/// let pipeline = Pipeline::parse(b"digraph G { a [shape = parallelogram] }")?;
/// let found = Linter::default().with_rule(NeedsTimeout).lint(&pipeline);
/// assert!(found.iter().any(|diagnostic| diagnostic.rule == "needs_timeout"));
/// # Ok::<(), ferrata_dot::ParseError>(())
/// ```
pub trait LintRule: Send + Sync {
    /// Checks the pipeline in `view`, and adds the findings to `found`.
    fn check(&self, view: &View<'_>, found: &mut Vec<Diagnostic>);
}

/// Checks pipelines with a list of rules and the known handler types.
pub struct Linter {
    types: Vec<String>,
    own: Vec<Box<dyn LintRule>>,
}

impl Linter {
    /// Adds a rule. The new rule runs after the built-in rules and the rules that were added before.
    #[must_use]
    pub fn with_rule(mut self, rule: impl LintRule + 'static) -> Self {
        self.own.push(Box::new(rule));
        self
    }

    /// Adds a handler type to the known types.
    #[must_use]
    pub fn with_type(mut self, name: impl Into<String>) -> Self {
        self.types.push(name.into());
        self
    }

    /// Returns the findings of all rules: errors first, then by location in the source.
    pub fn lint(&self, pipeline: &Pipeline) -> Vec<Diagnostic> {
        self.lint_with(pipeline, &self.types, &[])
    }

    fn lint_with(&self, pipeline: &Pipeline, types: &[String], own: &[String]) -> Vec<Diagnostic> {
        let view = View::new(pipeline, types, own);
        let mut found = Vec::new();
        for rule in rules::BUILT_IN {
            rule(&view, &mut found);
        }
        for rule in &self.own {
            rule.check(&view, &mut found);
        }
        found.sort_by_key(|diagnostic| (diagnostic.severity, diagnostic.span.start));
        found
    }

    /// Checks a pipeline with all rules, and returns the findings if none of them is an error.
    ///
    /// # Errors
    ///
    /// [`LintError`] with all findings, if at least one of them is an error.
    pub fn check(&self, pipeline: &Pipeline) -> Result<Vec<Diagnostic>, LintError> {
        Self::judge(self.lint(pipeline))
    }

    /// Checks a pipeline like [`check`](Self::check), with the handler types of a registry as known types.
    pub(crate) fn check_with(
        &self,
        pipeline: &Pipeline,
        registry: &Registry,
    ) -> Result<Vec<Diagnostic>, LintError> {
        let types: Vec<String> =
            self.types.iter().cloned().chain(registry.types().map(str::to_owned)).collect();
        let own: Vec<String> =
            registry.types().filter(|name| registry.has_own(name)).map(str::to_owned).collect();
        Self::judge(self.lint_with(pipeline, &types, &own))
    }

    fn judge(diagnostics: Vec<Diagnostic>) -> Result<Vec<Diagnostic>, LintError> {
        let errors = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
        if errors { Err(LintError { diagnostics }) } else { Ok(diagnostics) }
    }
}

impl Default for Linter {
    /// Returns a linter with the built-in rules and the built-in handler types.
    fn default() -> Self {
        Self { types: SHAPES.iter().map(|(_, name)| (*name).to_owned()).collect(), own: Vec::new() }
    }
}

impl fmt::Debug for Linter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linter").field("types", &self.types).field("own", &self.own.len()).finish()
    }
}

/// The error for a pipeline that cannot run, because lint found errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintError {
    diagnostics: Vec<Diagnostic>,
}

impl LintError {
    /// Returns all findings. Errors come first.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

impl fmt::Display for LintError {
    /// Shows the first error and the number of errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = self.diagnostics.iter().filter(|found| found.severity == Severity::Error);
        match (self.diagnostics.first(), errors.count()) {
            (Some(first), 1) => write!(f, "{first}"),
            (Some(first), errors) => write!(f, "{first} (the first of {errors} errors)"),
            (None, _) => f.write_str("no problems found"),
        }
    }
}

impl std::error::Error for LintError {}

impl From<LintError> for Error {
    fn from(error: LintError) -> Self {
        Self::new(ErrorKind::Invalid, error.to_string()).with_operation("dot.lint").with_source(error)
    }
}
