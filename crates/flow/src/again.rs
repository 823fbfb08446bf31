//! Passes: a function that begins again with a new input, in the same run.

use std::future::{Future, pending};

use ferrata_core::node::NodeError;
use serde::Serialize;
use serde_json::Value;

use crate::context::FlowContext;
use crate::error::FlowError;
use crate::gate::ReplayEnd;

/// The successful end of an attempt of a function.
#[derive(Debug)]
pub(crate) enum FlowEnd<O> {
    Returned(O),
    /// The function begins again with this input.
    Continued(Value),
    /// The run was cancelled, and the compensations of the function have run.
    Undone,
}

impl FlowContext {
    /// Ends this pass of the function and starts the next pass with a new input, in the same run. The records of the ended pass no longer count. Call
    /// this method in a function that never ends, before the run has too many records.
    ///
    /// One record ends the pass and starts the next one, so after a crash the run is in exactly one of them. The run keeps its id, labels,
    /// configuration, slot in a queue, deadline, and the messages that it has not received. The end of a pass has the same effects as a return of the
    /// function: unfinished children are cancelled, open questions are withdrawn, outbox messages are sent, and registered compensations are removed.
    ///
    /// The returned future is never ready, so the code after its `.await` does not execute. Operations of the next pass are independent of earlier
    /// passes: the same name means a new operation, with another [`idempotency_key`](Self::idempotency_key). Question ids begin with `main@2:`,
    /// `main@3:` and so on.
    ///
    /// # Errors
    ///
    /// The function sees no error. The run fails if `input` does not have the type that the function takes. The run fails with a
    /// [`CodeChange`](crate::CodeChange) if this pass did not request every recorded operation that has an effect.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before the function is next polled, the pass continues.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_flow::{FlowContext, FlowError, RuntimeFlowExt, flow};
    ///
    /// /// Adds the numbers up to `last`, ten steps in each pass.
    /// async fn sum(cx: FlowContext, (first, last, mut sum): (u64, u64, u64)) -> Result<u64, FlowError> {
    ///     for n in first..last.min(first + 10) {
    ///         sum += cx.step("add", || async move { Ok::<_, FlowError>(n) }).await?;
    ///     }
    ///     if first + 10 < last {
    ///         return cx.continue_with((first + 10, last, sum)).await;
    ///     }
    ///     Ok(sum)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// assert_eq!(runtime.call(&flow("sum", sum), (0, 25, 0)).await?, 300);
    /// # Ok(())
    /// # }
    /// ```
    pub fn continue_with<T>(
        &self,
        input: impl Serialize,
    ) -> impl Future<Output = Result<T, FlowError>> + Send {
        let (cx, input) = (self.clone(), serde_json::to_value(input));
        async move {
            match input {
                Err(error) => return cx.stop(NodeError::new(error).fatal()).await,
                Ok(_) if !cx.gate().check_end(None) => {}
                Ok(_) if cx.gate().is_checking() => return cx.stop(NodeError::new(ReplayEnd).fatal()).await,
                // The cancellation came before the end of the pass.
                Ok(_) if cx.node().is_cleaning_up() => {}
                Ok(input) => cx.gate().continue_with(input),
            }
            pending().await
        }
    }
}
