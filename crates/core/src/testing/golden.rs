//! Holding logs that a repository keeps against the graph of today, so that a change that strands runs is found before it ships.

use crate::error::Result;
use crate::graph::Graph;
use crate::runtime::{Runtime, Verified};
use crate::state::State;
use crate::store::MemoryStore;

/// Replays a run that was [exported](Runtime::export) against a graph, without running any node.
///
/// # Errors
///
/// As [`Runtime::import`] and [`Runtime::verify`]. A difference is no error but in [`Verified::divergence`].
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::Graph;
/// use ferrata_core::runtime::Runtime;
/// use ferrata_core::state::Context;
/// use ferrata_core::store::MemoryStore;
/// use ferrata_core::testing::verify_golden;
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
