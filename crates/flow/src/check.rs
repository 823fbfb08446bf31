//! Checks of a function against the records of a run.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use ferrata_core::record::{Failure, FailureKind, RunStatus};
use ferrata_core::runtime::{Outcome, Runtime, RuntimeBuilder};
use ferrata_core::store::{MemoryStore, RunHead};
use ferrata_core::{Error, Result, Seq};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::change;
use crate::flow::Flow;
use crate::gate::REPLAY_END;

/// The reason why a run does not fit a function.
#[derive(Debug)]
#[non_exhaustive]
pub enum FlowCheckError {
    /// The function requests other operations than the run has recorded. The text is the text of [`CodeChange`](crate::CodeChange).
    Changed(String),
    /// The function panicked, or the function failed although the recorded run completed.
    Failed(Failure),
    /// The log could not be read.
    Unreadable(Error),
}

impl fmt::Display for FlowCheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(text) => f.write_str(text),
            Self::Failed(failure) => write!(f, "the run did not fail, but the function does: {failure}"),
            Self::Unreadable(error) => write!(f, "cannot read the log: {error}"),
        }
    }
}

impl StdError for FlowCheckError {}

impl From<Error> for FlowCheckError {
    fn from(error: Error) -> Self {
        Self::Unreadable(error)
    }
}

impl<I, O> Flow<I, O>
where
    I: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    /// Replays an [exported](Runtime::export) run with this function. The replay starts no step, question, message or child.
    ///
    /// The function passes if it requests every recorded operation that has an effect, in an order in which each operation gets its recorded result.
    /// Keep logs of production runs next to the tests, and check them before each deployment.
    ///
    /// # Errors
    ///
    /// [`FlowCheckError`] gives the reason why the run does not fit the function.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a check changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::store::{MemoryStore, RunHead};
    /// use ferrata_flow::{FlowContext, FlowError, RuntimeFlowExt, flow};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let steps = |names: &'static [&'static str]| {
    ///     flow("order", move |cx: FlowContext, _: ()| async move {
    ///         for name in names {
    ///             cx.step(name, async || Ok::<_, FlowError>(())).await?;
    ///         }
    ///         Ok::<_, FlowError>(())
    ///     })
    /// };
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let run = runtime.call(&steps(&["reserve", "pay"]), ()).start().await?;
    /// run.result().await?;
    /// let log = runtime.export(run.run()).await?;
    ///
    /// steps(&["reserve", "pay", "ship"]).check(&log).await?;
    /// let error = steps(&["reserve", "charge"]).check(&log).await.unwrap_err();
    /// assert!(error.to_string().contains("step `pay` is recorded"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check(&self, log: &str) -> Result<(), FlowCheckError> {
        self.check_with(log, |builder| builder).await
    }

    /// Checks like [`check`](Self::check), in a runtime with the resources that the function uses outside of steps. `set` adds them.
    ///
    /// # Errors
    ///
    /// The errors of [`check`](Self::check).
    ///
    /// # Cancel safety
    ///
    /// The same as for [`check`](Self::check).
    pub async fn check_with(
        &self,
        log: &str,
        set: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Result<(), FlowCheckError> {
        let graph = self.checking_graph().map_err(Error::from)?;
        let (log, status) = without_end(log).await?;
        // Release the run at its first new wait: a function that gets there has passed.
        let runtime = set(Runtime::builder(MemoryStore::new()).release_after(Duration::ZERO)).build().await?;
        let run = runtime.import(&log, None).await?;
        let outcome = match runtime.head(&run).await?.map(|head| head.status) {
            Some(RunStatus::InProgress) => runtime.resume(&graph, &run).take_over().await?.wait().await?,
            _ => return Ok(()),
        };
        let Outcome::Failed { failure, .. } = outcome else { return Ok(()) };
        if failure.message == REPLAY_END {
            return Ok(());
        }
        if failure.message.starts_with(change::PREFIX) {
            return Err(FlowCheckError::Changed(failure.message));
        }
        match failure.kind == FailureKind::Panic || status == Some(RunStatus::Completed) {
            true => Err(FlowCheckError::Failed(failure)),
            false => Ok(()),
        }
    }
}

/// Removes all records after the last one at which the run was in progress: the record that ends an activation drops its operations, and no process
/// drives an idle run. Also returns the status of the whole run.
async fn without_end(log: &str) -> Result<(String, Option<RunStatus>)> {
    let whole = Runtime::builder(MemoryStore::new()).build().await?;
    let run = whole.import(log, None).await?;
    let head = whole.head(&run).await?;
    let status = head.as_ref().map(|head| head.status);
    let mut text = log.to_owned();
    let is_cut = |head: &RunHead| head.status != RunStatus::InProgress;
    let mut end = head.filter(is_cut).map_or(0, |head| head.seq.get());
    while end > 0 {
        text = whole.export_before(&run, Seq::new(end)).await?;
        let cut = Runtime::builder(MemoryStore::new()).build().await?;
        let copy = cut.import(&text, None).await?;
        if cut.head(&copy).await?.is_some_and(|head| !is_cut(&head)) {
            break;
        }
        end -= 1;
    }
    Ok((text, status))
}
