//! Calls of one flow for many inputs.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::FlowContext;
use crate::error::FlowError;
use crate::flow::Flow;
use crate::wait::FlowFuture;

impl FlowContext {
    /// Calls a flow once for each input, with at most `max_running` calls at a time, and waits for all results. The results have the order of the
    /// inputs.
    ///
    /// All calls have the same name, and are numbered in the order of the inputs. So a later version of the function may add inputs at the end, but
    /// must not change the order of the inputs.
    ///
    /// # Errors
    ///
    /// Each result may have the errors of [`call`](Self::call).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, started children continue until the function ends. Then the runtime cancels them.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_flow::{FlowContext, FlowError, RuntimeFlowExt, flow};
    ///
    /// async fn square(_cx: FlowContext, n: u64) -> Result<u64, FlowError> {
    ///     Ok(n * n)
    /// }
    ///
    /// async fn squares(cx: FlowContext, last: u64) -> Result<u64, FlowError> {
    ///     let squares = cx.map("squares", &flow("square", square), 1..=last, 4).await;
    ///     squares.into_iter().sum()
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(flow("square", square).graph()?)?;
    /// assert_eq!(runtime.call(&flow("squares", squares), 10).await?, 385);
    /// # Ok(())
    /// # }
    /// ```
    pub fn map<I, O>(
        &self,
        name: &str,
        flow: &Flow<I, O>,
        inputs: impl IntoIterator<Item = I>,
        max_running: usize,
    ) -> FlowFuture<Vec<Result<O, FlowError>>>
    where
        I: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let (cx, name, flow) = (self.clone(), name.to_owned(), flow.clone());
        let mut inputs: VecDeque<_> = inputs.into_iter().enumerate().collect();
        let mut results: Vec<_> = inputs.iter().map(|_| None).collect();
        let mut running = Vec::new();
        Box::pin(async move {
            poll_fn(|context| {
                loop {
                    while running.len() < max_running.max(1)
                        && let Some((index, input)) = inputs.pop_front()
                    {
                        running.push((index, cx.call(&flow, input).name(&name)));
                    }
                    let before = running.len();
                    running.retain_mut(|(index, call)| match Pin::new(call).poll(context) {
                        Poll::Ready(result) => {
                            results[*index] = Some(result);
                            false
                        }
                        Poll::Pending => true,
                    });
                    if running.is_empty() && inputs.is_empty() {
                        return Poll::Ready(());
                    }
                    if running.len() == before || inputs.is_empty() {
                        return Poll::Pending;
                    }
                }
            })
            .await;
            results.into_iter().flatten().collect()
        })
    }
}
