//! What a runtime is made with.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::committer::{Committer, RetryBudget};
use super::fleet::admission::RunLimits;
use super::fleet::heartbeat::{HeartbeatMonitor, HeartbeatResult};
use super::fleet::life;
use super::fleet::sweeper::{SweeperOptions, keep_swept};
use super::fleet::tags::ProcessTags;
use super::post::{OutboxRegistry, OutboxSink, RETRY, SinkRoute};
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
use crate::store::{Bounded, CheckpointStore};
use crate::telemetry::{Telemetry, TraceContext};

/// The largest body of a record unless set otherwise, in bytes.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// How many records of a run may be on their way: what overlaps with work, and what a crash repeats of pure work.
const MAX_PENDING: usize = 1_024;

/// How many messages may wait in a run unless set otherwise.
const MAX_WAITING_MESSAGES: usize = 1_000;

/// How many events a slow subscriber may lag behind before it misses some.
const EVENTS: usize = 4_096;

/// The shortest life of a heartbeat: less than the pauses that a busy machine makes anyway would be a process that is never sure.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// How long one call to the store may take unless set otherwise: more than the stores' own limits, whose errors say more.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

/// The shortest time that a call may have.
const SHORTEST_CALL: Duration = Duration::from_millis(1);

/// The longest: stores write down when it ends, and some cannot write any later time.
const LONGEST_TTL: Duration = Duration::from_secs(365 * 86_400);

/// The shortest interval at which anything is looked at: without a pause there would be no time for anything else.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

