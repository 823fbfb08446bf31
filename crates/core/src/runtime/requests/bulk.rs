//! Bulk operations on all runs of a listing.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::runs::RunsRequest;
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::finish;
use crate::past::run_tree::check_purge;
use crate::record::RunStatus;
use crate::record::body::{SignalKind, TokenChanges};
use crate::runtime::signals::signal::SignalRequest;
use crate::runtime::writes::system_runs::is_skipped_in_bulk;
use crate::store::{Cursor, RunHead};
use crate::wording::count;

/// The default number of runs that are processed at the same time. It fits into one batch of a store, and is small compared with the load of active
/// runs.
const AT_ONCE: usize = 16;

/// The operation for each run.
#[derive(Clone, Debug)]
enum BulkAction {
    Cancel { reason: String },
    Retry,
    Purge,
}

impl BulkAction {
    /// Returns the statuses of the runs to which the operation applies.
    fn is_for(&self) -> &'static [RunStatus] {
        match self {
            Self::Cancel { .. } => &[RunStatus::InProgress, RunStatus::Interrupted, RunStatus::AwaitingInput],
            Self::Retry => &[RunStatus::Failed],
            Self::Purge => &[RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled],
        }
    }

    /// Checks the listed head of a run. Returns an error if the operation cannot be applied to the run.
    fn check(&self, head: &RunHead) -> Result<()> {
        if self.is_for().contains(&head.status) {
            return Ok(());
        }
        let why = match self {
            Self::Cancel { .. } => "it cannot be cancelled",
            Self::Retry => "only a failed run can be retried",
            Self::Purge => "cancel it first",
        };
        let message = format!("the run is {}; {why}", head.status);
        Err(Error::new(ErrorKind::WrongStatus, message).with_run(&head.run))
    }

    async fn carry_out(self, shared: Arc<RuntimeInner>, head: RunHead, by: Option<String>) -> Result<()> {
        let run = &head.run;
        let what = match self {
            Self::Cancel { reason } => SignalKind::Cancel { reason },
            Self::Retry => SignalKind::Retry { settled: TokenChanges::default() },
            Self::Purge => {
                shared.check_not_driven(run)?;
                check_purge(&*shared.store, run, &BTreeSet::new()).await?;
                // Purge at the listed head, so that later signals are not lost with the run.
                return shared.purge(run, Some(head.head())).await.map(|_| ());
            }
        };
        let request = SignalRequest::new(&shared, run, Ok(what));
        match by {
            Some(by) => request.by(by).await,
            None => request.await,
        }
    }
}

impl RunsRequest {
    /// Cancels all runs of the listing, on all pages, like [`Runtime::cancel`](crate::runtime::Runtime::cancel). If the listing sets no status, only
    /// runs that have not ended are cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::node::NodeContext;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::{Context, Draft};
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// # let graph = Graph::<Context>::builder("order")
    /// #     .node("wait", async |cx: NodeContext, s: Draft<Context>| {
    /// #         cx.receive::<String>().await?;
    /// #         Ok(s)
    /// #     })
    /// #     .entry("wait")
    /// #     .build()?;
    /// # for batch in ["7", "7", "8"] {
    /// #     runtime.start(&graph, Context::new()).label("batch", batch).await?.wait().await?;
    /// # }
    /// let wrong = || runtime.runs().workflow("order").label("batch", "7").cancel_all("ordered twice");
    /// assert_eq!(wrong().dry_run().await?.done.len(), 2); // nothing is done yet
    /// let report = wrong().by("ann").await?;
    /// assert_eq!(report.to_string(), "2 runs done, none refused");
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel_all(self, reason: impl Into<String>) -> BulkRequest {
        BulkRequest::new(self, BulkAction::Cancel { reason: reason.into() })
    }

    /// Retries all runs of the listing, like [`Runtime::retry`](crate::runtime::Runtime::retry). If the listing sets no status, only failed runs are
    /// retried.
    pub fn retry_all(self) -> BulkRequest {
        BulkRequest::new(self, BulkAction::Retry)
    }

    /// Removes all runs of the listing and all their data. If the listing sets no status, only ended runs are removed. The operation refuses a run
    /// that has not ended, that this process still drives, that received a signal since the listing, or that another run of its run tree still needs.
    pub fn purge_all(self) -> BulkRequest {
        BulkRequest::new(self, BulkAction::Purge)
    }
}

