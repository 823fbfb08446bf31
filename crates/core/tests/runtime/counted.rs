//! A store that counts the bytes that are read from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::record::Record;
use ferrata_core::store::{
    At, Capabilities, CheckpointStore, HeaderRange, Headers, MemoryStore, Page, Paged, PruneCut, Removed,
    RunAppend, RunHead, RunQuery,
};
use ferrata_core::{ExecutorId, HeadRef, Result, RunKey};

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) bytes: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) inner: MemoryStore,
    pub(crate) reads: Arc<Reads>,
}

impl Counted {
    fn read(&self, loaded: Option<Vec<Record>>) -> Option<Vec<Record>> {
        let bytes = loaded.iter().flatten().map(|record| record.body.len() as u64 + 100).sum();
        self.reads.bytes.fetch_add(bytes, Ordering::Relaxed);
        loaded
    }
}

#[async_trait]
impl CheckpointStore for Counted {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    async fn setup(&self) -> Result<()> {
        self.inner.setup().await
    }
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.inner.append(batch).await
    }
    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        Ok(self.read(self.inner.load(run, at).await?))
    }
    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        Ok(self.read(self.inner.load_since(run, known).await?))
    }
    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.inner.headers(run, range).await
    }
    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.inner.head(run).await
    }
    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.inner.runs(query, page).await
    }
    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.inner.prune(run, cut).await
    }
    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.inner.purge(run, expected).await
    }
    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        self.inner.heartbeat(executor, ttl).await
    }
}
