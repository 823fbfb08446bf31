//! The store: its shared state, and the contract's methods, with each implementation in its own file.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{
    At, Capabilities, CheckpointStore, Clock, ExecutorId, HeadRef, HeaderRange, Headers, Notices, Page,
    Paged, PruneCut, Record, Relay, Removed, Result, RunAppend, RunHead, RunKey, RunQuery, SystemClock,
    Texts, check_said,
};

use crate::append::KnownHeads;
use crate::beats::ServerTime;
use crate::config::{NatsOptions, target};
use crate::error::Doubt;
use crate::layout::Layout;
use crate::link::Link;
use crate::list::Mirror;
use crate::message::OutgoingMessage;
use crate::notices::NoticeListener;

/// Keeps each run as the messages of one subject in a stream of NATS JetStream.
///
/// A clone is cheap and shares the connection. Any number of instances in any number of processes may use the same servers and namespace at once.
#[derive(Clone)]
pub struct NatsStore {
    pub(crate) inner: Arc<Inner>,
}

/// The state that the clones of a store share.
pub(crate) struct Inner {
    pub(crate) link: Arc<Link>,
    pub(crate) layout: Layout,
    pub(crate) options: NatsOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) known: KnownHeads,
    pub(crate) time: ServerTime,
    pub(crate) life: Mutex<Option<Arc<str>>>,
    /// Whether several servers store the logs, so that one may lag.
    pub(crate) is_replicated: AtomicBool,
    /// Locked while a listing updates and reads it.
    pub(crate) mirror: tokio::sync::Mutex<Mirror>,
    pub(crate) hearing: NoticeListener,
}

impl NatsStore {
    /// Creates a store on the servers of a URL; the URL overrides `options`. Sends nothing before the first use.
    ///
    /// `nats://[user:password@]host[:port][,host:port]`, or `tls://` with TLS; a token may replace user and password. Options follow after `?`:
    /// `namespace=`, `replicas=`, `response_timeout_ms=`; see [`NatsOptions`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) if it is not such a URL, without showing any of it, and for options that
    /// cannot be.
    pub fn from_url(url: &str, options: NatsOptions) -> Result<Self> {
        let target = target(url, options)?;
        let options = target.options.clone();
        // The machine's clock measures pauses and timeouts; every time that is stored or compared is the servers'.
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let inner = Inner {
            layout: Layout::new(&options.namespace),
            link: Arc::new(Link::new(target, Arc::clone(&clock))),
            options,
            clock,
            known: KnownHeads::default(),
            time: ServerTime::default(),
            life: Mutex::default(),
            is_replicated: AtomicBool::default(),
            mirror: tokio::sync::Mutex::default(),
            hearing: NoticeListener::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for NatsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsStore")
            .field("servers", &self.inner.link.servers())
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for NatsStore {
    fn capabilities(&self) -> Capabilities {
        // `setup` refuses a stream that is not stored in files.
        Capabilities::new("nats")
            .with_shared(true)
            .with_durable(true)
            .with_notices(self.inner.options.notices)
    }

    async fn setup(&self) -> Result<()> {
        let setup = self.inner.setup().await;
        setup.map_err(|fault| fault.into_error("store.setup", Doubt::None))
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.inner.append(batch).await
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.inner.load(run, at).await
    }

    /// All of it each time: the place of a message in the stream does not follow from the number of a record.
    async fn load_since(&self, run: &RunKey, _known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.load(run, At::Latest).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.inner.headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let head = self.inner.run_head(run).await;
        head.map_err(|fault| fault.of_run("store.head", run, Doubt::None))
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.inner.runs(query, &page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        Box::pin(self.inner.prune(run, &cut)).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.inner.purge(run, expected).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let beat = self.inner.heartbeat(executor, ttl).await;
        beat.map_err(|fault| fault.into_error("store.heartbeat", Doubt::Written))
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let alive = self.inner.is_alive(executor).await;
        alive.map_err(|fault| fault.into_error("store.is_alive", Doubt::None))
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
        let Inner { options, hearing, link, layout, .. } = &*self.inner;
        options.notices.then(|| hearing.subscribe(link, layout))?
    }
}

#[async_trait]
impl Relay for NatsStore {
    async fn say(&self, texts: Vec<String>) -> Result<()> {
        check_said(&texts)?;
        let Inner { hearing, link, layout, .. } = &*self.inner;
        let said = async {
            for text in &texts {
                link.tell(layout.said(), OutgoingMessage::plain(text.clone())).await?;
            }
            // Earlier messages of others have arrived by now, too.
            link.settle(&layout.logs()).await
        };
        said.await.map_err(|fault| fault.into_error("store.say", Doubt::None))?;
        texts.iter().for_each(|text| hearing.say(text));
        Ok(())
    }

    async fn hear(&self) -> Result<Texts> {
        self.inner.hearing.hear(&self.inner.link, &self.inner.layout).await
    }
}
