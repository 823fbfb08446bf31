//! Several processes on one store and one clock, with a fault layer between each process and the store.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{Node, NodeContext, NodeResult};
use ferrata_core::record::{Record, RecordKind};
use ferrata_core::runtime::{Runtime, RuntimeBuilder};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{
    At, CheckpointStore, HeaderRange, Headers, MemoryStore, Notices, Page, Paged, PruneCut, Removed,
    RunAppend, RunHead, RunQuery, delegate,
};
use ferrata_core::{Clock, Error, ErrorKind, ExecutorId, HeadRef, Result, RunKey, Timestamp};
use ferrata_testing::ManualClock;
use tokio::sync::Notify;

use crate::support::bounds::Watch;

/// The fate of heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Heart {
    #[default]
    Beats,
    /// They are refused.
    Fails,
    /// They succeed, and the reply is lost.
    IsNotHeard,
    /// They never get an answer.
    Hangs,
    /// They succeed, and the reply comes three seconds later.
    IsSlow,
    /// They succeed half a second after they were sent.
    IsLate,
    /// The next one uses a connection that broke while it was idle. Later ones succeed.
    StumblesOnce,
}

type Hook = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The connection of one process to the store.
#[derive(Default)]
pub(crate) struct Line {
    inner: MemoryStore,
    watch: Arc<Watch>,
    heart: Mutex<Heart>,
    /// Runs once before an append of a record of this kind.
    before: Mutex<Option<(RecordKind, Hook)>>,
    /// Runs once after an append of a record of this kind, before its reply.
    after: Mutex<Option<(RecordKind, Hook)>>,
    /// Runs once after the given number of further loads, before the reply of the last of them.
    after_loads: Mutex<Option<(u32, Hook)>>,
    /// Duration of a read of a head.
    heads_take: Mutex<Duration>,
    /// Whether all calls except heartbeats fail.
    is_down: Mutex<bool>,
    /// Whether the store has no runs, like a folder that is not mounted.
    is_empty: Mutex<bool>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    clock: Arc<ManualClock>,
    /// The late heartbeats, each with its validity.
    pub(crate) beats: Mutex<Vec<Duration>>,
    /// Number of slow heartbeats that were answered.
    pub(crate) heard: AtomicU32,
    /// Number of appends.
    pub(crate) appends: AtomicU32,
    /// Whether the store sends no notices to this process.
    is_silent: bool,
}

impl Line {
    pub(crate) fn set_heart(&self, heart: Heart) {
        *self.heart.lock().unwrap() = heart;
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        *self.is_down.lock().unwrap() = is_down;
    }

    pub(crate) fn set_empty(&self, is_empty: bool) {
        *self.is_empty.lock().unwrap() = is_empty;
    }

    fn is_empty(&self) -> bool {
        *self.is_empty.lock().unwrap()
    }

    pub(crate) fn set_heads_take(&self, time: Duration) {
        *self.heads_take.lock().unwrap() = time;
    }

    pub(crate) fn before(&self, kind: RecordKind, hook: impl Future<Output = ()> + Send + 'static) {
        *self.before.lock().unwrap() = Some((kind, Box::pin(hook)));
    }

    pub(crate) fn after(&self, kind: RecordKind, hook: impl Future<Output = ()> + Send + 'static) {
        *self.after.lock().unwrap() = Some((kind, Box::pin(hook)));
    }

    pub(crate) fn after_loads(&self, loads: u32, hook: impl Future<Output = ()> + Send + 'static) {
        *self.after_loads.lock().unwrap() = Some((loads, Box::pin(hook)));
    }

