//! A wrapper around a store that ends every call: with the store's answer, or with an error after a timeout.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tracing::Instrument as _;

use super::{AnyTransaction, At, Page, Paged, RunHead, RunQuery, Transactions};
use super::{CheckpointStore, HeaderRange, Headers, PruneCut, Removed, RunAppend, delegate};
use crate::clock::{Clock, within};
use crate::compact::small_vec::SmallVec;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ExecutorId, HeadRef, RunKey};
use crate::record::Record;
use crate::telemetry::{Operation, StoreMeter, spans};

/// The factor by which the timeout is longer for calls that process a whole run or store.
const LONG: u32 = 10;

/// A store whose calls end within a time limit, even if the store hangs.
///
/// If a store never answered, a run would stop forever: its process would still count as alive, so no other process would claim the run. At the
/// timeout, the call is dropped. Its error is the one that the contract of stores defines for a dropped call.
pub(crate) struct TimeLimitedStore {
    store: Arc<dyn CheckpointStore>,
    clock: Arc<dyn Clock>,
    bound: Duration,
    name: &'static str,
    meter: StoreMeter,
}

impl TimeLimitedStore {
    pub(crate) fn new(store: Arc<dyn CheckpointStore>, clock: Arc<dyn Clock>, bound: Duration) -> Self {
        let name = store.capabilities().name;
        Self { store, clock, bound, name, meter: StoreMeter::new(name) }
    }

    async fn call<T>(
        &self,
        operation: Operation,
        kind: ErrorKind,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.ended_within(self.bound, operation, kind, call).await
    }

    async fn long<T>(&self, operation: Operation, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let bound = self.bound.saturating_mul(LONG);
        self.ended_within(bound, operation, ErrorKind::Unavailable, call).await
    }

    async fn ended_within<T>(
        &self,
        bound: Duration,
        operation: Operation,
        kind: ErrorKind,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let measured = self.meter.begin(operation, &*self.clock);
        let answer = match spans::store(operation, self.name) {
            None => within(&*self.clock, bound, call).await,
            Some(span) => Box::pin(within(&*self.clock, bound, call).instrument(span)).await,
        };
        let answer = answer.unwrap_or_else(|| Err(unanswered(operation, kind, bound)));
        measured.end(answer.as_ref().err().map(Error::kind).filter(is_failure));
        answer
    }
}

/// Returns whether an error means that the store failed. A conflict, for example, is the answer of a healthy store.
fn is_failure(kind: &ErrorKind) -> bool {
    *kind != ErrorKind::Conflict
}

fn unanswered(operation: Operation, kind: ErrorKind, bound: Duration) -> Error {
    let message = format!(
        "the store did not answer within {bound:?}; check the connection, or raise `RuntimeBuilder::store_timeout`"
    );
    Error::new(kind, message).with_operation(operation.name())
}

impl fmt::Debug for TimeLimitedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for TimeLimitedStore {
    async fn setup(&self) -> Result<()> {
        self.long(Operation::Setup, self.store.setup()).await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let runs: SmallVec<RunKey> = batch.iter().map(|append| append.run.clone()).collect();
        let lost = |run: &RunKey| {
            Err(unanswered(Operation::Append, ErrorKind::Indeterminate, self.bound).with_run(run))
        };
        let weights = StoreMeter::weigh(&batch);
        let measured = self.meter.begin(Operation::Append, &*self.clock);
        let call = self.store.append(batch);
        let answer = match spans::store(Operation::Append, self.name) {
            None => within(&*self.clock, self.bound, call).await,
            Some(span) => Box::pin(within(&*self.clock, self.bound, call).instrument(span)).await,
        };
        let results = answer.unwrap_or_else(|| runs.iter().map(lost).collect());
        let mut failed = results.iter().filter_map(|result| result.as_ref().err().map(Error::kind));
        measured.end(failed.find(is_failure));
        self.meter.appended(&weights, &results);
        results
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let call = self.call(Operation::Load, ErrorKind::Unavailable, self.store.load(run, at));
        let records = call.await.map_err(|error| error.with_run(run))?;
        self.meter.loaded(records.as_deref().unwrap_or_default());
        Ok(records)
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        let call = self.call(Operation::Load, ErrorKind::Unavailable, self.store.load_since(run, known));
        let records = call.await.map_err(|error| error.with_run(run))?;
        self.meter.loaded(records.as_deref().unwrap_or_default());
        Ok(records)
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let call = self.call(Operation::Headers, ErrorKind::Unavailable, self.store.headers(run, range));
        call.await.map_err(|error| error.with_run(run))
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let call = self.call(Operation::Head, ErrorKind::Unavailable, self.store.head(run));
        call.await.map_err(|error| error.with_run(run))
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.call(Operation::Runs, ErrorKind::Unavailable, self.store.runs(query, page)).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let prune = self.long(Operation::Prune, self.store.prune(run, cut));
        let removed = prune.await.map_err(|error| error.with_run(run))?;
        self.meter.removed(Operation::Prune, removed);
        Ok(removed)
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        let purge = self.long(Operation::Purge, self.store.purge(run, expected));
        let removed = purge.await.map_err(|error| error.with_run(run))?;
        self.meter.removed(Operation::Purge, removed);
        Ok(removed)
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let call = self.store.heartbeat(executor, ttl);
        self.call(Operation::Heartbeat, ErrorKind::Indeterminate, call).await
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let call = self.store.is_alive(executor);
        self.call(Operation::Head, ErrorKind::Unavailable, call).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        self.store.transactions().is_some().then_some(self)
    }

    /// Returns `None`, because a runtime never writes existing records again in another envelope.
    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        None
    }

    delegate! { |this| this.store; capabilities, part, relay, subscribe }
}

impl TimeLimitedStore {
    fn transactions_inside(&self) -> Result<&dyn Transactions> {
        let missing = || Error::new(ErrorKind::Unsupported, "the store has no transactions");
        self.store.transactions().ok_or_else(missing)
    }
}

#[async_trait]
impl Transactions for TimeLimitedStore {
    async fn begin(&self, run: &RunKey) -> Result<AnyTransaction> {
        let begin = self.transactions_inside()?.begin(run);
        let begun = self.call(Operation::Begin, ErrorKind::Unavailable, begin);
        begun.await.map_err(|error| error.with_run(run))
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef> {
        let run = append.run.clone();
        let weights = StoreMeter::weigh(std::slice::from_ref(&append));
        let commit = self.transactions_inside()?.commit(transaction, append);
        let committed = self.call(Operation::Commit, ErrorKind::Indeterminate, commit);
        let committed = committed.await.map_err(|error| error.with_run(&run));
        self.meter.appended(&weights, std::slice::from_ref(&committed));
        committed
    }

    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef> {
        let weights = StoreMeter::weigh(std::slice::from_ref(&append));
        // The caller rolls back after any error, so the outcome is known.
        let append = self.transactions_inside()?.append_in(connection, append);
        let written = self.call(Operation::Append, ErrorKind::Unavailable, append).await;
        self.meter.appended(&weights, std::slice::from_ref(&written));
        written
    }

    fn is_transient(&self, error: &(dyn StdError + 'static)) -> bool {
        self.store.transactions().is_some_and(|inner| inner.is_transient(error))
    }
}
