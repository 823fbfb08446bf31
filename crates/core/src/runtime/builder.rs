//! The options of a runtime.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::committer::{Committer, RetryBudget};
use super::fleet::admission::RunLimits;
use super::fleet::background_tasks;
use super::fleet::heartbeat::{HeartbeatMonitor, HeartbeatResult};
use super::fleet::sweeper::{SweeperOptions, keep_swept};
use super::fleet::tags::ProcessTags;
use super::outbox::{OutboxRegistry, OutboxSink, RETRY, SinkRoute};
use super::runtime::Runtime;
use super::shared::{AppServices, RuntimeInner, RuntimeLimits, RuntimeRole};
use super::tasks::spawn;
use crate::ask::Answerer;
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::graph::RetryPolicy;
use crate::id::{ExecutorId, IdSource, RandomIds};
use crate::node::Resources;
use crate::past::retention::RetentionPolicy;
use crate::store::{CheckpointStore, TimeLimitedStore};
use crate::telemetry::{Telemetry, TraceContext};

/// The default limit of a record's body, in bytes.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// The maximum number of pending records of a run. It bounds the overlap with work and the pure work that a crash repeats.
const MAX_PENDING: usize = 1_024;

/// The default limit of waiting messages in a run.
const MAX_WAITING_MESSAGES: usize = 1_000;

/// The number of events by which a subscriber may lag before it misses some.
const EVENTS: usize = 4_096;

/// The shortest heartbeat TTL. A busy machine pauses for less than this without being dead.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// The default time limit of one store call. It exceeds the stores' own limits, because their errors say more.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

/// The shortest time limit of a store call.
const SHORTEST_CALL: Duration = Duration::from_millis(1);

/// The longest TTL: stores write down the expiry, and some cannot represent a later time.
const LONGEST_TTL: Duration = Duration::from_secs(365 * 86_400);

/// The shortest polling interval. Without a pause, polling would leave no time for other work.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

/// Configures and builds a [`Runtime`].
pub struct RuntimeBuilder {
    store: Arc<dyn CheckpointStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    resources: Resources,
    limits: RuntimeLimits,
    answerer: Option<Arc<dyn Answerer>>,
    retention: Option<RetentionPolicy>,
    pub(super) sweeper: Option<SweeperOptions>,
    run_limits: RunLimits,
    routes: BTreeMap<String, SinkRoute>,
    budget: RetryBudget,
    store_timeout: Duration,
    by_node: bool,
    trace: Option<Arc<dyn TraceContext>>,
    tags: ProcessTags,
}

impl RuntimeBuilder {
    pub(super) fn new(store: Arc<dyn CheckpointStore>) -> Self {
        Self {
            store,
            clock: Arc::new(SystemClock::new()),
            ids: Arc::new(RandomIds::new()),
            resources: Resources::default(),
            limits: RuntimeLimits {
                max_body: MAX_BODY,
                max_pending: MAX_PENDING,
                heartbeat_ttl: Duration::from_secs(15),
                poll: Duration::from_millis(500),
                cancel_grace: Duration::from_secs(5),
                release_after: Duration::from_secs(60),
                max_depth: 16,
                max_children: 10_000,
                max_children_of_run: 100_000,
                sweep: Duration::from_secs(1),
                max_recovered: 10_000,
                recovered_at_once: 128,
                recovered_bytes: 64 * 1024 * 1024,
                max_claims: 10,
                max_waiting_messages: MAX_WAITING_MESSAGES,
            },
            answerer: None,
            retention: None,
            sweeper: None,
            run_limits: RunLimits::new(),
            routes: BTreeMap::new(),
            budget: RetryBudget { attempts: 8, first_delay: Duration::from_millis(50) },
            store_timeout: STORE_TIMEOUT,
            by_node: false,
            trace: None,
            tags: ProcessTags::default(),
        }
    }

