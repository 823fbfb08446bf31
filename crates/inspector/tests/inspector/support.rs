//! Helpers of the inspector tests: a store that counts its calls, its runs, and requests without a socket.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use ferrata_core::ask::Ask;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeError;
use ferrata_core::record::Record;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::{
    At, Capabilities, CheckpointStore, HeaderRange, Headers, MemoryStore, Notices, Page, Paged, PruneCut,
    Removed, RunAppend, RunHead, RunQuery,
};
use ferrata_core::{Clock, ExecutorId, HeadRef, Result, RunKey, SystemClock, Timestamp};
use ferrata_inspector::Inspector;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

/// Tokio's clock, which a test can pause.
#[derive(Debug)]
struct TokioClock(Timestamp, Instant);

impl Default for TokioClock {
    fn default() -> Self {
        Self(SystemClock::new().now(), Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.unix_ms() + i64::try_from(self.monotonic().as_millis()).unwrap())
    }
    fn monotonic(&self) -> Duration {
        self.1.elapsed()
    }
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        SystemClock::new().sleep(duration)
    }
}

/// Number of reads and writes of a store.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reads: AtomicUsize,
    pub(crate) writes: AtomicUsize,
}

/// Events just before the next listings of runs, one event per listing.
#[derive(Clone, Default)]
pub(crate) struct Meanwhile(Arc<Mutex<VecDeque<Happening>>>);

type Happening = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Meanwhile {
    pub(crate) fn add(&self, happening: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().unwrap().push_back(Box::pin(happening));
    }
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meanwhile").field(&self.0.lock().unwrap().len()).finish()
    }
}

/// A store that counts its calls.
#[derive(Clone, Debug)]
pub(crate) struct Counting {
    inner: MemoryStore,
    /// Whether the store sends notices.
    tells: bool,
    pub(crate) counts: Arc<Counts>,
    pub(crate) meanwhile: Meanwhile,
}

impl Counting {
    fn read(&self) -> &MemoryStore {
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        &self.inner
    }
    fn write(&self) -> &MemoryStore {
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        &self.inner
    }
}

#[async_trait]
impl CheckpointStore for Counting {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.notices &= self.tells;
        capabilities
    }
    async fn setup(&self) -> Result<()> {
        self.write().setup().await
    }
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.write().append(batch).await
    }
    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.read().load(run, at).await
    }
    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.read().load_since(run, known).await
    }
    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.read().headers(run, range).await
    }
    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.read().head(run).await
    }
    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let happening = self.meanwhile.0.lock().unwrap().pop_front();
        if let Some(happening) = happening {
            happening.await;
        }
        self.read().runs(query, page).await
    }
    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.write().prune(run, cut).await
    }
    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.write().purge(run, expected).await
    }
    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        self.write().heartbeat(executor, ttl).await
    }
    fn part(&self, run: &RunKey) -> u64 {
        self.inner.part(run)
    }
    fn subscribe(&self) -> Option<Notices> {
        self.inner.subscribe().filter(|_| self.tells)
    }
}

/// A store with runs, and an operator's runtime over it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) counting: Counting,
    pub(crate) operator: Runtime,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::telling(true)
    }

    /// A world whose store sends notices, or sends none.
    pub(crate) fn telling(tells: bool) -> Self {
        let store = MemoryStore::new();
        let (counts, meanwhile) = (Arc::default(), Meanwhile::default());
        let counting = Counting { inner: store.clone(), tells, counts, meanwhile };
        let operator = Runtime::builder(counting.clone()).clock(Arc::new(TokioClock::default())).operator();
        Self { store, counting, operator }
    }

    /// A world with `pay-1` completed, `pay-2` waiting and `pay-3` failed, and `pay-1` of the tenant `other`.
    pub(crate) async fn with_runs() -> Self {
        Self::new().filled().await
    }

    /// Adds these runs to the world.
    pub(crate) async fn filled(self) -> Self {
        let world = self;
        let driver = world.driver().await;
        for (id, amount) in [("pay-1", 5), ("pay-2", 500), ("pay-3", 13)] {
            world.start(&driver, id, amount).await;
        }
        let other = driver.start(&pay(), input(7)).id("pay-1").tenant("other").await.unwrap();
        other.wait().await.unwrap();
        world
    }

    pub(crate) async fn driver(&self) -> Runtime {
        Runtime::builder(self.store.clone()).build().await.unwrap()
    }

    pub(crate) async fn start(&self, driver: &Runtime, id: &str, amount: u32) {
        let run = driver.start(&pay(), input(amount)).id(id).label("team", "red").user("ann").await.unwrap();
        run.wait().await.unwrap();
    }

    /// Copies a run `count` times as `{id}-{number}`, each a second after the one before.
    pub(crate) async fn copy(&self, id: &str, count: usize) {
        let source = RunKey::try_from(id).unwrap();
        let facts = self.store.head(&source).await.unwrap().unwrap().facts;
        let records = self.store.load(&source, At::Latest).await.unwrap().unwrap();
        for first in (0..count).step_by(500) {
            let copies = (first..count.min(first + 500)).map(|number| {
                let mut facts = facts.clone();
                facts.created = Timestamp::from_unix_ms(facts.created.unix_ms() + 1_000 * number as i64);
                let run = RunKey::try_from(format!("{id}-{number}").as_str()).unwrap();
                RunAppend { run, expected: None, records: records.clone(), facts: Some(facts) }
            });
            for appended in self.store.append(copies.collect()).await {
                appended.unwrap();
            }
        }
    }

    /// The inspector with default settings.
    pub(crate) fn router(&self) -> Router {
        ferrata_inspector::router(self.operator.clone())
    }

    pub(crate) fn inspector(&self) -> Inspector {
        Inspector::new(self.operator.clone())
    }

    pub(crate) fn reads(&self) -> usize {
        self.counting.counts.reads.load(Ordering::Relaxed)
    }

    pub(crate) fn writes(&self) -> usize {
        self.counting.counts.writes.load(Ordering::Relaxed)
    }
}

