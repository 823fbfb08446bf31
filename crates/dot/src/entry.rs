//! Going on with a run at a node of one's choice: as a fork, so that what was recorded stays as it is.

use ferrata_core::runtime::{ForkRequest, Position, Runtime};
use ferrata_core::{Error, ErrorKind, RunKey};

use crate::compile::Compiler;
use crate::pipeline::Pipeline;
use crate::suggest::closest;

/// Prepares a run that begins at `node` with the context which `run` has at `at`.
///
/// It is a run of its own with the other as its parent; nothing of that one is changed, so what it had under way is not ended:
/// cancel it if it is not to go on. Give the new run an id to be able to repeat this safely, edit the context by the request's own methods,
/// and [drive](ForkRequest::drive) it with the compiled pipeline.
///
/// # Errors
///
/// - [`ErrorKind::NotFound`]: there is no such node; the message names the closest.
/// - [`ErrorKind::Invalid`]: a run cannot begin there: the node is in a branch of a parallel node, or is its fan-in, where there
///   would be no branch. The message names the fork to begin at instead.
///
/// Awaiting the request gives those of a fork.
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

/// Tells whether a run of a pipeline can begin at a node.
///
/// # Errors
///
/// As [`begin_at`], but for those of a fork.
pub fn check(compiler: &Compiler, pipeline: &Pipeline, node: &str) -> Result<(), Error> {
    let refuse = |kind, message: String| Err(Error::new(kind, message).with_operation("dot.entry"));
    let Some(at) = pipeline.position(node) else {
        let names = pipeline.nodes().iter().map(|node| node.id());
        let near = closest(node, names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        return refuse(ErrorKind::NotFound, format!("there is no node `{node}` to begin at{near}"));
    };
    match compiler.fork_around(pipeline, at)? {
        None => Ok(()),
        Some(fork) => {
            let message = format!(
                "a run cannot begin at `{node}`, which belongs to the branches of `{fork}`; begin at `{fork}`"
            );
            refuse(ErrorKind::Invalid, message)
        }
    }
}
