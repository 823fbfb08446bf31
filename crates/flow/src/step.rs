//! Steps: pieces of work whose result is recorded, so that a replay does not repeat them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ferrata_core::ask::{Ask, AskError, Shape};
use ferrata_core::graph::RetryPolicy;
use ferrata_core::node::NodeError;
use ferrata_core::{Error, ErrorKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::context::{FlowContext, OperationKey};
use crate::entry::{FlowEntry, OperationKind};
use crate::error::{FlowError, FlowErrorKind};
use crate::gate::ReplayEnd;
use crate::recorded::{BEGUN, OUTCOME, RETRY, UNDO_RETRY};
use crate::ticket::GateTicket;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The work of a step. Each call starts the work again.
pub(crate) type StepWork<'a, T> = Box<dyn FnMut() -> BoxFuture<'a, Result<T, FlowError>> + Send + 'a>;

/// A request to execute a step. `.await` executes the step, or returns its recorded result.
///
/// # Cancel safety
///
/// If the future is dropped before the result is recorded, the step counts as not executed. Its work may still have had an effect.
#[must_use = "a step does nothing until it is awaited"]
pub struct StepRequest<'a, T> {
    cx: FlowContext,
    own: OperationKey,
    options: StepOptions,
    work: Option<StepWork<'a, T>>,
    running: Option<BoxFuture<'a, Result<T, FlowError>>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StepOptions {
    pub(crate) retry: RetryPolicy,
    timeout: Option<Duration>,
    is_external: bool,
    is_read: bool,
}

impl StepOptions {
    pub(crate) fn new(retry: RetryPolicy) -> Self {
        Self { retry, timeout: None, is_external: false, is_read: false }
    }
}

/// The outcome of an external step. If the run does not know the outcome, it asks a question, and this type is the answer.
///
/// Its JSON form is `{"done": result}`, `"retry"` or `{"fail": "reason"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome<T> {
    /// The step was executed, with this result.
    Done(T),
    /// The step was not executed. The run executes it again.
    Retry,
    /// The step failed, for this reason.
    Fail(String),
}

impl FlowContext {
    /// Executes `work` and records its result under `name`. A replay returns the recorded result without calling `work`.
    ///
    /// The result is durable when the step returns. After a crash before that moment, the work runs again. So a step runs *at least once*, unless it
    /// is [`external`](StepRequest::external). Send an [`idempotency_key`](Self::idempotency_key) with each request whose effect must not happen
    /// twice.
    ///
    /// An error is recorded before the next operation of the function. If the function ends with the error instead, the error is not recorded, and a
    /// retry of the run executes the step again. An error is recorded as text. To branch on a value, return it in `Ok`: `Ok(Err(OutOfStock))`.
    ///
    /// # Errors
    ///
    /// The error of `work` after its last try, or [`FlowErrorKind::TimedOut`].
    ///
    /// # Cancel safety
    ///
    /// The same as for [`StepRequest`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ferrata_core::graph::RetryPolicy;
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_flow::{FlowContext, FlowError, RuntimeFlowExt, flow};
    ///
    /// async fn charge(cents: u64, key: String) -> Result<String, std::io::Error> {
    ///     Ok(format!("{cents} cents, {} bytes", key.len()))
    /// }
    ///
    /// async fn pay(cx: FlowContext, cents: u64) -> Result<String, FlowError> {
    ///     cx.step("charge", || charge(cents, cx.idempotency_key("charge")))
    ///         .retry(RetryPolicy::standard())
    ///         .timeout(Duration::from_secs(5))
    ///         .await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let receipt = runtime.call(&flow("pay", pay), 500).await?;
    /// assert!(receipt.starts_with("500 cents"));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn step<'a, T, E, F, Fut>(&self, name: &str, mut work: F) -> StepRequest<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Into<FlowError>,
        F: FnMut() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
    {
        let work: StepWork<'a, T> = Box::new(move || {
            let begun = work();
            Box::pin(async move { begun.await.map_err(Into::into) })
        });
        StepRequest {
            cx: self.clone(),
            own: self.key(name, OperationKind::Step),
            options: StepOptions::new(RetryPolicy::none()),
            work: Some(work),
            running: None,
        }
    }
}