/// The input of a run.
pub(crate) fn input(amount: u32) -> Context {
    let mut state = Context::new();
    state.set("amount", amount).unwrap();
    state.set("card", json!({ "number": "4111-1111", "name": "Ann" })).unwrap();
    state
}

/// Pays small amounts, asks about large ones, and fails at 13.
pub(crate) fn pay() -> Graph<Context> {
    Graph::<Context>::builder("pay")
        .node("check", async |_cx, s| Ok(s))
        .gate("approve", |_s: &Context| Ask::<bool>::new("Pay this much?"), |s, yes| s.set("approved", yes))
        .node("send", async |_cx, mut s| {
            if s.get::<u32>("amount")? == Some(13) {
                return Err(NodeError::from("the bank is closed").fatal());
            }
            s.set("receipt", "r-1")?;
            Ok(s)
        })
        .node("refuse", async |_cx, s| Ok(s))
        .entry("check")
        .route("check", ["approve", "send"], |s, _cx| {
            if s.get::<u32>("amount").ok().flatten() > Some(100) { "approve" } else { "send" }
        })
        .route("approve", ["send", "refuse"], |s, _cx| {
            if s.get::<bool>("approved").ok().flatten() == Some(true) { "send" } else { "refuse" }
        })
        .build()
        .unwrap()
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: axum::http::HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Sends a request like a client of the same machine. `headers` replace its own headers.
pub(crate) async fn send(
    router: &Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    if headers.iter().all(|(name, _)| *name != "host") {
        request = request.header("host", "localhost:7707");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = router.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    Reply { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

pub(crate) async fn get(router: &Router, path: &str) -> Reply {
    send(router, "GET", path, &[], Body::empty()).await
}

/// Reads an existing path.
pub(crate) async fn read(router: &Router, path: &str) -> Value {
    let reply = get(router, path).await;
    assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
    reply.json()
}

/// Performs an action with a body.
pub(crate) async fn act(router: &Router, path: &str, body: Value) -> Reply {
    let path = format!("/api/v1/runs/{path}");
    send(router, "POST", &path, &[("content-type", "application/json")], body.to_string()).await
}

/// All paths of reads, for a world with runs.
pub(crate) const READS: [&str; 20] = [
    "/",
    "/api/v1",
    "/api/v1/runs",
    "/api/v1/runs?q=pay&status=failed,completed&label=team%3Dred&limit=2",
    "/api/v1/briefs?run=default/pay-2&run=default/pay-3",
    "/api/v1/questions",
    "/api/v1/fleet",
    "/api/v1/schedules",
    "/api/v1/runs?roots=true",
    "/api/v1/openapi.json",
    "/api/v1/runs/default/pay-3",
    "/api/v1/runs/default/pay-3?at=1",
    "/api/v1/runs/default/pay-3/family",
    "/api/v1/runs/default/pay-3/records",
    "/api/v1/runs/default/pay-3/repeats?at=0&start_at=send",
    "/api/v1/runs/default/pay-3/state",
    "/api/v1/runs/default/pay-3/state?path=/card/name&at=check@1",
    "/api/v1/runs/default/pay-1/diff?from=0",
    "/api/v1/runs/default/pay-1/diff?from=latest&of=default/pay-3",
    "/api/v1/runs/default/pay-3/post-mortem",
];