/// A prepared bulk operation. `.await` carries it out and returns a report.
///
/// The operation lists the runs in pages, and processes each page before it reads the next. It may therefore miss a run that matches the listing only
/// later. The [`limit`](RunsRequest::limit) of the listing limits the number of processed runs, and the cursor of [`after`](RunsRequest::after) skips
/// the runs before its position.
///
/// The runs that hold the state of [queues and schedules](crate::runtime::is_skipped_in_bulk) are excluded, unless the listing selects their
/// [workflow](RunsRequest::workflow).
///
/// # Errors
///
/// Returns the errors of the listing if the first page cannot be loaded. Later errors are in the [report](BulkReport).
///
/// # Cancel safety
///
/// If the future is dropped, the operation processes no further run. Operations on single runs that have started complete.
#[must_use = "the runs change only when the future is awaited"]
#[derive(Debug)]
pub struct BulkRequest {
    runs: RunsRequest,
    verb: BulkAction,
    by: Option<String>,
    is_dry: bool,
    at_once: usize,
}

/// The report of a bulk operation.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BulkReport {
    /// The runs that were processed, in order. After a dry run, the runs that would be processed.
    pub done: Vec<RunKey>,
    /// One error for each run that was not changed. The error names the run and the reason.
    pub refused: Vec<Error>,
    /// The error that stopped the listing early, if there was one. The remaining runs were then not processed.
    pub stopped: Option<Error>,
    /// The cursor with which the operation can continue, for [`RunsRequest::after`]. It is set if the listing stopped early or reached its limit.
    pub next: Option<Cursor>,
}

impl BulkRequest {
    fn new(mut runs: RunsRequest, verb: BulkAction) -> Self {
        runs.set_statuses(verb.is_for());
        Self { runs, verb, by: None, is_dry: false, at_once: AT_ONCE }
    }

    /// Makes the operation change nothing. It reports the runs that it would process, judged only by the listing.
    pub fn dry_run(mut self) -> Self {
        self.is_dry = true;
        self
    }

    /// Sets the author of the operation. The log of each run records the author, except for a purge.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    /// Sets the number of runs processed at the same time. The default is 16. With a higher number the operation finishes sooner, but leaves less
    /// capacity of the store to active runs.
    pub fn at_once(mut self, runs: NonZeroUsize) -> Self {
        self.at_once = runs.get();
        self
    }

    async fn carry_out(self) -> Result<BulkReport> {
        let Self { runs, verb, by, is_dry, at_once } = self;
        let (shared, is_named) = (runs.shared(), runs.has_workflow());
        let mut listing = runs.pages();
        let mut report = BulkReport::default();
        let mut page = listing.next(None).await?;
        loop {
            let mut heads = page.items.into_iter().filter(|head| is_named || !is_skipped_in_bulk(head));
            let mut working: JoinSet<(RunKey, Result<()>)> = JoinSet::new();
            loop {
                let head = if working.len() < at_once { heads.next() } else { None };
                match head {
                    Some(head) => match verb.check(&head) {
                        Ok(()) if is_dry => report.done.push(head.run),
                        Ok(()) => {
                            let (verb, shared, by) = (verb.clone(), Arc::clone(&shared), by.clone());
                            let run = head.run.clone();
                            working
                                .spawn(async move { (run, finish(verb.carry_out(shared, head, by)).await) });
                        }
                        Err(error) => report.refused.push(error),
                    },
                    None => match working.join_next().await {
                        None => break,
                        Some(Ok((run, Ok(())))) => report.done.push(run),
                        Some(Ok((run, Err(error)))) => report.refused.push(error.with_run(&run)),
                        Some(Err(panicked)) => {
                            let message = "the task of a run panicked";
                            report.refused.push(Error::new(ErrorKind::Closed, message).with_source(panicked));
                        }
                    },
                }
            }
            let Some(next) = page.next else { return Ok(report) };
            report.next = Some(next.clone());
            if listing.is_over() {
                return Ok(report);
            }
            page = match listing.next(Some(next)).await {
                Ok(page) => page,
                Err(error) => {
                    report.stopped = Some(error);
                    return Ok(report);
                }
            };
            report.next = None;
        }
    }
}

impl IntoFuture for BulkRequest {
    type Output = Result<BulkReport>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.carry_out())
    }
}

/// Formats the report in a few words, such as `12 runs done, 1 refused`.
impl fmt::Display for BulkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} done, ", count(self.done.len(), "run"))?;
        match self.refused.len() {
            0 => f.write_str("none refused")?,
            refused => write!(f, "{refused} refused")?,
        }
        match &self.stopped {
            Some(error) => write!(f, "; not all runs were listed: {error}"),
            None => Ok(()),
        }
    }
}
