//! Steps in a transaction on the database of the store.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use ferrata_core::node::NodeError;
use ferrata_core::store::Database;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::FlowContext;
use crate::entry::{FlowEntry, OperationKind};
use crate::error::FlowError;

impl FlowContext {
    /// Executes a step in a transaction on the database of the store. The rows that `work` writes and the result of the step commit together, exactly
    /// once. Otherwise it behaves like [`step`](Self::step). The first type argument names the database: `cx.step_in::<Postgres, _, _, _>(..)`.
    ///
    /// If `work` fails with an error that is not [fatal](NodeError::fatal), the attempt ends. If the database requires another attempt, for example
    /// after a deadlock, the function runs again. Otherwise the policy of [`Flow::retry`](crate::Flow::retry) decides whether it runs again. The
    /// function sees only fatal errors.
    ///
    /// # Errors
    ///
    /// A fatal error of `work`. If the store has no transactions, or uses another database, the attempt ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before the commit, the transaction has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::node::NodeError;
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_testing::{LedgerDatabase, LedgerRows, LedgerStore};
    /// use ferrata_flow::{FlowContext, FlowError, RuntimeFlowExt, flow};
    ///
    /// async fn debit(tx: &mut LedgerRows) -> Result<i64, NodeError> {
    ///     tx.add("cash", -5);
    ///     Ok(tx.get("cash"))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // `LedgerDatabase` is a table in memory, for tests; in an application it is `Postgres` or `Sqlite`.
    /// let pay = flow("pay", |cx: FlowContext, _: ()| async move {
    ///     cx.step_in::<LedgerDatabase, _, _, _>("debit", |tx| Box::pin(debit(tx))).await
    /// });
    /// let store = LedgerStore::new();
    /// let runtime = Runtime::builder(store.clone()).build().await?;
    /// assert_eq!(runtime.call(&pay, ()).await?, -5);
    /// assert_eq!(store.row("cash").await, -5);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn step_in<'a, D, T, E, F>(
        &self,
        name: &str,
        work: F,
    ) -> impl Future<Output = Result<T, FlowError>> + Send + use<'a, D, T, E, F>
    where
        D: Database,
        D::Connection: Send,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Into<NodeError> + Send + 'static,
        F: for<'c> FnOnce(
                &'c mut D::Connection,
            ) -> std::pin::Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'c>>
            + Send
            + 'a,
    {
        let (cx, own) = (self.clone(), self.key(name, OperationKind::Step));
        async move {
            let ticket = cx.enter(&own, false).await;
            ticket.released().await;
            if let Some(error) = ticket.entry.as_ref().and_then(|entry| entry.error()) {
                cx.recall_failure(&own, &ticket).await;
                return Err(error);
            }
            if ticket.entry.as_ref().is_some_and(|entry| entry.text.is_some()) {
                return Ok(cx.result(&own, &ticket).await);
            }
            if cx.gate().is_checking() {
                return cx.stop(NodeError::new(crate::gate::ReplayEnd).fatal()).await;
            }
            cx.gate().flushed().await;
            let failed: Mutex<Option<NodeError>> = Mutex::new(None);
            let key = own.key.as_deref().unwrap_or_default();
            let work = async |connection: &mut D::Connection| match work(connection).await {
                Ok(result) => Ok(FlowEntry::Step(result)),
                Err(error) => {
                    let error: NodeError = error.into();
                    if error.is_fatal() {
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        return Err(NodeError::new("the step failed"));
                    }
                    Err(error)
                }
            };
            let error = match cx.node().step_in::<D, _, NodeError, _>(key, work).await {
                Ok(entry) => return Ok(cx.read(&own, entry).await),
                Err(error) => error,
            };
            let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
            let Some(failed) = failed else { return cx.stop(error).await };
            drop(ticket);
            Err(cx.fail(&own, FlowError::of_error(failed.source()).as_fatal()).await)
        }
    }
}
