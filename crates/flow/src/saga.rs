//! Compensations, which undo the finished steps of a flow that fails.

use std::fmt;
use std::future::Future;
use std::panic::Location;

use ferrata_core::graph::RetryPolicy;

use crate::context::FlowContext;
use crate::entry::OperationKind;
use crate::error::{FlowError, FlowFailure};
use crate::step::{StepOptions, StepWork, run_step};

/// A registered compensation, which undoes a step.
pub(crate) struct PendingUndo {
    name: String,
    location: &'static Location<'static>,
    retry: RetryPolicy,
    work: StepWork<'static, ()>,
}

impl fmt::Debug for PendingUndo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingUndo({})", self.name)
    }
}

/// The default number of tries of a compensation. It is higher than for a step, because a person must repair the effect of a failed compensation.
const ATTEMPTS: u32 = 10;

impl FlowContext {
    /// Registers a compensation that undoes a step if the function fails later. If a step may fail after it had an effect, register its compensation
    /// before the step.
    ///
    /// If the function returns an error and has no attempts left, the registered compensations run in reverse order. Each compensation is a step: it
    /// is recorded, is tried up to 10 times with the delays of [`RetryPolicy::standard`], and may run again after a crash. If a compensation fails,
    /// the others still run, and the error of the flow lists the failed compensations.
    ///
    /// If the run is cancelled, running steps finish, or are dropped when the runtime's grace period ends. A process that serves the flow then
    /// replays the function up to the end of its records and runs the registered compensations in the same way. The run ends as cancelled when the
    /// compensations have ended. Its reason names the compensations that failed.
    ///
    /// No compensation runs if the run exceeds its deadline, panics, or stops with a [`CodeChange`](crate::CodeChange).
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_flow::{FlowContext, FlowError, RuntimeFlowExt, flow};
    ///
    /// async fn trip(cx: FlowContext, _: ()) -> Result<(), FlowError> {
    ///     let hotel: String = cx.step("hotel", async || Ok::<_, FlowError>("h-7".to_owned())).await?;
    ///     cx.compensate("cancel hotel", move || {
    ///         let hotel = hotel.clone();
    ///         async move {
    ///             assert_eq!(hotel, "h-7"); // the call
    ///             Ok::<_, FlowError>(())
    ///         }
    ///     });
    ///     Err(FlowError::fatal("no car is left"))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let error = runtime.call(&flow("trip", trip), ()).await.unwrap_err();
    /// assert_eq!(error.to_string(), "the flow failed: node main: no car is left");
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn compensate<E, F, Fut>(&self, name: &str, work: F)
    where
        E: Into<FlowError>,
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        self.compensate_with(name, RetryPolicy::standard().with_attempts(ATTEMPTS), work);
    }

    /// Registers a compensation like [`compensate`](Self::compensate), with its own retry policy.
    #[track_caller]
    pub fn compensate_with<E, F, Fut>(&self, name: &str, retry: RetryPolicy, mut work: F)
    where
        E: Into<FlowError>,
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        let work: StepWork<'static, ()> = Box::new(move || {
            let begun = work();
            Box::pin(async move { begun.await.map_err(Into::into) })
        });
        let location = Location::caller();
        self.node().set_cleanup(true);
        self.compensations().push(PendingUndo { name: name.to_owned(), location, retry, work });
    }

    /// Removes all registered compensations, so that a later failure does not undo the steps that have finished.
    pub fn clear_compensations(&self) {
        self.compensations().clear();
    }

    /// Runs the registered compensations, the last first. Returns the failures.
    pub(crate) async fn undo(&self) -> Vec<String> {
        let mut failed = Vec::new();
        loop {
            let Some(compensation) = self.compensations().pop() else { return failed };
            let PendingUndo { name, location, retry, work } = compensation;
            let own = self.key_at(&name, OperationKind::Undo, location);
            if let Err(cause) = run_step(self.clone(), own, StepOptions::new(retry), work).await {
                tracing::error!(run = %self.run(), compensation = %name, error = %cause, "cannot undo a step");
                failed.push(format!("could not undo `{name}`: {cause}"));
            }
        }
    }
}

/// Returns an error that names the failed compensations, after the error of the flow if the flow failed.
pub(crate) fn not_undone(error: Option<&FlowError>, failed: &[String]) -> FlowError {
    let failed = failed.join("; ");
    let Some(error) = error else { return FlowError::fatal(failed) };
    let kind = error.kind();
    let causes = error.failure().causes().to_vec();
    FlowError::of_kind(kind, FlowFailure::from_texts(kind, format!("{error}; {failed}"), causes)).as_fatal()
}