impl<T> StepRequest<'_, T> {
    /// Sets the retry policy of the step: the number of tries and the delays between them. By default there is one try.
    ///
    /// The delay before a try is recorded, so crashes do not reset the number of tries. After a [fatal](FlowError::fatal) error there is no further
    /// try.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = policy;
        self
    }

    /// Limits the duration of each try. A try that takes longer is dropped and fails with [`FlowErrorKind::TimedOut`].
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// Marks the step as external: it is not repeated unless an operator allows it. Use it for work that must not be repeated, if the other system
    /// does not recognize an idempotency key.
    ///
    /// The run records the start of the step. If the process dies before the result is recorded, the run asks the question `{name}.outcome1`. It
    /// executes the step again only if the answer is [`StepOutcome::Retry`]. After a try that failed, there is another try only if its error is
    /// marked [`not_done`](FlowError::not_done).
    pub fn external(mut self) -> Self {
        self.options.is_external = true;
        self
    }

    /// Declares that the step only reads. A later version of the function may omit the step, or add it anywhere.
    pub fn read_only(mut self) -> Self {
        self.options.is_read = true;
        self
    }
}

impl<T> Future for StepRequest<'_, T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    type Output = Result<T, FlowError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(work) = this.work.take() {
            this.running = Some(Box::pin(run_step(this.cx.clone(), this.own.clone(), this.options, work)));
        }
        match &mut this.running {
            Some(running) => running.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for StepRequest<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepRequest")
            .field("key", &self.own.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Executes a step, or returns its recorded result.
pub(crate) async fn run_step<T>(
    cx: FlowContext,
    own: OperationKey,
    options: StepOptions,
    mut work: StepWork<'_, T>,
) -> Result<T, FlowError>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    let ticket = cx.enter(&own, options.is_read && !options.is_external).await;
    ticket.released().await;
    if let Some(entry) = &ticket.entry {
        if let Some(error) = entry.error() {
            cx.recall_failure(&own, &ticket).await;
            return Err(error);
        }
        if entry.text.is_some() {
            return Ok(cx.result(&own, &ticket).await);
        }
    }
    // In a box: the future of a recorded step stays small, and a function may have thousands.
    Box::pin(execute_step(&cx, &own, options, &mut work, ticket)).await
}

/// Executes a step whose result is not recorded.
async fn execute_step<T>(
    cx: &FlowContext,
    own: &OperationKey,
    options: StepOptions,
    work: &mut StepWork<'_, T>,
    ticket: GateTicket,
) -> Result<T, FlowError>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    if cx.gate().is_checking() {
        return cx.stop(NodeError::new(ReplayEnd).fatal()).await;
    }
    let mut progress = StepProgress {
        retry_count: ticket.entry.as_ref().map_or(0, |entry| entry.retry_count),
        begun_count: ticket.entry.as_ref().map_or(0, |entry| entry.begun_count),
        next_delay: None,
    };
    let mut is_unknown = progress.begun_count > 0;
    let error = loop {
        cx.wait_for_retry(own, options, &mut progress).await;
        if options.is_external {
            if is_unknown {
                match cx.ask_outcome::<T>(own, progress.begun_count).await {
                    Ok(StepOutcome::Done(result)) => return Ok(cx.keep(own, options, result).await),
                    Ok(StepOutcome::Retry) => {}
                    Ok(StepOutcome::Fail(reason)) => break FlowError::fatal(reason),
                    Err(error) => break error,
                }
            }
            progress.begun_count += 1;
            let begun = OperationKey {
                key: own.part(&format!("{BEGUN}{}", progress.begun_count)).map(Into::into),
                ..own.clone()
            };
            let _: FlowEntry<()> = cx.record(&begun, FlowEntry::Begun(progress.begun_count)).await;
            is_unknown = false;
        }
        let error = match cx.try_once(own, options, &ticket, work).await {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        let may_retry = !error.is_fatal() && (!options.is_external || error.is_not_done());
        if !may_retry || progress.retry_count + 1 >= options.retry.attempts() {
            break error;
        }
        progress.retry_count += 1;
        progress.next_delay = error.delay();
    };
    drop(ticket);
    Err(cx.fail(own, error).await)
}

/// The numbers of failed tries and of starts of a step, and the delay that its last error requested.
struct StepProgress {
    retry_count: u32,
    begun_count: u32,
    next_delay: Option<Duration>,
}

impl OperationKey {
    /// Returns the name of an additional record of the operation, with this suffix.
    pub(crate) fn part(&self, part: &str) -> Option<String> {
        self.key.as_deref().map(|key| format!("{key}.{part}"))
    }
}

impl FlowContext {
    /// Waits for the delay before the next try. The first try has no delay.
    async fn wait_for_retry(&self, own: &OperationKey, options: StepOptions, progress: &mut StepProgress) {
        let count = progress.retry_count;
        if count == 0 {
            return;
        }
        let seed = self.entropy(own.key.as_deref().unwrap_or_default());
        let delay = progress.next_delay.take().unwrap_or_else(|| options.retry.delay(count, seed));
        let prefix = if own.kind == OperationKind::Undo { UNDO_RETRY } else { RETRY };
        if let Some(name) = own.part(&format!("{prefix}{count}"))
            && let Err(error) = self.node().sleep_as(name, delay).await
        {
            self.stop(error).await
        }
    }

    /// Executes the work once, and records its result.
    async fn try_once<T>(
        &self,
        own: &OperationKey,
        options: StepOptions,
        ticket: &GateTicket,
        work: &mut StepWork<'_, T>,
    ) -> Result<T, FlowError>
    where
        T: Serialize + DeserializeOwned + Send,
    {
        let Some(key) = &own.key else { return std::future::pending().await };
        let failed: Mutex<Option<FlowError>> = Mutex::new(None);
        let note = |error| *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        let note = &note;
        let work = || {
            let begun = work();
            async move {
                let working = ticket.work();
                match self.within(options.timeout, begun).await {
                    Ok(result) => {
                        // Record pending errors first: the function saw them before this result, and a replay must keep that order.
                        self.gate().flushed().await;
                        drop(working);
                        Ok(own.entry(options, result))
                    }
                    Err(error) => {
                        note(error);
                        Err(NodeError::new("the step failed"))
                    }
                }
            }
        };
        let error = match self.node().step(&**key, work).await {
            Ok(entry) => return Ok(self.read(own, entry).await),
            Err(error) => error,
        };
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        // A result that cannot be recorded is a failure of the step. Any other error stops the run.
        let is_result = error
            .source()
            .downcast_ref::<Error>()
            .is_some_and(|error| matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Invalid));
        match is_result {
            true => Err(FlowError::of_error(error.source()).as_fatal()),
            false => self.stop(error).await,
        }
    }

    async fn within<T>(
        &self,
        limit: Option<Duration>,
        work: impl Future<Output = Result<T, FlowError>>,
    ) -> Result<T, FlowError> {
        let Some(limit) = limit else { return work.await };
        tokio::select! {
            biased;
            result = work => result,
            () = self.node().clock().sleep(limit) => {
                let message = format!("the try took longer than its timeout of {limit:?}");
                Err(FlowError::of_kind(FlowErrorKind::TimedOut, FlowError::new(message).into_failure()))
            }
        }
    }

    /// Asks the operator for the outcome of an external step.
    async fn ask_outcome<T: DeserializeOwned>(
        &self,
        own: &OperationKey,
        count: u32,
    ) -> Result<StepOutcome<T>, FlowError> {
        let Some(name) = own.part(&format!("{OUTCOME}{count}")) else { return std::future::pending().await };
        let key = own.key.as_deref().unwrap_or_default();
        let question = format!(
            "The process died while the external step `{key}` was running. What became of it? Answer {{\"done\": result}}, \"retry\" or \
             {{\"fail\": \"reason\"}}."
        );
        match self.node().ask_with(name, Ask::<StepOutcome<T>>::shaped(question, Shape::any())).await {
            Ok(outcome) => Ok(outcome),
            Err(AskError::Failed(error)) => self.stop(error).await,
            Err(error) => Err(FlowError::fatal(error)),
        }
    }

    /// Records a result that an operator gave.
    async fn keep<T>(&self, own: &OperationKey, options: StepOptions, result: T) -> T
    where
        T: Serialize + DeserializeOwned + Send,
    {
        self.gate().flushed().await;
        let entry = self.record(own, own.entry(options, result)).await;
        self.read(own, entry).await
    }

    /// Returns the recorded result of a step.
    pub(crate) async fn result<T: DeserializeOwned>(&self, own: &OperationKey, ticket: &GateTicket) -> T {
        let entry = self.recall(own, ticket).await;
        self.read(own, entry).await
    }

    pub(crate) async fn read<T>(&self, own: &OperationKey, entry: FlowEntry<T>) -> T {
        match entry {
            FlowEntry::Step(result) | FlowEntry::Read(result) | FlowEntry::Undo(result) => result,
            _ => self.stop(self.changed(own, "it was recorded as another kind")).await,
        }
    }
}

impl OperationKey {
    fn entry<T>(&self, options: StepOptions, result: T) -> FlowEntry<T> {
        match self.kind {
            OperationKind::Undo => FlowEntry::Undo(result),
            _ if options.is_read && !options.is_external => FlowEntry::Read(result),
            _ => FlowEntry::Step(result),
        }
    }
}
