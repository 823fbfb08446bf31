//! Continues a run at a chosen node, as a fork, so that its records stay unchanged.

use ferrata_core::runtime::{ForkRequest, Position, Runtime};
use ferrata_core::{Error, ErrorKind, RunKey};

use crate::compile::Compiler;
use crate::pipeline::Pipeline;
use crate::suggest::closest_name;

/// Prepares a run that begins at `node` with the context of `run` at `at`.
///
/// The new run is a fork of the other, which stays unchanged: its running nodes continue, so cancel it if it should stop. Set an id for the new run
/// to make repetition safe. Edit the context with the request's methods, and [drive](ForkRequest::drive) the fork with the compiled pipeline.
///
/// # Errors
///
/// - [`ErrorKind::NotFound`]: the node does not exist; the message names the closest one.
/// - [`ErrorKind::Invalid`]: a run cannot begin at this node: it is in a branch of a parallel node, or is its fan-in, which would have no branch. The
///   message names the fork to begin at instead.
///
/// Awaiting the request returns the errors of a fork.
///
/// # Examples
///
/// ```
/// use ferrata_core::runtime::{Position, Runtime};
/// use ferrata_core::state::Context;
/// use ferrata_core::store::MemoryStore;
/// use ferrata_dot::Pipeline;
/// use ferrata_dot::compile::Compiler;
/// use ferrata_dot::entry::begin_at;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let pipeline = Pipeline::parse(b"digraph G { start exit a b start -> a -> b -> exit }")?;
/// let (compiler, runtime) = (Compiler::default(), Runtime::builder(MemoryStore::new()).build().await?);
/// let graph = compiler.compile(&pipeline)?;
/// let run = runtime.start(&graph, Context::new()).id("r1").await?;
/// run.wait().await?;
/// let again = begin_at(&compiler, &pipeline, &runtime, run.run(), Position::Latest, "b")?.id("r2");
/// let again = again.drive(&graph).await?;
/// assert!(again.wait().await?.completed().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn begin_at(
    compiler: &Compiler,
    pipeline: &Pipeline,
    runtime: &Runtime,
    run: &RunKey,
    at: Position,
    node: &str,
) -> Result<ForkRequest, Error> {
    check(compiler, pipeline, node)?;
    Ok(runtime.fork(run, at).start_at(node))
}

/// Checks whether a run of a pipeline can begin at a node.
///
/// # Errors
///
/// As [`begin_at`], except for the errors of a fork.
pub fn check(compiler: &Compiler, pipeline: &Pipeline, node: &str) -> Result<(), Error> {
    let refuse = |kind, message: String| Err(Error::new(kind, message).with_operation("dot.entry"));
    let Some(at) = pipeline.position(node) else {
        let names = pipeline.nodes().iter().map(|node| node.id());
        let near =
            closest_name(node, names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        return refuse(
            ErrorKind::NotFound,
            format!("cannot start at `{node}`: the pipeline has no such node{near}"),
        );
    };
    match compiler.fork_around(pipeline, at)? {
        None => Ok(()),
        Some(fork) => {
            let message = format!(
                "a run cannot start at `{node}`, which is in a branch of `{fork}`; start at `{fork}`"
            );
            refuse(ErrorKind::Invalid, message)
        }
    }
}
