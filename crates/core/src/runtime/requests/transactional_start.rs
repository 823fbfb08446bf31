//! Starts of runs within a database transaction of the application, so that the run and the application's rows commit together.

use std::any::{Any, type_name};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use tracing::Instrument as _;

use super::resume::{ClaimOptions, resume};
use super::start::{StartRequest, ValidatedStart};
use super::waiting_runs::line_up;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointFrequency, CheckpointPolicy, Graph};
use crate::id::{Epoch, RunKey};
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::finish;
use crate::record::RunFacts;
use crate::runtime::handle::{OutcomeSource, RunHandle};
use crate::state::State;

/// A prepared start within a database transaction of the application. `.await` writes the first record of the run in the transaction.
///
/// # Cancel safety
///
/// Not cancel safe: if the future is dropped, roll the transaction back.
#[must_use = "a run starts only when the future is awaited"]
pub struct StartWithin<'c, S: State> {
    request: StartRequest<S>,
    connection: &'c mut (dyn Any + Send),
    /// The type of the connection, for an error message.
    given: &'static str,
}

impl<S: State> StartRequest<S> {
    /// Starts the run within a transaction of the application on the store's database. The run exists if the transaction commits, and does not exist
    /// if it is rolled back. `connection` is a `sqlx::PgConnection` or `sqlx::SqliteConnection` of sqlx 0.9. For a `sqlx` transaction `tx`, pass
    /// `&mut *tx`. The code also compiles with `&mut tx`, but then the request fails at run time.
    ///
    /// The run does not start before the commit. After the commit, [`TransactionalStart::drive`] starts it at once. If you do not call it, a process
    /// that [serves](crate::runtime::Runtime::serve) the workflow finds the run at its next sweep.
    ///
    /// # Errors
    ///
    /// The `.await` returns the errors of [`Runtime::start`](crate::runtime::Runtime::start), and these errors:
    /// - [`ErrorKind::AlreadyExists`]: a run with the id exists, even with the same input. The start wrote nothing.
    /// - [`ErrorKind::Unsupported`]: the store has no transactions.
    /// - [`ErrorKind::Invalid`]: `connection` is not the store's connection type, or checkpoints are disabled. The error names both types.
    ///
    /// After any error, roll the transaction back.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_testing::LedgerStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let graph = Graph::<Context>::builder("order").node("pack", async |_cx, s| Ok(s)).entry("pack").build()?;
    /// // `LedgerStore` is a table in memory, for tests; in an application the transaction is one of `sqlx`.
    /// let store = LedgerStore::new();
    /// let runtime = Runtime::builder(store.clone()).build().await?;
    /// let mut tx = store.transaction().await?;
    /// tx.add("orders", 1);
    /// let ticket = runtime.start(&graph, Context::new()).id("order-7").in_transaction(&mut *tx).await?;
    /// store.finish(tx).await?;
    /// ticket.drive().await?.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_transaction<C: Any + Send>(self, connection: &mut C) -> StartWithin<'_, S> {
        StartWithin { request: self, connection, given: type_name::<C>() }
    }
}

impl<'c, S: State> IntoFuture for StartWithin<'c, S> {
    type Output = Result<TransactionalStart<S>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { request, connection, given } = self;
        let span = request.span();
        let begun = async move {
            // State code serializes the input: its panic ends this task, and not the caller.
            let checked = finish(async move { request.validate() }).await?;
            begin(checked, connection, given).await
        };
        Box::pin(begun.instrument(span))
    }
}

impl<S: State> fmt::Debug for StartWithin<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartWithin").field("request", &self.request).finish_non_exhaustive()
    }
}

/// Writes the first record of a run without an owner.
async fn begin<S: State>(
    mut checked: ValidatedStart<S>,
    connection: &mut (dyn Any + Send),
    given: &str,
) -> Result<TransactionalStart<S>> {
    let text = checked.text()?;
    let first = checked.first();
    let ValidatedStart { shared, graph, run, facts, policy, .. } = checked;
    if policy.frequency == CheckpointFrequency::Disabled {
        let message = "a run without checkpoints cannot start in a transaction, because it has no record; set another policy";
        return Err(Error::new(ErrorKind::Invalid, message).with_run(&run));
    }
    let Some(transactions) = shared.store.transactions() else {
        let store = shared.store.capabilities().name;
        let message = format!(
            "the store `{store}` has no transactions; keep the runs in PostgreSQL or SQLite, or in `World::with_transactions` in a test"
        );
        return Err(Error::new(ErrorKind::Unsupported, message).with_run(&run));
    };
    let (event, machine) = first?;
    let mut log = shared.log_writer(&run);
    log.state_version = graph.schema().version();
    log.epoch = Epoch::NEVER;
    let append = log.begin(&event, &machine, text, true, facts.clone())?;
    match transactions.append_in(connection, append).await {
        Ok(_) => {
            shared.telemetry().of(Some(&facts.workflow)).started();
            Ok(TransactionalStart { shared, graph, run, facts, policy })
        }
        Err(error) if error.kind() == ErrorKind::Conflict => {
            let message = "a run with this id exists; use another id, or roll back the transaction and start the run to get its handle";
            Err(Error::new(ErrorKind::AlreadyExists, message).with_run(&run).with_source(error))
        }
        Err(error) if error.kind() == ErrorKind::Invalid => {
            let message = format!("{}; `within` received a `{given}`", error.message());
            Err(Error::new(ErrorKind::Invalid, message).with_run(&run).with_source(error))
        }
        Err(error) => Err(error.with_run(&run)),
    }
}

/// A run that was started within a transaction. Use this value after the transaction has committed.
pub struct TransactionalStart<S: State> {
    shared: Arc<RuntimeInner>,
    graph: Graph<S>,
    run: RunKey,
    facts: RunFacts,
    policy: CheckpointPolicy,
}

impl<S: State> TransactionalStart<S> {
    /// Returns the key of the run.
    pub fn run(&self) -> &RunKey {
        &self.run
    }

    /// Makes this process drive the run. Call it after the transaction has committed. If the run is already active in another process, the returned
    /// handle watches it.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the transaction has not committed. Also returns the errors of
    /// [`Runtime::resume`](crate::runtime::Runtime::resume).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after the first poll, the request completes even if the caller drops the future.
    pub async fn drive(self) -> Result<RunHandle<S>> {
        finish(self.drive_started()).await
    }

    async fn drive_started(self) -> Result<RunHandle<S>> {
        let Self { shared, graph, run, facts, policy } = self;
        if shared.store.head(&run).await?.is_none() {
            let message =
                "cannot find the run; follow it after the commit of the transaction that started it";
            return Err(Error::new(ErrorKind::NotFound, message).with_run(&run));
        }
        let Some(permit) = shared.admission.try_admit(&run, &facts) else {
            return Ok(line_up(&shared, &graph, &run, &facts, policy));
        };
        match resume(&shared, &graph, &run, policy, &ClaimOptions::default(), None, Some(permit)).await {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::WrongStatus) => {
                Ok(RunHandle::new(shared, graph, run, OutcomeSource::Elsewhere).of_start(&facts))
            }
            resumed => resumed,
        }
    }
}

impl<S: State> fmt::Debug for TransactionalStart<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("run", &self.run).finish_non_exhaustive()
    }
}
