//! The options of a runtime.

use crate::kernel::heartbeat::HeartbeatResult;
use crate::kernel::notices::pass_notices;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::fleet::background_tasks;
use super::fleet::sweeper::{SweeperOptions, keep_swept};
use super::runtime::Runtime;
use crate::ask::Answerer;
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::graph::RetryPolicy;
use crate::id::{ExecutorId, IdSource, RandomIds};
use crate::kernel::admission::RunLimits;
use crate::kernel::committer::{Committer, RetryBudget};
use crate::kernel::heartbeat::HeartbeatMonitor;
use crate::kernel::inner::{AppServices, RuntimeInner, RuntimeLimits, RuntimeRole};
use crate::kernel::outbox::OutboxSink;
use crate::kernel::outbox::{OutboxRegistry, RETRY, SinkRoute};
use crate::kernel::resources::Resources;
use crate::kernel::tags::ProcessTags;
use crate::kernel::tasks::spawn;
use crate::past::retention::RetentionPolicy;
use crate::store::{CheckpointStore, TimeLimitedStore};
use crate::telemetry::{Telemetry, TraceContext};

/// The default limit of a record's body, in bytes.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// The maximum number of pending records of a run. It limits how far the nodes of a run can be ahead of durable records, and so how much `Pure` work
/// a crash repeats.
const MAX_PENDING: usize = 1_024;

/// The default limit of waiting messages in a run.
const MAX_WAITING_MESSAGES: usize = 1_000;

/// The number of events that are retained for a slow subscriber. If a subscriber is further behind, it misses events.
const EVENTS: usize = 4_096;

/// The shortest allowed heartbeat TTL. A process on a busy machine may pause for a part of this time without being dead.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// The default time limit of one call of the store. It is longer than the limits of the stores themselves, because the errors of the stores contain
/// more information.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

/// The shortest time limit of a store call.
const SHORTEST_CALL: Duration = Duration::from_millis(1);

/// The longest allowed heartbeat TTL. Stores write the expiry time, and some stores cannot represent a later time.
const LONGEST_TTL: Duration = Duration::from_secs(365 * 86_400);

/// The shortest polling interval. Without a pause, polling would leave no time for other work.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

