//! Compiles a pipeline to a graph that runs durably: a graph node for each node, and one route that chooses its targets.

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

/// Compiles pipelines.
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
    /// Creates a compiler with these handlers.
    pub fn new(registry: Registry) -> Self {
        Self { registry, linter: Linter::default() }
    }

    /// Sets the linter that checks pipelines before compilation; it also accepts the types of the registry.
    #[must_use]
    pub fn with_linter(mut self, linter: Linter) -> Self {
        self.linter = linter;
        self
    }

    /// Makes runs stop whenever a node has ended, until the question `node@visit:after` is accepted. Stops are not part of the graph's fingerprint: a
    /// run can continue with a graph that has none.
    #[must_use]
    pub fn stop_after(mut self, node: impl Into<String>) -> Self {
        self.registry = self.registry.stop_after(node);
        self
    }

    /// Compiles a pipeline to a graph. Apply transforms first.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`](ferrata_core::ErrorKind::Invalid) if lint finds an error, or a handler rejects its node;
    /// - [`ErrorKind::Unsupported`](ferrata_core::ErrorKind::Unsupported) with the name of a node, edge or attribute that is not supported yet:
    ///   nothing is omitted silently.
    pub fn compile(&self, pipeline: &Pipeline) -> Result<Graph<Context>, Error> {
        self.compile_judged(pipeline).map(|(graph, _)| graph)
    }

    /// Compiles a pipeline to a graph, and returns the findings of [`diagnose`](Self::diagnose): warnings and notes.
    ///
    /// # Errors
    ///
    /// As [`compile`](Self::compile).
    pub fn compile_judged(&self, pipeline: &Pipeline) -> Result<(Graph<Context>, Vec<Diagnostic>), Error> {
        let mut found = self.linter.check_with(pipeline, &self.registry)?;
        refuse::unsupported(pipeline, |node| self.registry.type_of(node))?;
        let graph = build::graph(pipeline, &self.registry)?;
        found.extend(notes::of_branches(pipeline, &self.registry));
        found.sort_by_key(|diagnostic| (diagnostic.severity, diagnostic.span.start));
        Ok((graph, found))
    }

    /// Returns the findings of lint, and further reasons for [`compile`](Self::compile) to refuse, as errors of the rule `runs`. A pipeline without
    /// an error compiles.
    pub fn diagnose(&self, pipeline: &Pipeline) -> Vec<Diagnostic> {
        let mut found = match self.linter.check_with(pipeline, &self.registry) {
            Ok(found) => found,
            // Without regions, no further check is possible.
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

    /// Returns the errors of individual nodes; if there are none, the errors of the whole pipeline.
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

    /// Returns the outermost parallel node with branches that contain a node or meet at it.
    pub(crate) fn fork_around<'a>(
        &self,
        pipeline: &'a Pipeline,
        node: usize,
    ) -> Result<Option<&'a str>, Error> {
        build::fork_around(pipeline, &self.registry, node)
    }
}

/// Finds the location of a compile error by the first words of its message.
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
