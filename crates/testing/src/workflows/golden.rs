//! Compares stored logs with the current graph, so that a test finds a change that strands runs.

use ferrata_core::Result;
use ferrata_core::graph::Graph;
use ferrata_core::runtime::{Runtime, Verified};
use ferrata_core::state::State;
use ferrata_core::store::MemoryStore;

/// Replays an [exported](Runtime::export) run against a graph without running any node.
///
/// # Errors
///
/// Returns the errors of [`Runtime::import`] and [`Runtime::verify`]. A difference is not an error: [`Verified::divergence`] reports it.
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::Graph;
/// use ferrata_core::runtime::Runtime;
/// use ferrata_core::state::Context;
/// use ferrata_core::store::MemoryStore;
/// use ferrata_testing::verify_golden;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let graph = Graph::<Context>::builder("g").node("a", async |_cx, _s| Ok(())).entry("a").build()?;
/// // Once, from a run that should go on being understood; kept as a file beside the tests.
/// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
/// let run = runtime.start(&graph, Context::new()).await?;
/// run.wait().await?;
/// let golden = runtime.export(run.run()).await?;
///
/// // In every run of the tests.
/// let verified = verify_golden(&graph, &golden).await?;
/// assert!(verified.divergence.is_none(), "{}", verified.divergence.unwrap());
/// # Ok(())
/// # }
/// ```
pub async fn verify_golden<S: State>(graph: &Graph<S>, exported: &str) -> Result<Verified> {
    let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    let run = runtime.import(exported, None).await?;
    runtime.verify(graph, &run).await
}

/// Asserts that an [exported](Runtime::export) run replays on `graph`. Use it for production logs that are stored next to the tests. No node runs.
///
/// # Panics
///
/// Panics if the log is unreadable or the graph diverges. The message names the record and the difference.
///
/// # Examples
///
/// ```no_run
/// # use ferrata_core::graph::Graph;
/// # use ferrata_core::state::Context;
/// # fn graph() -> Graph<Context> { unreachable!() }
/// # async fn test() {
/// // ferrata export order-17 --to tests/logs/order-17.jsonl
/// let log = std::fs::read_to_string("tests/logs/order-17.jsonl").unwrap();
/// ferrata_testing::assert_replays(&log, &graph()).await;
/// # }
/// ```
pub async fn assert_replays<S: State>(log: &str, graph: &Graph<S>) {
    match verify_golden(graph, log).await {
        Ok(Verified { divergence: None, .. }) => {}
        Ok(Verified { divergence: Some(divergence), .. }) => {
            panic!("graph `{}` diverges from the log: {divergence}", graph.name())
        }
        Err(error) => panic!("cannot verify the log with graph `{}`: {error}", graph.name()),
    }
}
