//! A wrapper that ends every call: with the store's answer, or when its time is up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{At, Page, Paged, RunHead, RunQuery};
use super::{Capabilities, CheckpointStore, HeaderRange, Headers, Notices, PruneCut, Removed, RunAppend};
use crate::clock::{Clock, within};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ExecutorId, HeadRef, RunKey};
use crate::record::Record;

/// How many times as long a call may take that goes over all of a run or of the store.
const LONG: u32 = 10;

/// A store whose calls end within a bound, whatever becomes of the store.
///
/// A store that never answers would stop a run for good while its process counts as alive, so that no other process takes the run over. What is
/// given up here is dropped; what the contract says of a dropped future is what the error says.
pub(crate) struct Bounded {
    store: Arc<dyn CheckpointStore>,
    clock: Arc<dyn Clock>,
    bound: Duration,
}

impl Bounded {
    pub(crate) fn new(store: Arc<dyn CheckpointStore>, clock: Arc<dyn Clock>, bound: Duration) -> Self {
        Self { store, clock, bound }
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        kind: ErrorKind,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let answer = within(&*self.clock, self.bound, call).await;
        answer.unwrap_or_else(|| Err(unanswered(operation, kind, self.bound)))
    }

    async fn long<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let bound = self.bound.saturating_mul(LONG);
        let answer = within(&*self.clock, bound, call).await;
        answer.unwrap_or_else(|| Err(unanswered(operation, ErrorKind::Unavailable, bound)))
    }
}

fn unanswered(operation: &'static str, kind: ErrorKind, bound: Duration) -> Error {
    let message = format!(
        "the store did not answer within {bound:?}; look at the way to it, or raise `RuntimeBuilder::store_timeout`"
    );
    Error::new(kind, message).with_operation(operation)
}

impl fmt::Debug for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for Bounded {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn setup(&self) -> Result<()> {
        self.long("store.setup", self.store.setup()).await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let runs: Vec<RunKey> = batch.iter().map(|append| append.run.clone()).collect();
        let lost = |run: &RunKey| {
            Err(unanswered("store.append", ErrorKind::Indeterminate, self.bound).with_run(run))
        };
        let answer = within(&*self.clock, self.bound, self.store.append(batch)).await;
        answer.unwrap_or_else(|| runs.iter().map(lost).collect())
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let call = self.call("store.load", ErrorKind::Unavailable, self.store.load(run, at));
        call.await.map_err(|error| error.with_run(run))
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let call = self.call("store.headers", ErrorKind::Unavailable, self.store.headers(run, range));
        call.await.map_err(|error| error.with_run(run))
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let call = self.call("store.head", ErrorKind::Unavailable, self.store.head(run));
        call.await.map_err(|error| error.with_run(run))
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.call("store.runs", ErrorKind::Unavailable, self.store.runs(query, page)).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.long("store.prune", self.store.prune(run, cut)).await.map_err(|error| error.with_run(run))
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        let purge = self.long("store.purge", self.store.purge(run, expected));
        purge.await.map_err(|error| error.with_run(run))
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let call = self.store.heartbeat(executor, ttl);
        self.call("store.heartbeat", ErrorKind::Indeterminate, call).await
    }

    fn part(&self, run: &RunKey) -> u64 {
        self.store.part(run)
    }

    fn subscribe(&self) -> Option<Notices> {
        self.store.subscribe()
    }
}
