//! Loads a pipeline from its file: parses, checks and compiles it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrata::Graph;
use ferrata_core::wording::count;
use ferrata_dot::Pipeline;
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Codergen, CommandBackend, Manager, Registry, Simulate, Tool};
use ferrata_dot::lint::Severity;
use ferrata_dot::pipeline::SHAPES;
use ferrata_dot::run_dir::RunDirectory;
use ferrata_dot::transform::Transforms;

use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::output::quoted;
use crate::table::clean;

/// A parsed pipeline.
#[derive(Debug)]
pub(super) struct LoadedPipeline {
    pub(super) path: PathBuf,
    pub(super) source: Vec<u8>,
    pub(super) pipeline: Arc<Pipeline>,
    /// The folder of the files that the pipeline names.
    folder: Option<PathBuf>,
}

/// A compiled pipeline.
#[derive(Debug)]
pub(super) struct CompiledPipeline {
    pub(super) graph: Graph<ferrata::Context>,
    warnings: Vec<String>,
}

/// Maximum number of warnings at the start of a run. `ferrata lint` shows the others.
const SHOWN: usize = 8;

/// The settings for the work of the pipeline's nodes.
#[derive(Debug)]
pub(super) struct WorkSettings<'a> {
    /// The command that performs tasks.
    pub(super) backend: Option<&'a str>,
    /// The directory in which commands run.
    pub(super) directory: &'a Path,
    /// Further environment variables that tools inherit.
    pub(super) inherited: &'a [String],
    /// The node after which the run stops.
    pub(super) until: Option<&'a str>,
}

/// The directory of attempts: in the directory of the run itself, or, for children, in that of the parent.
enum StageFolder<'a> {
    Own(&'a Path),
    OfChildren(&'a Path),
}

impl WorkSettings<'_> {
    /// Returns the handlers. `stages` selects the directory of attempts.
    fn registry(&self, stages: &StageFolder<'_>) -> Registry {
        let tool = Tool::default().with_directory(self.directory).with_inherited(self.inherited);
        let tool = match stages {
            StageFolder::Own(root) => tool.with_run_directory(root),
            StageFolder::OfChildren(root) => tool.with_parent_directory(root),
        };
        let registry = Registry::default().with("tool", tool);
        let Some(command) = self.backend else { return registry.with("codergen", Codergen::new(Simulate)) };
        let backend = CommandBackend::new(command).with_directory(self.directory);
        let backend = match stages {
            StageFolder::Own(root) => backend.with_run_directory(root),
            StageFolder::OfChildren(root) => backend.with_parent_directory(root),
        };
        registry.with("codergen", Codergen::new(backend))
    }
}

impl LoadedPipeline {
    /// Reads a pipeline file. The files that the pipeline names are in `folder`, or else in the folder of the pipeline file.
    pub(super) fn read(path: &Path, folder: Option<PathBuf>) -> Result<Self, CommandFailure> {
        let folder = folder.or_else(|| path.parent().map(Path::to_owned));
        let lint = || format!("ferrata lint {}", quoted(&path.display().to_string()));
        let source = std::fs::read(path).map_err(|error| {
            let exit = if error.kind() == std::io::ErrorKind::NotFound {
                ExitReason::NotFound
            } else {
                ExitReason::InvalidFile
            };
            CommandFailure::new(
                exit,
                format!("cannot read `{}`: {error}", path.display()),
                "ferrata run --help",
            )
        })?;
        let mut pipeline = Pipeline::parse(&source).map_err(|error| {
            let report = error.report(&path.display().to_string());
            let details = report.lines().map(str::to_owned);
            let message = format!("cannot read `{}` as a pipeline", path.display());
            CommandFailure::new(ExitReason::InvalidFile, message, lint()).with_details(details)
        })?;
        Transforms::in_directory(folder.clone()).apply(&mut pipeline).map_err(|error| {
            CommandFailure::new(ExitReason::InvalidFile, format!("{}: {error}", path.display()), lint())
        })?;
        Ok(Self { path: path.to_owned(), source, pipeline: Arc::new(pipeline), folder })
    }

    /// Returns the command that performs tasks: the given command, or else the command that the graph sets.
    pub(super) fn backend(&self, given: Option<&str>) -> Option<String> {
        let of_graph = self.pipeline.attributes.text("backend");
        let given = given.map(str::to_owned).filter(|given| !given.trim().is_empty());
        given.or_else(|| (!of_graph.is_empty()).then(|| of_graph.into_owned()))
    }

    /// Compiles a graph whose attempts store their output in the directory of the run. Also returns the manager for supervised pipelines, which must
    /// be attached to the runtime.
    pub(super) fn compile(
        &self,
        work: &WorkSettings<'_>,
        directory: &RunDirectory,
    ) -> Result<(CompiledPipeline, Manager), CommandFailure> {
        // The output of children is in their logs. Their attempts work in separate directories from those of the run itself.
        let of_children = work.registry(&StageFolder::OfChildren(directory.root()));
        let manager = Manager::with(of_children, Transforms::in_directory(self.folder()), self.folder());
        let registry =
            work.registry(&StageFolder::Own(directory.root())).with("stack.manager_loop", manager.clone());
        Ok((self.with(directory.record(registry), work.until)?, manager))
    }

    /// Returns the folder of the files that the pipeline names.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    /// Compiles a graph with the handlers of `registry`.
    pub(super) fn with(
        &self,
        registry: Registry,
        until: Option<&str>,
    ) -> Result<CompiledPipeline, CommandFailure> {
        let mut compiler = Compiler::new(registry);
        if let Some(node) = until {
            if self.pipeline.node(node).is_none() {
                let message = format!("--until: the pipeline has no node `{}`", node.escape_debug());
                let nodes: Vec<&str> = self.pipeline.nodes().iter().map(|node| node.id()).take(20).collect();
                let failure = CommandFailure::usage(message, "ferrata run --help");
                return Err(failure.with_details([format!("its nodes: {}", nodes.join(", "))]));
            }
            compiler = compiler.stop_after(node);
        }
        let (graph, found) = compiler.compile_judged(&self.pipeline).map_err(|error| {
            let message = format!("{}: {}", self.path.display(), error.message());
            CommandFailure::new(ExitReason::InvalidFile, message, self.lint())
        })?;
        let warnings = found.iter().filter(|one| one.severity == Severity::Warning).map(ToString::to_string);
        Ok(CompiledPipeline { graph, warnings: warnings.collect() })
    }

    /// Prints the warnings of lint, in a few lines.
    pub(super) fn warn(&self, compiled: &CompiledPipeline, say: impl Fn(&str)) {
        for warning in compiled.warnings.iter().take(SHOWN) {
            say(&clean(warning));
        }
        if let Some(more) = compiled.warnings.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            say(&format!("and {}: {}", count(more, "more warning"), self.lint()));
        }
    }

    fn lint(&self) -> String {
        format!("ferrata lint {}", quoted(&self.path.display().to_string()))
    }

    /// Returns whether the pipeline has tasks for the backend.
    pub(super) fn has_tasks(&self) -> bool {
        let ends: Vec<usize> = self.pipeline.starts().into_iter().chain(self.pipeline.exits()).collect();
        let known = |name: &str| SHAPES.iter().any(|(_, kind)| *kind == name);
        let mut nodes = self.pipeline.nodes().iter().enumerate().filter(|(at, _)| !ends.contains(at));
        nodes.any(|(_, node)| match &*node.handler_type(known) {
            "codergen" | "prompt" => true,
            "parallel.fan_in" => node.attributes.is_own("prompt"),
            _ => false,
        })
    }
}