/// What a runtime is made with.
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

    /// Lends a value to all nodes, by its type.
    #[must_use]
    pub fn resource<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.resources.insert(value);
        self
    }

    /// Has an outlet deliver the letters of a topic: what nodes [send out](crate::state::Update::send_out). It is tried 25 times, at first after a
    /// second and then twice as long each time, up to five minutes; then a letter is put aside for an operator.
    ///
    /// A letter is delivered after its record is durable: at least once, under the same [key](crate::runtime::OutboxMessage::key), and in order for
    /// each run and topic. A process that has no outlet for a topic leaves its letters to others; one that
    /// [serves](crate::runtime::Runtime::serve) a workflow also delivers those of runs that rest or have ended elsewhere.
    #[must_use]
    pub fn outlet(self, topic: impl Into<String>, outlet: impl OutboxSink) -> Self {
        self.outlet_with(topic, outlet, RETRY)
    }

    /// As [`outlet`](Self::outlet), tried as this policy says. With the last attempt of a letter it is put aside.
    #[must_use]
    pub fn outlet_with(
        mut self,
        topic: impl Into<String>,
        outlet: impl OutboxSink,
        retry: RetryPolicy,
    ) -> Self {
        self.routes.insert(topic.into(), SinkRoute { outlet: Arc::new(outlet), retry });
        self
    }

    /// Takes the time from another clock: for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Takes ids from another source: for tests.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.ids = ids;
        self
    }

    /// Sets the largest body of a record in bytes; 8 MiB unless set. Larger: records that stores and networks choke on.
    /// Smaller: states and updates are refused earlier.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.limits.max_body = bytes;
        self
    }

    /// Sets how many messages may wait in a run that no node has taken; 1,000 unless set, and one at least. Beyond that
    /// [`Runtime::send`] is refused, until a node takes one. More: larger bases, and slower sends to a run at rest, for each message
    /// that waits is read with the run. Fewer: senders that are faster than the nodes hear of it earlier.
    ///
    /// The setting of the runtime that sends counts, and it says nothing of messages that wait already.
    #[must_use]
    pub fn max_waiting_messages(mut self, messages: usize) -> Self {
        self.limits.max_waiting_messages = messages.max(1);
        self
    }

    /// Sets how long this process counts as alive after each heartbeat; 15 seconds unless set, and a second at least, a year at most.
    /// Longer: its runs wait longer after a crash. Shorter: a busy machine looks dead.
    ///
    /// A heartbeat is sent when a third of that time has passed. When three quarters have passed since the last one that
    /// succeeded was sent, the process takes it that others may act on its runs, and stops them: their handles say
    /// [`Fenced`](crate::ErrorKind::Fenced), and what is recorded stays.
    #[must_use]
    pub fn heartbeat_ttl(mut self, ttl: Duration) -> Self {
        self.limits.heartbeat_ttl = ttl.clamp(SHORTEST_TTL, LONGEST_TTL);
        self
    }

    /// Sets how often a busy run is looked at for signals of other processes; half a second unless set, and a
    /// millisecond at least. Where the store sends notices
    /// a run is looked at when it sends one, and ten times less often otherwise.
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.limits.poll = interval.max(SHORTEST_INTERVAL);
        self
    }

    /// Sets how long nodes have to stop after a cancellation; 5 seconds unless set.
    #[must_use]
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.limits.cancel_grace = grace;
        self
    }

    /// Sets how long a run that only time can move stays in memory; 60 seconds unless set. When more time is left, the run is
    /// let go and is to be resumed when its time has come.
    #[must_use]
    pub fn release_after(mut self, time: Duration) -> Self {
        self.limits.release_after = time;
        self
    }

    /// Sets how deep children may be below the first run; 16 unless set. A workflow that starts itself for ever fails there.
    #[must_use]
    pub fn max_depth(mut self, levels: u32) -> Self {
        self.limits.max_depth = levels;
        self
    }

    /// Sets how many children one activation may have; 10,000 unless set.
    #[must_use]
    pub fn max_children(mut self, children: usize) -> Self {
        self.limits.max_children = children;
        self
    }

    /// Sets how many runs the nodes of one run may start over its life, children that are started anew and detached runs included; 100,000
    /// unless set. A loop that starts children for ever fails there.
    ///
    /// The log of the run counts them, so the count holds over restarts, and a fork goes on with it.
    #[must_use]
    pub fn max_children_of_run(mut self, runs: u64) -> Self {
        self.limits.max_children_of_run = runs;
        self
    }

    /// Keeps the logs of the runs that go on here small as they go. Whole runs are removed by a [`sweeper`](Self::sweeper), or by
    /// [`Runtime::sweep`].
    #[must_use]
    pub fn retention(mut self, policy: RetentionPolicy) -> Self {
        self.retention = Some(policy);
        self
    }

    /// Sets how often runs of [served](Runtime::serve) workflows without a driver are looked for; every second unless set,
    /// and every millisecond at most, give or take a quarter.
    #[must_use]
    pub fn sweep_interval(mut self, interval: Duration) -> Self {
        self.limits.sweep = interval.max(SHORTEST_INTERVAL);
        self
    }

    /// Sets how many runs may go on in this process for it to take up more by itself; 10,000 unless set.
    #[must_use]
    pub fn max_recovered(mut self, runs: usize) -> Self {
        self.limits.max_recovered = runs;
        self
    }

    /// Sets how many runs are taken up at the same time when many need it, and how many bytes of their logs may be read then; 128
    /// and 64 MiB unless set. More: a faster recovery, at the cost of the store's other users and of memory. Fewer: the reverse. A log
    /// that is larger alone is read alone.
    #[must_use]
    pub fn recover_at_once(mut self, runs: u32, bytes: u64) -> Self {
        (self.limits.recovered_at_once, self.limits.recovered_bytes) = (runs.clamp(1, 10_000), bytes);
        self
    }

    /// Sets how many runs may go on in this process at once; any number unless set.
    #[must_use]
    pub fn run_limits(mut self, limits: RunLimits) -> Self {
        self.run_limits = limits;
        self
    }

    /// Sets how often a run may be taken up by itself without any progress, as when it ends its process each time; 10 times
    /// unless set. Then it is paused, for people to look at.
    #[must_use]
    pub fn max_claims(mut self, claims: u32) -> Self {
        self.limits.max_claims = claims.max(1);
        self
    }

    /// Has the questions of the runs that go on here answered by something else than people.
    #[must_use]
    pub fn answerer(mut self, answerer: impl Answerer) -> Self {
        self.answerer = Some(Arc::new(answerer));
        self
    }

    /// Sets how often a failed append is made before the run stops with the store's error, and the first delay, which doubles
    /// each time; 8 times from 50 ms unless set, about 6 seconds in all.
    #[must_use]
    pub fn store_retries(mut self, attempts: u32, first_delay: Duration) -> Self {
        self.budget = RetryBudget { attempts: attempts.max(1), first_delay };
        self
    }

    /// Sets how long one call to the store may take; 60 seconds unless set, and a millisecond at least. Calls that set up, prune or
    /// purge have ten times as long.
    ///
    /// When the time is up, a read fails with [`Unavailable`](crate::ErrorKind::Unavailable), and an append is in doubt
    /// ([`Indeterminate`](crate::ErrorKind::Indeterminate)): it is made again, as [`store_retries`](Self::store_retries) says, which
    /// finds out what became of it. Longer: a run stands still for as long when the store goes silent. Shorter: a slow store is taken
    /// for a silent one. The stores have bounds of their own, most of them shorter; this one holds whatever the store does.
    #[must_use]
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout.max(SHORTEST_CALL);
        self
    }

    /// Has the spans of a run be one trace, in whatever processes it goes on: a start records where the caller's current span stands, and whoever
    /// drives the run goes on from there. No trace reaches over processes unless set.
    #[must_use]
    pub fn trace_context(mut self, context: impl TraceContext) -> Self {
        self.trace = Some(Arc::new(context));
        self
    }

    /// Says what this process has that others may lack, as `gpu` or `eu`: it takes up runs that ask for these tags, too, and only such processes
    /// do. Called again, it adds to them.
    #[must_use]
    pub fn tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags.extend(tags);
        self
    }

    /// Has the metrics of activations and attempts tell nodes apart, by the label `ferrata.node.name`; together unless set.
    ///
    /// A recorder keeps each series for good, so this is for applications whose workflows have few and fixed names: some twenty series for
    /// each node, and of a histogram as many as it has buckets. At most 500 nodes of each workflow are told apart.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics_by_node(mut self) -> Self {
        self.by_node = true;
        self
    }

    /// Prepares the store and says that this process is alive.
    ///
    /// # Errors
    ///
    /// As [`CheckpointStore::setup`] and [`CheckpointStore::heartbeat`]; [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for limits of a
    /// [`sweeper`](Self::sweeper) that are out of range.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: build again.
    ///
    /// <!-- held by: extremes::no_setting_of_a_runtime_panics -->
    pub async fn build(self) -> Result<Runtime> {
        let mut this = self.bounded();
        let sweeper = this.sweeper.take();
        sweeper.as_ref().map_or(Ok(()), SweeperOptions::check)?;
        this.store.setup().await?;
        let shared = this.shared(RuntimeRole::Drives);
        // The heartbeat counts from before it.
        shared.store.heartbeat(&shared.executor, shared.limits.heartbeat_ttl).await?;
        shared.telemetry().beat(HeartbeatResult::Alive, || shared.clock.now());
        spawn(life::beat(Arc::downgrade(&shared)));
        spawn(life::pass_notices(Arc::downgrade(&shared)));
        if shared.admission.is_limited() {
            spawn(life::admit(&shared));
        }
        if let Some(sweeper) = sweeper {
            spawn(keep_swept(Arc::downgrade(&shared), sweeper));
        }
        Ok(Runtime::new(shared))
    }

    /// Makes a runtime for an operator's tool: it reads and steers the runs of any application through their store, and drives
    /// none. It prepares nothing, and does not count as alive: looking at a store changes nothing in it.
    ///
    /// [`start`](Runtime::start), [`resume`](Runtime::resume), [`ForkRequest::drive`](super::ForkRequest::drive) and
    /// [`serve`](Runtime::serve) are refused with [`ErrorKind::Invalid`](crate::ErrorKind::Invalid). What is said to a run is carried out by the
    /// process that drives it, or the next that does. [`edit`](Runtime::edit) and [`fork`](Runtime::fork) need none of the application's code.
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

    /// Bounds every call to the store, of all its callers.
    fn bounded(mut self) -> Self {
        self.store = Arc::new(Bounded::new(self.store, Arc::clone(&self.clock), self.store_timeout));
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
