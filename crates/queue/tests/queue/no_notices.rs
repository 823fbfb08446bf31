//! A store without notices that counts its calls, with outages of the queues and delayed answers.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use async_trait::async_trait;
use ferrata_core::record::Record;
use ferrata_core::runtime::Runtime;
use ferrata_core::store::{
    At, CheckpointStore, HeaderRange, Headers, MemoryStore, Page, Paged, PruneCut, Removed, RunAppend,
    RunHead, RunQuery, delegate,
};
use ferrata_core::{Error, ErrorKind, HeadRef, Result, RunKey};
use ferrata_testing::World;
use tokio::sync::Notify;

use crate::support::{MOMENT, WHILE};

/// The store of a world for one process, without notices.
#[derive(Clone, Debug)]
pub(crate) struct Deaf {
    inner: MemoryStore,
    asked: Arc<Asked>,
}

/// Number of calls of the store except heartbeats, and its planned faults.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    /// Number of bytes of bodies that were read.
    pub(crate) bytes: AtomicU64,
    /// Whether queues are not writable while other runs are, as in a shard that is down.
    pub(crate) is_away: AtomicBool,
    pub(crate) late: Late,
}

/// A slow reply about the run `again`.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// The number of the slow reply, counted from now on, or 0 for none. Only replies that show the run's end count.
    nth: AtomicU32,
    is_on_its_way: AtomicBool,
    arrives: Notify,
}

impl Late {
    /// Delays the nth reply from now on.
    pub(crate) fn is_nth(&self, nth: u32) {
        self.is_on_its_way.store(false, Ordering::Relaxed);
        self.nth.store(nth, Ordering::Relaxed);
    }

    /// Waits until the reply is delayed.
    pub(crate) async fn is_given(&self, world: &World) {
        for _ in 0..1_000 {
            if self.is_on_its_way.load(Ordering::Relaxed) {
                return;
            }
            world.pass_for(MOMENT / 10).await;
        }
        panic!("no process reads the run");
    }

    pub(crate) fn arrives(&self) {
        self.arrives.notify_one();
    }

    async fn answered(&self, run: &RunKey, has_ended: bool) {
        if !has_ended || run.run.as_str() != "again" || self.nth.load(Ordering::Relaxed) == 0 {
            return;
        }
        if self.nth.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.is_on_its_way.store(true, Ordering::Relaxed);
            self.arrives.notified().await;
        }
    }
}

impl Deaf {
    /// Starts a process that sees changes of others only by polling.
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
        let records = self.read().load(run, at).await?;
        let has_ended =
            records.as_ref().and_then(|all| all.last()).is_some_and(|last| last.header.status.is_finished());
        self.asked.late.answered(run, has_ended).await;
        Ok(self.loaded(records))
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        Ok(self.loaded(self.read().load_since(run, known).await?))
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.read().headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let head = self.read().head(run).await?;
        self.asked.late.answered(run, head.as_ref().is_some_and(|head| head.status.is_finished())).await;
        Ok(head)
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

    delegate! { |this| this.inner; capabilities, setup, heartbeat, is_alive }
}