/// Configures and builds a [`Runtime`].
// Large: the options of a runtime.
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

    /// Provides a value to all nodes. A node gets it by its type, with [`NodeContext::resource`](crate::node::NodeContext::resource).
    #[must_use]
    pub fn resource<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.resources.insert(value);
        self
    }

    /// Limits the number of active runs in this process. By default there is no limit.
    #[must_use]
    pub fn run_limits(mut self, limits: RunLimits) -> Self {
        self.run_limits = limits;
        self
    }

    /// Sets a policy by which this process removes old records of its active runs while their logs grow. To remove whole runs, use a
    /// [`sweeper`](Self::sweeper) or [`Runtime::sweep`].
    ///
    /// If the policy keeps the last `n` records, the runtime checks a log after every `n` records, but not more often than after 16 records. With
    /// only `keep_for` or `keep_bytes`, it checks after every 1,000 records. A log therefore holds at most about twice the records that the policy
    /// keeps. A chain of `Pure` nodes may write all its records before the first check ends.
    #[must_use]
    pub fn retention(mut self, policy: RetentionPolicy) -> Self {
        self.retention = Some(policy);
        self
    }

    /// Registers `sink` to deliver the outbox messages of a topic, which nodes [send out](crate::state::Update::send_out). The runtime tries to
    /// deliver a message at most 25 times. The delay between two attempts starts at one second and doubles up to five minutes. After the last
    /// attempt, the message is set aside for an operator.
    ///
    /// The sink receives a message after the record with the message is durable. It receives each message at least once, with the same
    /// [key](crate::runtime::OutboxMessage::key) each time. The messages of one run and topic arrive in order. If a process has no sink for a topic,
    /// another process that has one delivers the messages of this topic. A process that [serves](crate::runtime::Runtime::serve) a workflow also
    /// delivers the messages of runs that are idle or ended in another process.
    #[must_use]
    pub fn sink(self, topic: impl Into<String>, sink: impl OutboxSink) -> Self {
        self.sink_with(topic, sink, RETRY)
    }

    /// Registers a sink like [`sink`](Self::sink), but with the retry policy `retry`. After the last attempt of the policy, a message is set aside
    /// for an operator.
    #[must_use]
    pub fn sink_with(mut self, topic: impl Into<String>, sink: impl OutboxSink, retry: RetryPolicy) -> Self {
        self.routes.insert(topic.into(), SinkRoute { sink: Arc::new(sink), retry });
        self
    }

    /// Registers an answerer: code that answers the questions of active runs in this process instead of a person.
    #[must_use]
    pub fn answerer(mut self, answerer: impl Answerer) -> Self {
        self.answerer = Some(Arc::new(answerer));
        self
    }

    /// Declares tags of this process, such as `gpu` or `eu`. A process claims a run only if the process has all tags that the run requires. Further
    /// calls add tags.
    #[must_use]
    pub fn tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags.extend(tags);
        self
    }

    /// Sets the grace period: the time that running nodes have to stop after their run is cancelled. The default is 5 seconds.
    #[must_use]
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.limits.cancel_grace = grace;
        self
    }

    /// Sets how long this process counts as alive after each heartbeat. The default is 15 seconds, the minimum one second, the maximum a year. With a
    /// longer TTL, other processes wait longer after a crash before they claim the runs. With a shorter TTL, a busy process may look dead.
    ///
    /// The process sends a heartbeat after a third of the TTL. When three quarters have passed since it sent the last successful heartbeat, it
    /// assumes that other processes may claim its runs, and stops driving these runs. Their handles fail with [`Fenced`](crate::ErrorKind::Fenced).
    /// The records of the runs stay in the store.
    #[must_use]
    pub fn heartbeat_ttl(mut self, ttl: Duration) -> Self {
        self.limits.heartbeat_ttl = ttl.clamp(SHORTEST_TTL, LONGEST_TTL);
        self
    }

    /// Sets the longest timer for which a run stays in memory when it waits only for a time. The default is 60 seconds. If the remaining time is
    /// longer, the process releases the run, and a process that serves the workflow claims it when the time has passed.
    #[must_use]
    pub fn release_after(mut self, time: Duration) -> Self {
        self.limits.release_after = time;
        self
    }

    /// Sets how often an active run checks for signals of other processes. The default is half a second, the minimum a millisecond. If the store
    /// sends notices, a run checks when a notice arrives, and between notices it checks only once in ten intervals.
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.limits.poll = interval.max(SHORTEST_INTERVAL);
        self
    }

    /// Sets how often the runtime looks for runs of [served](Runtime::serve) workflows without a driver. The default is one second, the minimum
    /// a millisecond. Each interval varies by up to a quarter.
    #[must_use]
    pub fn sweep_interval(mut self, interval: Duration) -> Self {
        self.limits.sweep = interval.max(SHORTEST_INTERVAL);
        self
    }

    /// Makes this process sweep the store by a retention policy, repeatedly until the runtime ends. Each sweep removes old records and whole runs,
    /// like [`Runtime::sweep`](super::Runtime::sweep), and covers all runs of the store.
    ///
    /// The first sweep starts within the first interval, at a time that differs between processes. Several processes may sweep the same store, and
    /// each run is removed once. Every sweeping process reads all runs, so choose a long interval if there are many processes, or enable the sweeper
    /// in one process only.
    ///
    /// If a run cannot be processed, the sweep continues with the others, and the next sweep retries it. The metrics `ferrata.sweep.runs` and
    /// `ferrata.sweep.time` report the results.
    ///
    /// [`build`](Self::build) fails with [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the nice ratio of the limits is out of range.
    #[must_use]
    pub fn sweeper(mut self, options: SweeperOptions) -> Self {
        self.sweeper = Some(options);
        self
    }

    /// Sets the time limit of one call of the store. The default is 60 seconds, the minimum a millisecond. For calls that set up the store, prune or
    /// purge, the limit is ten times as long.
    ///
    /// A read that exceeds the limit fails with [`Unavailable`](crate::ErrorKind::Unavailable). An append that exceeds the limit has an unknown
    /// outcome ([`Indeterminate`](crate::ErrorKind::Indeterminate)). The runtime repeats such an append up to the number of
    /// [`store_retries`](Self::store_retries). The repetition shows whether the first append was stored. If the store stops answering, a run waits at
    /// most this time for each call, so a longer limit delays it more. If the limit is too short, calls of a slow store fail. Most stores have
    /// shorter limits of their own. This limit applies to every store.
    #[must_use]
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout.max(SHORTEST_CALL);
        self
    }

    /// Sets how often the runtime tries an append that fails, and the delay after the first failure. The delay doubles with each attempt. After the
    /// last attempt, the run stops with the store's error. By default there are 8 attempts and the first delay is 50 ms, so the run stops after about
    /// 6 seconds.
    #[must_use]
    pub fn store_retries(mut self, attempts: u32, first_delay: Duration) -> Self {
        self.budget = RetryBudget { attempts: attempts.max(1), first_delay };
        self
    }

    /// Sets the maximum size of a record's body, in bytes. The default is 8 MiB. With a larger limit, some records may be too large for stores and
    /// networks. With a smaller limit, the runtime rejects large states and updates earlier.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.limits.max_body = bytes;
        self
    }

    /// Sets the maximum number of messages that wait in a run. The default is 1,000, the minimum 1. When the limit is reached, [`Runtime::send`]
    /// fails until a node takes a message. With a higher limit, records with the full state can be larger, and sends to an idle run can be slower,
    /// because each send reads all waiting messages. With a lower limit, fast senders fail earlier.
    ///
    /// The setting of the runtime that sends the message applies. Messages that already wait are not affected.
    #[must_use]
    pub fn max_waiting_messages(mut self, messages: usize) -> Self {
        self.limits.max_waiting_messages = messages.max(1);
        self
    }

    /// Sets the maximum depth of children, counted from the first run of the tree. The default is 16. The limit stops a workflow that starts itself
    /// as a child without end.
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

    /// Sets how many runs the nodes of one run may start in total, including restarted children and detached runs. The default is 100,000. The limit
    /// stops a loop that starts children without end.
    ///
    /// The count is recorded in the log of the run. It continues after a restart, and a fork continues with the count of its source.
    #[must_use]
    pub fn max_children_of_run(mut self, runs: u64) -> Self {
        self.limits.max_children_of_run = runs;
        self
    }

    /// Sets how often recovery may claim a run that makes no progress, for example because it crashes each process. The default is 10 times. After
    /// the last of these claims, the run is paused, so that a person can inspect it.
    #[must_use]
    pub fn max_claims(mut self, claims: u32) -> Self {
        self.limits.max_claims = claims.max(1);
        self
    }

    /// Sets a limit for recovery: while this process has at least this number of active runs, it claims no further runs that lost their driver. The
    /// default is 10,000.
    #[must_use]
    pub fn max_recovered(mut self, runs: usize) -> Self {
        self.limits.max_recovered = runs;
        self
    }

    /// Sets how many runs the runtime claims at the same time during recovery, and how many bytes of their logs it reads at the same time. The
    /// defaults are 128 runs and 64 MiB. With higher limits, recovery is faster, but it uses more memory and slows down other users of the store. A
    /// log that is larger than the limit is loaded when no other log is being loaded.
    #[must_use]
    pub fn recover_at_once(mut self, runs: u32, bytes: u64) -> Self {
        (self.limits.recovered_at_once, self.limits.recovered_bytes) = (runs.clamp(1, 10_000), bytes);
        self
    }

    /// Joins the tracing spans of a run into one trace, even across processes. A start records the caller's current span, and the spans of every
    /// process that drives the run become its children. By default a trace ends at the process.
    #[must_use]
    pub fn trace_context(mut self, context: impl TraceContext) -> Self {
        self.trace = Some(Arc::new(context));
        self
    }

    /// Adds the label `ferrata.node.name` to the metrics of activations and attempts. By default all nodes share one time series for each metric.
    ///
    /// A recorder of metrics keeps each series forever, so use this only if the set of node names is small and fixed. Each node has about twenty
    /// series, and each bucket of a histogram counts as a series. At most 500 nodes of each workflow get their own series.
    #[must_use]
    pub fn metrics_by_node(mut self) -> Self {
        self.by_node = true;
        self
    }

    /// Sets the clock of the runtime. Tests use it to control the time.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the source of generated ids. Tests use it to get the same ids each time.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.ids = ids;
        self
    }

    /// Prepares the store, sends the first heartbeat and returns the runtime.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`CheckpointStore::setup`] and [`CheckpointStore::heartbeat`], and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if
    /// the limits of a [`sweeper`](Self::sweeper) are out of range.
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
        // The `HeartbeatMonitor`, which `shared` has created above, counts the TTL from a time before this call.
        shared.store.heartbeat(&shared.executor, shared.limits.heartbeat_ttl).await?;
        shared.telemetry().beat(HeartbeatResult::Alive, || shared.clock.now());
        spawn(background_tasks::beat(Arc::downgrade(&shared)));
        spawn(pass_notices(Arc::downgrade(&shared)));
        if shared.admission.is_limited() {
            spawn(background_tasks::admit(&shared));
        }
        if let Some(sweeper) = sweeper {
            spawn(keep_swept(Arc::downgrade(&shared), sweeper));
        }
        Ok(Runtime::new(shared))
    }

    /// Builds a runtime for an operator's tool. The runtime reads and controls the runs of any application through their store, but drives no run. It
    /// does not prepare the store and sends no heartbeat, so a tool that only reads changes nothing in the store.
    ///
    /// [`start`](Runtime::start), [`resume`](Runtime::resume), [`ForkRequest::drive`](super::ForkRequest::drive) and [`serve`](Runtime::serve) fail
    /// with [`ErrorKind::Invalid`](crate::ErrorKind::Invalid). When the tool sends a signal to a run, the process that drives the run acts on it, or
    /// the process that next claims the run. [`edit`](Runtime::edit) and [`fork`](Runtime::fork) need no application code.
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
        let extensions = crate::kernel::extensions::Extensions::default();
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
