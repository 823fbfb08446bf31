//! Compiles a pipeline to a durable graph. Each node of the pipeline becomes a node of the graph, with one route that chooses the targets.

mod abandonment;
mod branch;
mod build;
mod cycle;
mod each;
mod notes;
mod plan;
mod refuse;
mod region;
mod settings;
mod stage;
mod text;

use ferrata_core::Error;
use ferrata_core::graph::Graph;
use ferrata_core::state::Context;

use crate::handler::Registry;
use crate::lint::{Diagnostic, Linter, Severity};
use crate::pipeline::{Node, Pipeline};

/// Compiles pipelines to graphs.
///
/// # Examples
///
/// ```
/// use ferrata_core::runtime::Runtime;
/// use ferrata_core::state::Context;
/// use ferrata_core::store::MemoryStore;
/// use ferrata_dot::Pipeline;
/// use ferrata_dot::compile::Compiler;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let pipeline = Pipeline::parse(br#"
///     digraph Greet {
///         start [shape=Mdiamond]
///         exit  [shape=Msquare]
///         greet [shape=parallelogram, tool_command="echo hello"]
///         start -> greet -> exit
///     }
/// "#)?;
/// let graph = Compiler::default().compile(&pipeline)?;
/// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
/// let run = runtime.start(&graph, Context::new()).id("r1").await?;
/// let context = run.wait().await?.completed().expect("the pipeline completes");
/// assert_eq!(context.get::<String>("tool.output")?.as_deref(), Some("hello\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Compiler {
    registry: Registry,
    linter: Linter,
}

impl Compiler {
    /// Creates a compiler that uses the handlers of `registry`.
    pub fn new(registry: Registry) -> Self {
        Self { registry, linter: Linter::default() }
    }

    /// Sets the linter that checks a pipeline before it is compiled. The linter also accepts the handler types of the registry.
    #[must_use]
    pub fn with_linter(mut self, linter: Linter) -> Self {
        self.linter = linter;
        self
    }

    /// Makes runs stop each time that this node has ended. A run continues when the question `node@visit:after` is accepted. Stops are not part of
    /// the graph's fingerprint, so a run can continue with a graph without them.
    #[must_use]
    pub fn stop_after(mut self, node: impl Into<String>) -> Self {
        self.registry = self.registry.stop_after(node);
        self
    }

    /// Compiles a pipeline to a graph. Apply the transforms first.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`](ferrata_core::ErrorKind::Invalid): lint found an error, or a handler rejected its node.
    /// - [`ErrorKind::Unsupported`](ferrata_core::ErrorKind::Unsupported): the pipeline uses a feature that is not supported yet. The error names the
    ///   node, edge or attribute. The compiler never ignores such a feature silently.
    pub fn compile(&self, pipeline: &Pipeline) -> Result<Graph<Context>, Error> {
        self.compile_judged(pipeline).map(|(graph, _)| graph)
    }

    /// Compiles a pipeline to a graph, and also returns the warnings and notes of [`diagnose`](Self::diagnose).
    ///
    /// # Errors
    ///
    /// The errors of [`compile`](Self::compile).
    pub fn compile_judged(&self, pipeline: &Pipeline) -> Result<(Graph<Context>, Vec<Diagnostic>), Error> {
        let mut found = self.linter.check_with(pipeline, &self.registry)?;
        refuse::unsupported(pipeline, |node| self.registry.type_of(node))?;
        let graph = build::graph(pipeline, &self.registry)?;
        found.extend(notes::of_branches(pipeline, &self.registry));
        found.sort_by_key(|diagnostic| (diagnostic.severity, diagnostic.span.start));
        Ok((graph, found))
    }

    /// Returns the findings of lint. If [`compile`](Self::compile) would fail for another reason, the result contains an error with the rule `runs`.
    /// A pipeline without errors in this list compiles.
    pub fn diagnose(&self, pipeline: &Pipeline) -> Vec<Diagnostic> {
        let mut found = match self.linter.check_with(pipeline, &self.registry) {
            Ok(found) => found,
            // The further checks need the regions, so stop here.
            Err(error) => return error.diagnostics().to_vec(),
        };
        let refusals = self.refusals(pipeline);
        found.extend(refusals.iter().map(|error| refused(pipeline, error)));
        if refusals.is_empty() {
            found.extend(notes::of_branches(pipeline, &self.registry));
        }
        found.sort_by_key(|diagnostic| (diagnostic.severity, diagnostic.span.start));
        found
    }

    /// Returns the errors of individual nodes. If there are none, returns the errors of the whole pipeline.
    fn refusals(&self, pipeline: &Pipeline) -> Vec<Error> {
        let ends: Vec<usize> = pipeline.starts().into_iter().chain(pipeline.exits()).collect();
        let inner = pipeline.nodes().iter().enumerate().filter(|(at, _)| !ends.contains(at));
        let check = |(_, node): (usize, &Node)| match self.registry.resolve(node) {
            Ok((_, handler)) => handler.check(node, pipeline).err(),
            Err(error) => Some(error),
        };
        let found: Vec<Error> = inner.filter_map(check).collect();
        if !found.is_empty() {
            return found;
        }
        let whole = refuse::unsupported(pipeline, |node| self.registry.type_of(node))
            .and_then(|()| build::graph(pipeline, &self.registry));
        whole.err().into_iter().collect()
    }

    /// Returns the outermost parallel node whose branches contain a node or meet at it.
    pub(crate) fn fork_around<'a>(
        &self,
        pipeline: &'a Pipeline,
        node: usize,
    ) -> Result<Option<&'a str>, Error> {
        build::fork_around(pipeline, &self.registry, node)
    }
}

/// Finds the location of a compile error. The error's message begins with the node, edge or attribute.
fn refused(pipeline: &Pipeline, error: &Error) -> Diagnostic {
    let (message, fix) = error.message().rsplit_once("; ").unwrap_or((error.message(), "see the message"));
    let new = |message: &str| Diagnostic::new("runs", Severity::Error, message).fix(fix);
    let about = |what: &str| {
        let (name, rest) = message.strip_prefix(what)?.split_once(": ")?;
        Some((name, rest))
    };
    if let Some((node, rest)) = about("node ").and_then(|(name, rest)| Some((pipeline.node(name)?, rest))) {
        return new(rest).at_node(node);
    }
    let edge = about("edge ").and_then(|(name, rest)| {
        let (from, to) = name.split_once(" -> ")?;
        let edge = pipeline.edges().iter().find(|edge| *edge.from == *from && *edge.to == *to)?;
        Some((edge, rest))
    });
    match edge {
        Some((edge, rest)) => new(rest).at_edge(edge),
        None => new(message),
    }
}
