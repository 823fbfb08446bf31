//! Continues a run at a chosen node. The continuation is a fork, so the records of the run stay unchanged.

use ferrata_core::runtime::{ForkRequest, Position, Runtime};
use ferrata_core::{Error, ErrorKind, RunKey};

use crate::compile::Compiler;
use crate::pipeline::Pipeline;
use crate::suggest::closest_name;

/// Prepares a new run that begins at `node` with the context that `run` had at the position `at`.
///
/// The new run is a fork of `run`. The fork does not stop `run`, whose nodes continue. Cancel `run` if it should stop. Set an id for the new run, so
/// that a repeated call starts no second run. Use the methods of the returned request to edit the context, and [drive](ForkRequest::drive) the fork
/// with the compiled pipeline.
///
/// # Errors
///
/// - [`ErrorKind::NotFound`]: the node does not exist. The message names the node with the most similar name.
/// - [`ErrorKind::Invalid`]: a run cannot begin at this node, because the node is in a branch of a parallel node, or is the fan-in of one and would
///   have no branches. The message names the parallel node at which the run can begin instead.
///
/// Awaiting the returned request may fail with the errors of a fork.
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
/// The errors of [`begin_at`], except the errors of a fork.
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
