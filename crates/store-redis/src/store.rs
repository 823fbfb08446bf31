//! The store: its shared state, and the contract's methods. Each method's implementation has its own file.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ferrata_store::{
    At, Capabilities, CheckpointStore, Clock, ExecutorId, HeadRef, HeaderRange, Headers, Notices, Page,
    Paged, PruneCut, Record, Relay, RelayTexts, Removed, Result, RunAppend, RunHead, RunKey, RunQuery,
    SystemClock, check_texts,
};
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use crate::config::{MAX_KEEP, RedisOptions, target};
use crate::entry::LayoutMarker;
use crate::error::{RedisCallEffect, RedisStoreError};
use crate::index::Index;
use crate::known_heads::RedisKnownHeads;
use crate::layout::{CLUSTER_SHARDS, RedisKeys};
use crate::link::{RedisCall, RedisLink};
use crate::notices::RedisListener;
use crate::persistence::{self, Persistence};
use crate::reply;

/// A store that keeps each run as a list on a Redis server or cluster.
///
/// A clone is cheap and shares the connections. Any number of instances, in any number of processes, may use the same servers and prefix at the
/// same time.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) inner: Arc<RedisInner>,
}

/// The state that the clones of a store share.
pub(crate) struct RedisInner {
    pub(crate) link: Arc<RedisLink>,
    pub(crate) layout: RedisKeys,
    pub(crate) options: RedisOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) known: RedisKnownHeads,
    pub(crate) persistence: OnceLock<Persistence>,
    checked: Mutex<SettingsCheck>,
    durable: OnceLock<bool>,
    index: OnceCell<Index>,
    pub(crate) hearing: RedisListener,
}

