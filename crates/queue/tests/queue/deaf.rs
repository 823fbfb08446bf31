//! A store that sends no notices, counts what it is asked, and of which the part with the queues can be away.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use ferrata_core::record::Record;
use ferrata_core::runtime::Runtime;
use ferrata_core::store::{
    At, CheckpointStore, HeaderRange, Headers, MemoryStore, Page, Paged, PruneCut, Removed, RunAppend,
    RunHead, RunQuery, delegate,
};
use ferrata_core::testing::World;
use ferrata_core::{Error, ErrorKind, HeadRef, Result, RunKey};

use crate::support::{MOMENT, WHILE};

/// The store of a world, as one process hears nothing of others.
#[derive(Clone, Debug)]
pub(crate) struct Deaf {
    inner: MemoryStore,
    asked: Arc<Asked>,
}

/// How often a store was asked, heartbeats aside, and what it does not take now.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    /// How many bytes of bodies were read.
    pub(crate) bytes: AtomicU64,
    /// Whether queues cannot be written, though other runs can: as where they are in a shard that is away.
    pub(crate) is_away: AtomicBool,
}

impl Deaf {
    /// Starts a process that finds out by looking what others do.
    pub(crate) async fn process(world: &World, beside: &Runtime) -> (Runtime, Arc<Asked>) {
        let deaf = Self { inner: world.store().clone(), asked: Arc::default() };
        let asked = Arc::clone(&deaf.asked);
        let builder = Runtime::builder(deaf).clock(Arc::clone(beside.clock())).heartbeat_ttl(WHILE);
        let builder = builder.sweep_interval(10 * MOMENT).poll_interval(10 * MOMENT).release_after(WHILE);
        (world.pass(builder.build()).await.unwrap(), asked)
    }

    fn read(&self) -> &MemoryStore {
        self.asked.reads.fetch_add(1, Ordering::Relaxed);
        &self.inner
    }

    fn loaded(&self, records: Option<Vec<Record>>) -> Option<Vec<Record>> {
        let bytes = records.iter().flatten().map(|record| record.body.len() as u64).sum();
        self.asked.bytes.fetch_add(bytes, Ordering::Relaxed);
        records
    }

    fn written(&self) -> &MemoryStore {
        self.asked.writes.fetch_add(1, Ordering::Relaxed);
        &self.inner
    }
}

#[async_trait]
impl CheckpointStore for Deaf {
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let is_away = self.asked.is_away.load(Ordering::Relaxed);
        let mut replies = Vec::with_capacity(batch.len());
        for append in batch {
            if is_away && append.run.run.as_str().starts_with("queue:") {
                replies.push(Err(Error::new(ErrorKind::Unavailable, "the shard is away")));
            } else {
                replies.extend(self.written().append(vec![append]).await);
            }
        }
        replies
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        Ok(self.loaded(self.read().load(run, at).await?))
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        Ok(self.loaded(self.read().load_since(run, known).await?))
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.read().headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.read().head(run).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.read().runs(query, page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.written().prune(run, cut).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.written().purge(run, expected).await
    }

    delegate! { |this| this.inner; capabilities, setup, heartbeat }
}
