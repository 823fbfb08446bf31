//! Starts many runs in few appends.

use std::future::IntoFuture;

use tokio::task::{JoinError, JoinSet};

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::runtime::Runtime;

/// The number of starts at a time. Their records share appends. More would need more memory, and make no append cheaper.
const AT_ONCE: usize = 512;

impl Runtime {
    /// Starts many runs, and returns the result of each start in the order of the requests. The requests may be [starts](Self::start), or starts
    /// through a queue.
    ///
    /// Each start is durable or fails on its own. So if some fail, call the method again with the same requests: give each an id, and the starts that
    /// succeeded return their runs. The starts share appends: 512 are in progress at a time, and the store writes them in a few batches.
    ///
    /// A start that is not through a queue makes its run active at once. To start more runs than fit into memory, start them through a queue, or set
    /// [`RunLimits`](crate::runtime::RunLimits).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, each start is carried out or not started. Call the method again with the same ids.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let graph = Graph::<Context>::builder("mail").node("send", async |_cx, s| Ok(s)).entry("send").build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let requests = (0..1_000).map(|n| runtime.start(&graph, Context::new()).id(format!("mail-{n}")));
    /// for started in runtime.start_many(requests).await {
    ///     started?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_many<R, T>(&self, requests: impl IntoIterator<Item = R>) -> Vec<Result<T>>
    where
        R: IntoFuture<Output = Result<T>, IntoFuture: Send + 'static>,
        T: Send + 'static,
    {
        let (mut starting, mut results) = (JoinSet::new(), Vec::new());
        for request in requests {
            if starting.len() >= AT_ONCE
                && let Some(ended) = starting.join_next().await
            {
                keep(&mut results, ended);
            }
            let (place, request) = (results.len(), request.into_future());
            results.push(Err(unfinished()));
            starting.spawn(async move { (place, request.await) });
        }
        while let Some(ended) = starting.join_next().await {
            keep(&mut results, ended);
        }
        results
    }
}

/// Keeps the result of a start. If the start panicked, its result stays the error that was stored before.
fn keep<T>(results: &mut [Result<T>], ended: std::result::Result<(usize, Result<T>), JoinError>) {
    if let Ok((place, result)) = ended
        && let Some(kept) = results.get_mut(place)
    {
        *kept = result;
    }
}

fn unfinished() -> Error {
    Error::new(ErrorKind::Closed, "the start panicked or was aborted; start the run again with the same id")
}
