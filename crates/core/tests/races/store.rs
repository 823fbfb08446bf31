//! A store whose every call gives way to others before and after, as one over a network does.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::record::Record;
use ferrata_core::store::{
    AnyTransaction, At, Capabilities, CheckpointStore, FaultStore, HeaderRange, Headers, LedgerStore,
    Notices, Page, Paged, PruneCut, Removed, RunAppend, RunHead, RunQuery, Transactions,
};
use ferrata_core::{ExecutorId, HeadRef, Result, RunKey};

use crate::support::dice::Dice;

/// How often a call gives way, at most, before it is done and again before its reply.
const TURNS: u64 = 6;

pub(crate) struct Yielding {
    pub(crate) inner: FaultStore<LedgerStore>,
    pub(crate) dice: Arc<Dice>,
    /// Whether it tells of changes; otherwise the runtime polls.
    pub(crate) tells: bool,
}

impl fmt::Debug for Yielding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yielding").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Yielding {
    async fn slowly<T>(&self, done: impl Future<Output = T>) -> T {
        self.dice.give_way(TURNS).await;
        let done = done.await;
        self.dice.give_way(TURNS).await;
        done
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for Yielding {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn setup(&self) -> Result<()> {
        self.inner.setup().await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.slowly(self.inner.append(batch)).await
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.slowly(self.inner.load(run, at)).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.slowly(self.inner.load_since(run, known)).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.slowly(self.inner.headers(run, range)).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.slowly(self.inner.head(run)).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.slowly(self.inner.runs(query, page)).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.slowly(self.inner.prune(run, cut)).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.slowly(self.inner.purge(run, expected)).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        self.inner.heartbeat(executor, ttl).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn part(&self, run: &RunKey) -> u64 {
        self.inner.part(run)
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        None
    }

    fn relay(&self) -> Option<&dyn ferrata_core::store::Relay> {
        None
    }

    fn subscribe(&self) -> Option<Notices> {
        if self.tells { self.inner.subscribe() } else { None }
    }
}

#[async_trait]
impl Transactions for Yielding {
    async fn begin(&self, run: &RunKey) -> Result<AnyTransaction> {
        self.slowly(self.inner.begin(run)).await
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef> {
        self.slowly(self.inner.commit(transaction, append)).await
    }

    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef> {
        self.inner.append_in(connection, append).await
    }

    fn gave_way(&self, error: &(dyn StdError + 'static)) -> bool {
        self.inner.gave_way(error)
    }
}
