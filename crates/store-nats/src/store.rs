//! The store: its shared state, and the contract's methods. Each method's implementation has its own file.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{
    At, Capabilities, CheckpointStore, Clock, ExecutorId, HeadRef, HeaderRange, Headers, Notices, Page,
    Paged, PruneCut, Record, Relay, RelayTexts, Removed, Result, RunAppend, RunHead, RunKey, RunQuery,
    SystemClock, check_texts,
};

use crate::append::NatsKnownHeads;
use crate::config::{NatsOptions, target};
use crate::error::NatsCallEffect;
use crate::heartbeats::ServerTime;
use crate::layout::NatsNames;
use crate::link::NatsLink;
use crate::list::Mirror;
use crate::message::OutgoingMessage;
use crate::notices::NatsListener;

/// A store that keeps each run as the messages of one subject in a stream of NATS JetStream.
///
/// A clone is cheap and shares the connection. Any number of instances, in any number of processes, may use the same servers and namespace at the
/// same time.
#[derive(Clone)]
pub struct NatsStore {
    pub(crate) inner: Arc<NatsInner>,
}

/// The state that the clones of a store share.
pub(crate) struct NatsInner {
    pub(crate) link: Arc<NatsLink>,
    pub(crate) layout: NatsNames,
    pub(crate) options: NatsOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) known: NatsKnownHeads,
    pub(crate) time: ServerTime,
    pub(crate) generation: Mutex<Option<Arc<str>>>,
    /// Whether several servers store the logs. If so, a server may be behind the others.
    pub(crate) is_replicated: AtomicBool,
    /// The copy of all runs for listings. Locked while a listing updates and reads it.
    pub(crate) mirror: tokio::sync::Mutex<Mirror>,
    pub(crate) hearing: NatsListener,
}

impl NatsStore {
    /// Creates a store on the servers of a URL. The URL overrides `options`. The store connects at the first use.
    ///
    /// A URL has the form `nats://[user:password@]host[:port][,host:port]`, or `tls://` for TLS. A token may replace user and password. Options
    /// follow after `?`: `namespace=`, `replicas=`, `response_timeout_ms=`; see [`NatsOptions`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) if the URL does not have this form, or if an option is invalid. The error shows no
    /// part of the URL.
    pub fn from_url(url: &str, options: NatsOptions) -> Result<Self> {
        let target = target(url, options)?;
        let options = target.options.clone();
        // The system clock only measures pauses and timeouts. Every time that is stored or compared is the servers'.
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let inner = NatsInner {
            layout: NatsNames::new(&options.namespace),
            link: Arc::new(NatsLink::new(target, Arc::clone(&clock))),
            options,
            clock,
            known: NatsKnownHeads::default(),
            time: ServerTime::default(),
            generation: Mutex::default(),
            is_replicated: AtomicBool::default(),
            mirror: tokio::sync::Mutex::default(),
            hearing: NatsListener::default(),
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
        setup.map_err(|fault| fault.into_error("store.setup", NatsCallEffect::None))
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.inner.append(batch).await
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.inner.load(run, at).await
    }

    /// Always loads from the newest base on: the number of a record does not give the position of its message.
    async fn load_since(&self, run: &RunKey, _known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.load(run, At::Latest).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.inner.headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let head = self.inner.run_head(run).await;
        head.map_err(|fault| fault.of_run("store.head", run, NatsCallEffect::None))
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
        beat.map_err(|fault| fault.into_error("store.heartbeat", NatsCallEffect::Written))
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let alive = self.inner.is_alive(executor).await;
        alive.map_err(|fault| fault.into_error("store.is_alive", NatsCallEffect::None))
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
        let NatsInner { options, hearing, link, layout, .. } = &*self.inner;
        options.notices.then(|| hearing.subscribe(link, layout))?
    }
}

#[async_trait]
impl Relay for NatsStore {
    async fn publish(&self, texts: Vec<String>) -> Result<()> {
        check_texts(&texts)?;
        let NatsInner { hearing, link, layout, .. } = &*self.inner;
        let said = async {
            for text in &texts {
                link.send_unacknowledged(layout.texts_subject(), OutgoingMessage::plain(text.clone()))
                    .await?;
            }
            // Earlier messages of other processes have arrived by now, too.
            link.sync_with_server(&layout.logs()).await
        };
        said.await.map_err(|fault| fault.into_error("store.say", NatsCallEffect::None))?;
        texts.iter().for_each(|text| hearing.send_local_text(text));
        Ok(())
    }

    async fn listen(&self) -> Result<RelayTexts> {
        self.inner.hearing.subscribe_texts(&self.inner.link, &self.inner.layout).await
    }
}
