//! Waits of a function: for a time, for an answer, or for a message.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ferrata_core::Timestamp;
use ferrata_core::ask::{AnswerShape, Ask, AskError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::FlowContext;
use crate::entry::OperationKind;
use crate::error::{self, FlowError};

/// The future of an operation of a [`FlowContext`].
pub type FlowFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl FlowContext {
    /// Waits for `time`. The wait survives restarts.
    ///
    /// The end time is recorded when the wait begins. During a long wait the run has no process and uses no memory. After the wait, the function runs
    /// again from its start.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a timer that was dropped does not wake the run.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ferrata_flow::{FlowContext, FlowError};
    ///
    /// async fn approve(cx: FlowContext, total: u64) -> Result<bool, FlowError> {
    ///     tokio::select! {
    ///         answer = cx.ask::<bool>("approve", format!("Pay {total} EUR?")) => answer,
    ///         () = cx.sleep("give up", Duration::from_secs(2 * 86_400)) => Ok(false),
    ///     }
    /// }
    /// # let _ = approve;
    /// ```
    #[track_caller]
    pub fn sleep(&self, name: &str, time: Duration) -> impl Future<Output = ()> + Send + use<> {
        let (cx, own) = (self.clone(), self.key(name, OperationKind::Timer));
        async move {
            let ticket = cx.enter(&own, true).await;
            ticket.released().await;
            let name = own.key.as_deref().unwrap_or_default();
            if let Err(error) = cx.node().sleep_as(name, time).await {
                cx.stop(error).await
            }
        }
    }

    /// Waits until `moment`, like [`sleep`](Self::sleep). If `moment` is in the past, the wait ends at once.
    ///
    /// # Cancel safety
    ///
    /// The same as for [`sleep`](Self::sleep).
    #[track_caller]
    pub fn sleep_until(&self, name: &str, moment: Timestamp) -> impl Future<Output = ()> + Send + use<> {
        let now = self.node().now();
        self.sleep(name, moment.since(now))
    }

    /// Asks a question and waits for the answer. The answer may come months later, after restarts. The id of the question is `main@1:{name}`, with
    /// `_` instead of spaces. Answer it with [`Runtime::respond`](ferrata_core::runtime::Runtime::respond).
    ///
    /// # Errors
    ///
    /// [`FlowErrorKind::Rejected`](crate::FlowErrorKind::Rejected): the question was rejected.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the question stays open until the function ends.
    #[track_caller]
    pub fn ask<A: AnswerShape + Send>(
        &self,
        name: &str,
        question: impl Serialize,
    ) -> FlowFuture<Result<A, FlowError>> {
        Box::pin(self.ask_with(name, Ask::<A>::new(question)))
    }

    /// Asks a question like [`ask`](Self::ask), with choices, a deadline or a default answer.
    ///
    /// # Errors
    ///
    /// [`FlowErrorKind::Rejected`](crate::FlowErrorKind::Rejected): the question was rejected.
    /// [`FlowErrorKind::Expired`](crate::FlowErrorKind::Expired): its deadline passed without an answer.
    ///
    /// # Cancel safety
    ///
    /// The same as for [`ask`](Self::ask).
    #[track_caller]
    pub fn ask_with<A: DeserializeOwned + Send + 'static>(
        &self,
        name: &str,
        ask: Ask<A>,
    ) -> impl Future<Output = Result<A, FlowError>> + Send + use<A> {
        let (cx, own) = (self.clone(), self.key(name, OperationKind::Question));
        async move {
            let ticket = cx.enter(&own, false).await;
            ticket.released().await;
            if let Some(error) = ticket.entry.as_ref().and_then(|entry| entry.error()) {
                cx.recall_failure(&own, &ticket).await;
                return Err(error);
            }
            let name = own.key.as_deref().unwrap_or_default();
            let error = match cx.node().ask_with(name, ask).await {
                Ok(answer) => return Ok(answer),
                Err(AskError::Failed(error)) => return cx.stop(error).await,
                Err(error) => error,
            };
            drop(ticket);
            match error::of_question(&error) {
                Some(error) => Err(cx.fail(&own, error).await),
                None => cx.stop(error).await,
            }
        }
    }

    /// Returns the next message to the run. If there is none, waits for a message. A message that does not have the type `M` is set aside.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped because another wait ended first, it takes no message.
    #[track_caller]
    pub fn receive<M>(&self, name: &str) -> impl Future<Output = M> + Send + use<M>
    where
        M: DeserializeOwned + Send + 'static,
    {
        let received = self.take_message(name, None);
        async move {
            match received.await {
                Some(message) => message,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns the next message like [`receive`](Self::receive), but waits at most for `patience`. Returns `None` if no message came.
    ///
    /// # Cancel safety
    ///
    /// The same as for [`receive`](Self::receive).
    #[track_caller]
    pub fn receive_within<M>(
        &self,
        name: &str,
        patience: Duration,
    ) -> impl Future<Output = Option<M>> + Send + use<M>
    where
        M: DeserializeOwned + Send + 'static,
    {
        self.take_message(name, Some(patience))
    }

    #[track_caller]
    fn take_message<M>(
        &self,
        name: &str,
        patience: Option<Duration>,
    ) -> impl Future<Output = Option<M>> + Send + use<M>
    where
        M: DeserializeOwned + Send + 'static,
    {
        let (cx, own) = (self.clone(), self.key(name, OperationKind::Message));
        async move {
            let ticket = cx.enter(&own, false).await;
            ticket.released().await;
            let name = own.key.as_deref().unwrap_or_default();
            match cx.node().receive_as(name, patience).await {
                Ok(message) => message,
                Err(error) => cx.stop(error).await,
            }
        }
    }
}