    /// Returns the number of calls by method, and resets it.
    pub(crate) fn take_calls(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn call(&self, name: &'static str) -> Result<()> {
        *self.calls.lock().unwrap().entry(name).or_default() += 1;
        let message = "the test's store is down; try again";
        if *self.is_down.lock().unwrap() { Err(Error::new(ErrorKind::Unavailable, message)) } else { Ok(()) }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl CheckpointStore for Line {
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        if let Err(error) = self.call("append") {
            return batch.iter().map(|_| Err(error.clone())).collect();
        }
        self.appends.fetch_add(u32::try_from(batch.len()).unwrap(), Ordering::SeqCst);
        let kinds: Vec<_> = batch.iter().flat_map(|run| run.records.iter().map(|r| r.header.kind)).collect();
        let asked = batch.clone();
        let due = |hook: &Mutex<Option<(RecordKind, Hook)>>| {
            hook.lock().unwrap().take_if(|(kind, _)| kinds.contains(kind)).map(|(_, hook)| hook)
        };
        if let Some(hook) = due(&self.before) {
            hook.await;
        }
        let results = self.inner.append(batch).await;
        asked.iter().zip(&results).for_each(|(append, result)| self.watch.appended(append, result));
        if let Some(hook) = due(&self.after) {
            hook.await;
        }
        results
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.call("load")?;
        if self.is_empty() {
            return Ok(None);
        }
        let loaded = self.inner.load(run, at).await;
        let hook = {
            let mut after = self.after_loads.lock().unwrap();
            after.take_if(|(left, _)| {
                *left -= 1;
                *left == 0
            })
        };
        if let Some((_, hook)) = hook {
            hook.await;
        }
        loaded
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.call("load")?;
        self.inner.load_since(run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.call("history")?;
        self.inner.headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.call("head")?;
        let takes = *self.heads_take.lock().unwrap();
        if !takes.is_zero() {
            self.clock.sleep(takes).await;
        }
        if self.is_empty() {
            return Ok(None);
        }
        self.inner.head(run).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.call("runs")?;
        let mut listed = self.inner.runs(query, page).await?;
        if self.is_empty() {
            listed.items.clear();
        }
        Ok(listed)
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.call("prune")?;
        self.inner.prune(run, cut).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.call("purge")?;
        self.inner.purge(run, expected).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        *self.calls.lock().unwrap().entry("heartbeat").or_default() += 1;
        let heart = *self.heart.lock().unwrap();
        match heart {
            Heart::Beats => self.inner.heartbeat(executor, ttl).await,
            Heart::Fails => Err(Error::new(ErrorKind::Unavailable, "the test's store refuses heartbeats")),
            Heart::IsNotHeard => {
                self.inner.heartbeat(executor, ttl).await?;
                Err(Error::new(ErrorKind::Indeterminate, "the reply of a heartbeat was lost by the test"))
            }
            Heart::Hangs => std::future::pending().await,
            Heart::StumblesOnce => {
                self.set_heart(Heart::Beats);
                Err(Error::new(ErrorKind::Indeterminate, "the test's connection had broken"))
            }
            Heart::IsLate => {
                self.clock.sleep(Duration::from_millis(500)).await;
                self.beats.lock().unwrap().push(ttl);
                self.inner.heartbeat(executor, ttl).await
            }
            Heart::IsSlow => {
                self.inner.heartbeat(executor, ttl).await?;
                self.clock.sleep(Duration::from_secs(3)).await;
                self.heard.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        }
    }

    fn subscribe(&self) -> Option<Notices> {
        if self.is_silent { None } else { self.inner.subscribe() }
    }

    delegate! { |this| this.inner; capabilities, setup }
}

pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) clock: Arc<ManualClock>,
    /// The number of records per unit of work.
    watch: Arc<Watch>,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
        Self { store: MemoryStore::with_clock(Arc::clone(&clock) as _), clock, watch: Arc::default() }
    }

    /// Creates a process with its own connection to the store.
    pub(crate) async fn process(
        &self,
        set: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> (Arc<Line>, Runtime) {
        self.connected(Line::default(), set).await
    }

    /// Creates a process without notices, so that its own writes cause no notices either.
    pub(crate) async fn process_without_notices(&self) -> (Arc<Line>, Runtime) {
        self.connected(Line { is_silent: true, ..Line::default() }, |b| b).await
    }

    async fn connected(
        &self,
        line: Line,
        set: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> (Arc<Line>, Runtime) {
        let (inner, watch, clock) = (self.store.clone(), Arc::clone(&self.watch), Arc::clone(&self.clock));
        let line = Arc::new(Line { inner, watch, clock, ..line });
        let builder = Runtime::builder_with(Arc::clone(&line) as _).clock(Arc::clone(&self.clock) as _);
        (line, set(builder).build().await.unwrap())
    }

    /// Advances the clock in steps of 50 ms until `done` is ready, with many yields in each step.
    pub(crate) async fn pass<T>(&self, done: impl Future<Output = T>) -> T {
        let mut done = std::pin::pin!(done);
        for turn in 0..400_000 {
            tokio::select! {
                biased;
                result = &mut done => {
                    self.watch.hold(&self.store, self.clock.now()).await;
                    return result;
                }
                () = tokio::task::yield_now() => {
                    if turn % 20 == 0 {
                        self.clock.advance(Duration::from_millis(50));
                    }
                }
            }
        }
        panic!("the future is not ready after 1,000 s of the test's clock");
    }

    /// Advances the clock by `time`.
    pub(crate) async fn pass_for(&self, time: Duration) {
        let clock = Arc::clone(&self.clock);
        self.pass(async move { clock.sleep(time).await }).await;
    }
}

/// Runs a future concurrently with the test.
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    #[expect(clippy::disallowed_methods, reason = "each test waits for what it spawns")]
    tokio::spawn(future)
}

pub(crate) fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

/// A node that waits for a signal in each attempt. It counts its starts, ends and aborts.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    pub(crate) began: Arc<AtomicU32>,
    pub(crate) ended: Arc<AtomicU32>,
    pub(crate) dropped: Arc<AtomicU32>,
    pub(crate) word: Arc<Notify>,
}

struct Guard(Arc<AtomicU32>, bool);

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl Node<Context> for Gate {
    async fn run(&self, _cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
        self.began.fetch_add(1, Ordering::SeqCst);
        let mut guard = Guard(Arc::clone(&self.dropped), false);
        self.word.notified().await;
        guard.1 = true;
        self.ended.fetch_add(1, Ordering::SeqCst);
        Ok(().into())
    }
}

impl Gate {
    /// Creates a workflow of this one node.
    pub(crate) fn graph(&self, name: &str, effect: Effect) -> Graph<Context> {
        Graph::<Context>::builder(name)
            .add("gate", self.clone())
            .effect(effect)
            .entry("gate")
            .build()
            .unwrap()
    }

    /// Waits until the node has started `times` times.
    pub(crate) async fn until_began(&self, times: u32) {
        while self.began.load(Ordering::SeqCst) < times {
            tokio::task::yield_now().await;
        }
    }
}