    /// Provides a value to all nodes, by its type.
    #[must_use]
    pub fn resource<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.resources.insert(value);
        self
    }

    /// Registers `sink` as the sink for the outbox messages of a topic, which nodes [send out](crate::state::Update::send_out). A message has
    /// 25 attempts, with delays from one second, doubled each time, up to five minutes. After the last one it is set aside for an operator.
    ///
    /// The sink receives a message after its record is durable: at least once, under the same [key](crate::runtime::OutboxMessage::key), and in
    /// order for each run and topic. A process without a sink for a topic leaves its messages to other processes. A process that
    /// [serves](crate::runtime::Runtime::serve) a workflow also delivers the messages of runs that are idle or ended in another process.
    #[must_use]
    pub fn sink(self, topic: impl Into<String>, sink: impl OutboxSink) -> Self {
        self.sink_with(topic, sink, RETRY)
    }

    /// Registers a sink like [`sink`](Self::sink), with this retry policy. A message is set aside after its last attempt.
    #[must_use]
    pub fn sink_with(mut self, topic: impl Into<String>, sink: impl OutboxSink, retry: RetryPolicy) -> Self {
        self.routes.insert(topic.into(), SinkRoute { sink: Arc::new(sink), retry });
        self
    }

    /// Sets the clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the source of ids, for tests.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.ids = ids;
        self
    }

    /// Sets the maximum size of a record's body, in bytes. The default is 8 MiB. A larger limit risks records that stores and networks cannot
    /// handle; a smaller one rejects states and updates earlier.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.limits.max_body = bytes;
        self
    }

    /// Sets the maximum number of messages that wait in a run. The default is 1,000, the minimum 1. Beyond it, [`Runtime::send`] fails until a
    /// node takes a message. A higher limit means larger bases and slower sends to an idle run, because a send reads all waiting messages. A
    /// lower limit slows fast senders down earlier.
    ///
    /// The sending runtime's setting applies. It does not affect messages that wait already.
    #[must_use]
    pub fn max_waiting_messages(mut self, messages: usize) -> Self {
        self.limits.max_waiting_messages = messages.max(1);
        self
    }

    /// Sets how long this process counts as alive after each heartbeat. The default is 15 seconds, the minimum one second, the maximum a year.
    /// With a longer TTL, runs wait longer after a crash; with a shorter one, a busy machine looks dead.
    ///
    /// The process sends a heartbeat after a third of the TTL. When three quarters have passed since it sent the last successful heartbeat, it
    /// assumes that other processes may claim its runs, and stops them. Their handles fail with [`Fenced`](crate::ErrorKind::Fenced), and their
    /// records stay.
    #[must_use]
    pub fn heartbeat_ttl(mut self, ttl: Duration) -> Self {
        self.limits.heartbeat_ttl = ttl.clamp(SHORTEST_TTL, LONGEST_TTL);
        self
    }

    /// Sets how often an active run checks for signals of other processes. The default is half a second, the minimum a millisecond. If the store
    /// sends notices, a run checks on each notice, and otherwise ten times less often.
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.limits.poll = interval.max(SHORTEST_INTERVAL);
        self
    }

    /// Sets how long nodes have to stop after a cancellation. The default is 5 seconds.
    #[must_use]
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.limits.cancel_grace = grace;
        self
    }

    /// Sets the longest remaining wait for which a run that waits only for a time stays in memory. The default is 60 seconds. With a longer
    /// wait, the process releases the run, and a process resumes it when the time comes.
    #[must_use]
    pub fn release_after(mut self, time: Duration) -> Self {
        self.limits.release_after = time;
        self
    }

    /// Sets the maximum depth of children below the first run. The default is 16. A workflow that starts itself forever fails there.
    #[must_use]
    pub fn max_depth(mut self, levels: u32) -> Self {
        self.limits.max_depth = levels;
        self
    }

    /// Sets the maximum number of children of one activation. The default is 10,000.
    #[must_use]
    pub fn max_children(mut self, children: usize) -> Self {
        self.limits.max_children = children;
        self
    }

    /// Sets how many runs the nodes of one run may start in total, restarted children and detached runs included. The default is 100,000. A loop
    /// that starts children forever fails there.
    ///
    /// The log of the run holds the count, so it survives restarts, and a fork continues it.
    #[must_use]
    pub fn max_children_of_run(mut self, runs: u64) -> Self {
        self.limits.max_children_of_run = runs;
        self
    }

    /// Prunes the logs of active runs in this process as they grow. A [`sweeper`](Self::sweeper) or [`Runtime::sweep`] removes whole runs.
    ///
    /// The runtime checks a log once per as many records as the policy keeps: at least 16, and 1,000 with `keep_for` or `keep_bytes` alone. So a log
    /// holds about twice what the policy keeps. A chain of `Pure` nodes may write all its records before the first check ends.
    #[must_use]
    pub fn retention(mut self, policy: RetentionPolicy) -> Self {
        self.retention = Some(policy);
        self
    }

    /// Sets how often the runtime looks for runs of [served](Runtime::serve) workflows without a driver. The default is one second, the minimum
    /// a millisecond. Each interval varies by up to a quarter.
    #[must_use]
    pub fn sweep_interval(mut self, interval: Duration) -> Self {
        self.limits.sweep = interval.max(SHORTEST_INTERVAL);
        self
    }

    /// Sets the number of active runs from which on this process recovers no more. The default is 10,000.
    #[must_use]
    pub fn max_recovered(mut self, runs: usize) -> Self {
        self.limits.max_recovered = runs;
        self
    }

    /// Sets how many runs the runtime claims at the same time during recovery, and how many bytes of their logs it may read then. The defaults
    /// are 128 and 64 MiB. Higher limits recover faster, at the cost of memory and the store's other users. The runtime reads a log above the
    /// limit alone.
    #[must_use]
    pub fn recover_at_once(mut self, runs: u32, bytes: u64) -> Self {
        (self.limits.recovered_at_once, self.limits.recovered_bytes) = (runs.clamp(1, 10_000), bytes);
        self
    }

    /// Limits the active runs in this process. The default is no limit.
    #[must_use]
    pub fn run_limits(mut self, limits: RunLimits) -> Self {
        self.run_limits = limits;
        self
    }

    /// Sets how often recovery may claim a run that makes no progress, for example because it crashes each process. The default is 10 times.
    /// After that the run is paused, for people to inspect.
    #[must_use]
    pub fn max_claims(mut self, claims: u32) -> Self {
        self.limits.max_claims = claims.max(1);
        self
    }

    /// Registers an answerer for the questions of active runs in this process, in place of people.
    #[must_use]
    pub fn answerer(mut self, answerer: impl Answerer) -> Self {
        self.answerer = Some(Arc::new(answerer));
        self
    }

    /// Sets how often the runtime makes a failed append before the run stops with the store's error, and the first delay, which doubles each
    /// time. The default is 8 times from 50 ms, about 6 seconds in all.
    #[must_use]
    pub fn store_retries(mut self, attempts: u32, first_delay: Duration) -> Self {
        self.budget = RetryBudget { attempts: attempts.max(1), first_delay };
        self
    }

    /// Sets the time limit of one store call. The default is 60 seconds, the minimum a millisecond. Calls that set up, prune or purge have ten
    /// times as long.
    ///
    /// After the limit, a read fails with [`Unavailable`](crate::ErrorKind::Unavailable). An append then has an unknown outcome
    /// ([`Indeterminate`](crate::ErrorKind::Indeterminate)), and the runtime repeats it as [`store_retries`](Self::store_retries) sets, which
    /// resolves the outcome. With a longer limit, a run stands still longer when the store goes silent; with a shorter one, a slow store looks
    /// silent. Most stores have shorter limits of their own; this limit applies to every store.
    #[must_use]
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout.max(SHORTEST_CALL);
        self
    }

    /// Joins the spans of a run into one trace across processes. A start records the position of the caller's current span, and every driver
    /// continues from there. By default no trace crosses processes.
    #[must_use]
    pub fn trace_context(mut self, context: impl TraceContext) -> Self {
        self.trace = Some(Arc::new(context));
        self
    }

    /// Declares tags of this process, such as `gpu` or `eu`. Only processes with all tags that a run requires claim it. Further calls add tags.
    #[must_use]
    pub fn tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags.extend(tags);
        self
    }

    /// Labels the metrics of activations and attempts with the node, as `ferrata.node.name`. By default nodes share one series.
    ///
    /// A recorder keeps each series forever, so use this with few and fixed node names. Each node has some twenty series, and a histogram has
    /// one for each bucket. At most 500 nodes of each workflow have their own series.
    #[must_use]
    pub fn metrics_by_node(mut self) -> Self {
        self.by_node = true;
        self
    }

    /// Prepares the store, sends the first heartbeat and returns the runtime.
    ///
    /// # Errors
    ///
    /// The errors of [`CheckpointStore::setup`] and [`CheckpointStore::heartbeat`]; [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the
    /// limits of a [`sweeper`](Self::sweeper) are out of range.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: build again.
    pub async fn build(self) -> Result<Runtime> {
        let mut this = self.bounded();
        let sweeper = this.sweeper.take();
        sweeper.as_ref().map_or(Ok(()), SweeperOptions::check)?;
        this.store.setup().await?;
        let shared = this.shared(RuntimeRole::Drives);
        // The TTL counts from before the call.
        shared.store.heartbeat(&shared.executor, shared.limits.heartbeat_ttl).await?;
        shared.telemetry().beat(HeartbeatResult::Alive, || shared.clock.now());
        spawn(background_tasks::beat(Arc::downgrade(&shared)));
        spawn(background_tasks::pass_notices(Arc::downgrade(&shared)));
        if shared.admission.is_limited() {
            spawn(background_tasks::admit(&shared));
        }
        if let Some(sweeper) = sweeper {
            spawn(keep_swept(Arc::downgrade(&shared), sweeper));
        }
        Ok(Runtime::new(shared))
    }

    /// Builds a runtime for an operator's tool. It reads and controls the runs of any application through their store, but drives none. It
    /// neither prepares the store nor counts as alive, so reading a store changes nothing in it.
    ///
    /// [`start`](Runtime::start), [`resume`](Runtime::resume), [`ForkRequest::drive`](super::ForkRequest::drive) and [`serve`](Runtime::serve)
    /// fail with [`ErrorKind::Invalid`](crate::ErrorKind::Invalid). The current driver of a run, or the next one, carries out its signals.
    /// [`edit`](Runtime::edit) and [`fork`](Runtime::fork) need no application code.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::RunKey;
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::store::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tool = Runtime::builder(MemoryStore::new()).operator();
    /// let error = tool.cancel(&RunKey::try_from("doc-7")?, "no longer wanted").by("ann").await.unwrap_err();
    /// assert_eq!(error.kind(), ferrata_core::ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn operator(self) -> Runtime {
        Runtime::new(self.bounded().shared(RuntimeRole::Operates))
    }

    /// Adds the time limit to every store call.
    fn bounded(mut self) -> Self {
        self.store = Arc::new(TimeLimitedStore::new(self.store, Arc::clone(&self.clock), self.store_timeout));
        self
    }

    fn shared(self, role: RuntimeRole) -> Arc<RuntimeInner> {
        let Self {
            store,
            clock,
            ids,
            resources,
            limits,
            answerer,
            retention,
            run_limits,
            routes,
            budget,
            by_node,
            trace,
            tags,
            ..
        } = self;
        let executor = ExecutorId::from_uuid(ids.next(clock.now()));
        let heartbeat =
            Arc::new(HeartbeatMonitor::new(Arc::clone(&clock), limits.heartbeat_ttl, clock.monotonic()));
        let committer =
            Committer::new(Arc::clone(&store), Arc::clone(&clock), Arc::clone(&heartbeat), budget);
        let telemetry = Telemetry::new(by_node);
        let (resources, post) = (Arc::new(resources), OutboxRegistry::new(routes));
        let extensions = super::extension::Extensions::default();
        let services =
            AppServices { resources, answerer, retention, telemetry, trace, post, tags, extensions };
        Arc::new(RuntimeInner::new(
            role, store, committer, clock, ids, executor, heartbeat, limits, services, run_limits, EVENTS,
        ))
    }
}

impl fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("store", &self.store)
            .field("resources", &self.resources)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