impl RedisStore {
    /// Creates a store on the servers of a URL. The URL overrides `options`. The store connects at the first use.
    ///
    /// - `redis://[user:password@]host[:port][/database]`: one server. `rediss://` is the same with TLS.
    /// - `redis-cluster://host:port,host:port`: a cluster, through any of its nodes. `rediss-cluster://` is the same with TLS.
    ///
    /// Options follow after `?`: `prefix=`, `replicas=`, `keep_secs=`, `response_timeout_ms=`; see [`RedisOptions`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) if the URL does not have this form, or if options contradict each other. The error
    /// shows no part of the URL.
    pub fn from_url(url: &str, options: RedisOptions) -> Result<Self> {
        let target = target(url, options)?;
        let options = target.options.clone();
        // The system clock only measures pauses between attempts. Every time that is stored or compared is the server's.
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let link = Arc::new(RedisLink::new(target, Arc::clone(&clock))?);
        let inner = RedisInner {
            layout: RedisKeys::new(options.prefix.clone()),
            hearing: RedisListener::new(),
            known: RedisKnownHeads::default(),
            persistence: OnceLock::new(),
            checked: Mutex::default(),
            durable: OnceLock::new(),
            index: OnceCell::new(),
            link,
            options,
            clock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the failures that an acknowledged record on the server survives, as `setup` found them. Returns `None` before `setup`.
    pub fn persistence(&self) -> Option<Persistence> {
        self.inner.persistence.get().copied()
    }
}

impl RedisInner {
    /// Returns the index after reading its number of shards. The first instance with a prefix fixes that number.
    pub(crate) async fn index(&self) -> Result<&Index, RedisStoreError> {
        let init = async || {
            let key = self.layout.marker();
            let look = RedisCall::plain(&["GET"], key.clone());
            // Read first, so that a user with only read permission succeeds.
            let found = match self.link.call(look.clone()).await? {
                Value::Nil => {
                    let shards = if self.link.is_cluster() { CLUSTER_SHARDS } else { 1 };
                    let ours = RedisCall::plain(&["SET"], key).arg(LayoutMarker::write(shards)).arg("NX");
                    self.link.call(ours).await?;
                    // The stored value applies, whoever wrote it.
                    self.link.call(look).await?
                }
                found => found,
            };
            let LayoutMarker { shards, .. } = LayoutMarker::read(&reply::text(found)?)?;
            Ok(Index::new(self.layout.clone(), shards, self.options.stale_after))
        };
        self.index.get_or_try_init(init).await
    }

    async fn heartbeat(
        self: &Arc<Self>,
        executor: &ExecutorId,
        ttl: Duration,
    ) -> Result<(), RedisStoreError> {
        let key = self.layout.executor(executor);
        let call = if ttl.is_zero() {
            RedisCall::plain(&["DEL"], key)
        } else {
            // Round up, so that a heartbeat never ends too early.
            let ms = ttl.min(MAX_KEEP).as_nanos().div_ceil(1_000_000);
            RedisCall::plain(&["SET"], key)
                .arg(Bytes::from_static(b"1"))
                .arg(Bytes::from_static(b"PX"))
                .arg(ms.to_string())
        };
        if !ttl.is_zero()
            && let Some(what) = self.check_again()
        {
            return Err(RedisStoreError::Unfit { what });
        }
        self.link.call(call).await.map(drop)
    }

    /// Returns why the servers are unfit, if this is known. Checks them again with each heartbeat: a process whose heartbeat the server may evict
    /// must stop with an error.
    fn check_again(self: &Arc<Self>) -> Option<String> {
        let now = self.clock.monotonic();
        let mut checked = self.checked();
        let is_due = checked.began.is_none_or(|began| now.saturating_sub(began) >= CHECK_EVERY);
        if is_due && let Ok(runtime) = Handle::try_current() {
            checked.began = Some(now);
            let inner = Arc::clone(self);
            runtime.spawn(async move {
                match inner.objection().await {
                    Ok(objection) => inner.checked().objection = objection,
                    Err(fault) => tracing::debug!(%fault, "could not read the settings of the servers"),
                }
            });
        }
        checked.objection.clone()
    }

    /// Records that the servers were fit at this time.
    pub(crate) fn record_fit(&self, began: Duration) {
        *self.checked() = SettingsCheck { began: Some(began), objection: None };
    }

    fn checked(&self) -> MutexGuard<'_, SettingsCheck> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn objection(&self) -> Result<Option<String>, RedisStoreError> {
        for node in self.link.primaries().await? {
            if let Some(objection) = persistence::reread_settings(&node).await? {
                return Ok(Some(format!("{} {objection}", node.name)));
            }
        }
        Ok(None)
    }
}

/// The servers' last answer about settings that an operator may change at run time.
#[derive(Debug, Default)]
struct SettingsCheck {
    /// The time of the check.
    began: Option<Duration>,
    objection: Option<String>,
}

/// How long the servers' last answer remains valid. Each heartbeat checks it.
const CHECK_EVERY: Duration = Duration::from_secs(4);

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("servers", &self.inner.link.seeds())
            .field("is_cluster", &self.inner.link.is_cluster())
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for RedisStore {
    /// The reported durability never changes. It is the result of [`setup`](CheckpointStore::setup). If `capabilities` is called before `setup`,
    /// the store reports that it is not durable.
    fn capabilities(&self) -> Capabilities {
        let found = || self.persistence().is_some_and(Persistence::is_durable);
        Capabilities::new("redis")
            .with_shared(true)
            .with_durable(*self.inner.durable.get_or_init(found))
            .with_notices(self.inner.options.notices)
    }

    async fn setup(&self) -> Result<()> {
        let setup = self.inner.setup().await;
        setup.map_err(|fault| fault.into_error("store.setup", RedisCallEffect::None))
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.inner.append(batch).await
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.inner.load(run, at).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.inner.load_since(run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.inner.headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let head = self.inner.run_head(run).await;
        head.map_err(|fault| fault.of_run("store.head", run, RedisCallEffect::None))
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.inner.runs(query, &page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.inner.prune(run, &cut).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.inner.purge(run, expected).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let beat = self.inner.heartbeat(executor, ttl).await;
        beat.map_err(|fault| fault.into_error("store.heartbeat", RedisCallEffect::Written))
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let alive = self.inner.alive(&[*executor]).await;
        alive
            .map(|alive| alive.get(executor) == Some(&true))
            .map_err(|fault| fault.into_error("store.is_alive", RedisCallEffect::None))
    }

    fn transactions(&self) -> Option<&dyn ferrata_store::Transactions> {
        None
    }

    fn part(&self, _run: &RunKey) -> u64 {
        0
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        Some(self)
    }

    fn relay(&self) -> Option<&dyn Relay> {
        self.inner.options.notices.then_some(self)
    }

    fn subscribe(&self) -> Option<Notices> {
        self.inner
            .options
            .notices
            .then(|| self.inner.hearing.subscribe(&self.inner.link, &self.inner.layout))?
    }
}

#[async_trait]
impl Relay for RedisStore {
    async fn publish(&self, texts: Vec<String>) -> Result<()> {
        check_texts(&texts)?;
        let RedisInner { link, layout, .. } = &*self.inner;
        link.publish_texts(&layout.said_channel(), &texts)
            .await
            .map_err(|fault| fault.into_error("store.say", RedisCallEffect::None))
    }

    async fn listen(&self) -> Result<RelayTexts> {
        self.inner.hearing.subscribe_texts(&self.inner.link, &self.inner.layout).await
    }
}

#[async_trait]
impl ferrata_store::Resealing for RedisStore {
    /// Reseals one record after the other.
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        self.inner.reseal(run, records).await
    }
}
