//! A store that notes who sent a heartbeat, so that a place can be left as if no process ever had.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ferrata::record::Record;
use ferrata::store::{
    At, Capabilities, HeaderRange, Headers, Notices, Page, Paged, PruneCut, Removed, RunAppend, RunHead,
    RunQuery,
};
use ferrata::{CheckpointStore, ExecutorId, HeadRef, Result, RunKey};

/// Who sent heartbeats.
pub(super) type Executors = Arc<Mutex<BTreeSet<ExecutorId>>>;

/// A store that notes who sent a heartbeat.
#[derive(Debug)]
pub(super) struct Noted {
    /// The store itself.
    pub(super) store: Arc<dyn CheckpointStore>,
    /// Who sent one.
    pub(super) executors: Executors,
}

#[deny(clippy::missing_trait_methods, reason = "what is not passed on would be tried on another store")]
#[async_trait]
impl CheckpointStore for Noted {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn setup(&self) -> Result<()> {
        self.store.setup().await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.store.append(batch).await
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.store.load(run, at).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.store.load_since(run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.store.headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.store.head(run).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.store.runs(query, page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.store.prune(run, cut).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.store.purge(run, expected).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        self.executors.lock().unwrap_or_else(PoisonError::into_inner).insert(*executor);
        self.store.heartbeat(executor, ttl).await
    }

    fn transactions(&self) -> Option<&dyn ferrata::store::Transactions> {
        None
    }

    fn part(&self, run: &RunKey) -> u64 {
        self.store.part(run)
    }

    fn resealing(&self) -> Option<&dyn ferrata_core::store::Resealing> {
        self.store.resealing()
    }

    fn relay(&self) -> Option<&dyn ferrata_core::store::Relay> {
        self.store.relay()
    }

    fn subscribe(&self) -> Option<Notices> {
        self.store.subscribe()
    }
}
