//! The data of a runtime that all its clones and drivers share.

use crate::kernel::commands::DriverCommand;
use crate::kernel::commands::RuntimePhase;
use crate::kernel::commands::StopSignal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::ask::Answerer;
use crate::clock::Clock;
use crate::compact::queue::Sender;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ExecutorId, HeadRef, IdSource, RunKey};
use crate::kernel::admission::{AdmissionControl, RunLimits, closed_error};
use crate::kernel::committer::Committer;
use crate::kernel::event::Event;
use crate::kernel::extensions::Extensions;
use crate::kernel::feed::relay::StreamRelay;
use crate::kernel::feed::run_feed::RunFeeds;
use crate::kernel::heartbeat::HeartbeatMonitor;
use crate::kernel::idle_runs::IdleRunCache;
use crate::kernel::log::LogWriter;
use crate::kernel::outbox::OutboxRegistry;
use crate::kernel::recovery::Recovery;
use crate::kernel::registry::DriverRegistry;
use crate::kernel::resources::Resources;
use crate::kernel::run_change::RunChange;
use crate::kernel::subscribers::{EventSubscription, Subscribers};
use crate::kernel::tags::ProcessTags;
use crate::past::retention::RetentionPolicy;
use crate::store::{CheckpointStore, Removed};
use crate::telemetry::{Telemetry, TraceContext};

/// If the store sends notices, the poll interval of active runs is longer by this factor. With thousands of runs in a process, polls would otherwise
/// be most of the store's load and would delay heartbeats.
const HEARING: u32 = 10;

/// The interval of polls of a watched run's log, if the store sends no notices.
const WATCH: Duration = Duration::from_millis(200);

/// The limits and intervals of a runtime.
#[derive(Clone, Copy, Debug)]
// Large: the limits that an application can set.
pub(crate) struct RuntimeLimits {
    pub(crate) max_body: usize,
    /// The maximum number of pending records of a run before it waits. It bounds memory and the work that a crash repeats.
    pub(crate) max_pending: usize,
    pub(crate) heartbeat_ttl: Duration,
    /// The interval at which drivers check a run's head for signals of other processes.
    pub(crate) poll: Duration,
    pub(crate) cancel_grace: Duration,
    /// The interval at which recovery looks for runs without a driver.
    pub(crate) sweep: Duration,
    /// The number of active runs at which recovery stops to claim runs.
    pub(crate) max_recovered: usize,
    /// The maximum number of concurrent claims by recovery.
    pub(crate) recovered_at_once: u32,
    /// The maximum number of log bytes that recovery reads at the same time.
    pub(crate) recovered_bytes: u64,
    /// The maximum number of claims without progress before a run is paused.
    pub(crate) max_claims: u32,
    /// The maximum number of waiting messages in a run.
    pub(crate) max_waiting_messages: usize,
    /// The longest wait for a time that a run spends in memory.
    pub(crate) release_after: Duration,
    /// The maximum depth of a child below the first run.
    pub(crate) max_depth: u32,
    /// The maximum number of children of an activation.
    pub(crate) max_children: usize,
    /// The maximum number of runs that the nodes of a run may start.
    pub(crate) max_children_of_run: u64,
}

/// The role of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeRole {
    /// The runtime drives runs.
    Drives,
    /// The runtime belongs to an operator's tool: it reads and controls runs, but drives no run.
    Operates,
}

/// The application's services for nodes and runs.
pub(crate) struct AppServices {
    pub(crate) resources: Arc<Resources>,
    pub(crate) answerer: Option<Arc<dyn Answerer>>,
    pub(crate) retention: Option<RetentionPolicy>,
    pub(crate) telemetry: Telemetry,
    pub(crate) trace: Option<Arc<dyn TraceContext>>,
    pub(crate) post: OutboxRegistry,
    pub(crate) tags: ProcessTags,
    /// The extensions of libraries.
    pub(crate) extensions: Extensions,
}

pub(crate) struct RuntimeInner {
    role: RuntimeRole,
    pub(crate) store: Arc<dyn CheckpointStore>,
    pub(crate) committer: Committer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) executor: ExecutorId,
    pub(crate) heartbeat: Arc<HeartbeatMonitor>,
    pub(crate) limits: RuntimeLimits,
    pub(crate) services: AppServices,
    pub(crate) recovery: Arc<Recovery>,
    pub(crate) idle_runs: IdleRunCache,
    pub(crate) admission: Arc<AdmissionControl>,
    subscribers: Subscribers,
    pub(crate) registry: DriverRegistry,
    /// Whether the store sends notices. Polls then only cover missed notices.
    pub(crate) has_notices: AtomicBool,
}

impl RuntimeInner {
    #[expect(clippy::too_many_arguments, reason = "called once, by the builder, with its own fields")]
    pub(crate) fn new(
        role: RuntimeRole,
        store: Arc<dyn CheckpointStore>,
        committer: Committer,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        executor: ExecutorId,
        heartbeat: Arc<HeartbeatMonitor>,
        limits: RuntimeLimits,
        services: AppServices,
        run_limits: RunLimits,
        events: usize,
    ) -> Self {
        Self {
            role,
            store,
            committer,
            clock,
            ids,
            executor,
            heartbeat,
            limits,
            services,
            recovery: Arc::new(Recovery::new(limits.recovered_bytes)),
            idle_runs: IdleRunCache::default(),
            admission: AdmissionControl::new(run_limits),
            subscribers: Subscribers::new(events),
            registry: DriverRegistry::default(),
            has_notices: AtomicBool::new(false),
        }
    }

    /// Returns the role of the runtime.
    pub(crate) fn role(&self) -> RuntimeRole {
        self.role
    }

    /// Creates the log writer of a run, for this executor and without any record yet.
    pub(crate) fn log_writer(&self, run: &RunKey) -> LogWriter {
        let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        LogWriter::new(run.clone(), self.executor, self.limits.max_body, clock, ids)
    }

    /// Returns the outbox sinks of this process.
    pub(crate) fn post(&self) -> &OutboxRegistry {
        &self.services.post
    }

    /// Returns the telemetry.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.services.telemetry
    }

    /// Returns the trace context, which joins spans across processes.
    pub(crate) fn trace(&self) -> Option<&dyn TraceContext> {
        self.services.trace.as_deref()
    }

    /// Sends an event to subscribers. Calls `event` only if there is one.
    pub(crate) fn emit(&self, run: &RunKey, event: impl FnOnce() -> Event) {
        self.subscribers.emit(run, event);
    }

    /// Returns whether there is a subscriber.
    pub(crate) fn has_subscribers(&self) -> bool {
        !self.subscribers.is_empty()
    }

    /// Subscribes to the events of all runs.
    pub(crate) fn subscribe(&self) -> EventSubscription {
        self.subscribers.subscribe()
    }

    /// Returns the relay to other processes.
    pub(crate) fn relayed(&self) -> &Arc<StreamRelay> {
        &self.subscribers.relayed
    }

    /// Returns the watchers of runs.
    pub(crate) fn feeds(&self) -> &Arc<RunFeeds> {
        &self.subscribers.feeds
    }

    /// Returns the heartbeat term and the number of late heartbeats, if this runtime can claim runs now.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Closed`] if the runtime is shutting down, [`ErrorKind::Unavailable`] while the heartbeats of this process are lost, and
    /// [`ErrorKind::Invalid`] if the runtime is an operator's.
    pub(crate) fn takes(&self, run: &RunKey) -> Result<(u64, u64)> {
        self.check_drives().map_err(|error| error.with_run(run))?;
        if self.is_closing() {
            return Err(closed_error(run));
        }
        self.may_start(run)
    }

    /// Checks whether this runtime can start runs, like [`takes`](Self::takes). A closing runtime may still start a run, which other processes then
    /// drive.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] while heartbeats are lost.
    pub(crate) fn may_start(&self, run: &RunKey) -> Result<(u64, u64)> {
        self.heartbeat.check_alive().map_err(|error| error.with_run(run))
    }

    /// Waits until a pending start or claim in this process has an outcome. Returns whether this process drives the run.
    pub(crate) async fn decided(&self, run: &RunKey) -> bool {
        self.has_begun(run).await && self.driver(run).is_some()
    }

    /// Waits like [`decided`](Self::decided), but returns whether this process has driven the run, which may have ended since.
    pub(crate) async fn has_begun(&self, run: &RunKey) -> bool {
        let Some(driver) = self.driver(run) else { return false };
        let (reply, begun) = oneshot::channel();
        driver.send(DriverCommand::Begun(reply)).is_ok() && begun.await.is_ok()
    }

    /// Returns whether the runtime is closing, so that it claims no further runs.
    pub(crate) fn is_closing(&self) -> bool {
        self.registry.stop().phase != RuntimePhase::Open
    }

    /// Returns an error if the runtime is an operator's, which must not drive runs. It sends no heartbeat, so other processes would claim its runs.
    pub(crate) fn check_drives(&self) -> Result<()> {
        match self.role {
            RuntimeRole::Drives => Ok(()),
            RuntimeRole::Operates => {
                let message =
                    "a runtime for operators cannot drive a run; create one with `RuntimeBuilder::build`";
                Err(Error::new(ErrorKind::Invalid, message))
            }
        }
    }

    /// Returns the poll interval of active runs.
    pub(crate) fn poll(&self) -> Duration {
        match self.has_notices.load(Ordering::Relaxed) {
            true => self.limits.poll.saturating_mul(HEARING),
            false => self.limits.poll,
        }
    }

    /// Returns the poll interval of a watched run's log, next to notices.
    pub(crate) fn watch_pause(&self) -> Duration {
        match self.has_notices.load(Ordering::Relaxed) {
            true => self.poll(),
            false => WATCH,
        }
    }

    /// Returns the number of runs that this process drives.
    pub(crate) fn driven(&self) -> usize {
        *self.registry.count().borrow()
    }

    /// Changes the phase of the runtime and notifies every driver, in the order of their runs.
    pub(crate) fn change_stop(&self, change: impl FnOnce(&mut StopSignal)) {
        self.registry.change_stop(change);
    }

    /// Purges a run and removes its cached data. If the run existed, libraries are notified. A start of this run with unknown outcome is not repeated
    /// after the purge.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`CheckpointStore::purge`].
    pub(crate) async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        // An unreadable run is purged, too. Libraries then notice by themselves.
        let head = match self.registry.has_listeners() {
            true => self.store.head(run).await.ok().flatten(),
            false => None,
        };
        let head = head.filter(|head| expected.is_none_or(|expected| expected == head.head()));
        // A new run may use the id before the reply arrives.
        let next = self.registry.lock_unknown_outcomes().next();
        let purged = self.store.purge(run, expected).await?;
        self.idle_runs.remove(run);
        if purged.records > 0 {
            self.registry.lock_unknown_outcomes().remove_before(run, next);
        }
        if let Some(facts) = head.map(|head| Arc::new(head.facts)) {
            self.registry.publish(|| RunChange::Purged { run: run.clone(), facts: Arc::clone(&facts) });
        }
        Ok(purged)
    }

    /// Returns the sender to the driver of a run, if this process drives it.
    pub(crate) fn driver(&self, run: &RunKey) -> Option<Sender<DriverCommand>> {
        self.registry.driver(run)
    }

    /// Returns an error if this process drives the run, which must then not be removed.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongStatus`] if this process drives it.
    pub(crate) fn check_not_driven(&self, run: &RunKey) -> Result<()> {
        if self.driver(run).is_none() {
            return Ok(());
        }
        let message = "this process drives the run; cancel it and wait for its end, then purge it";
        Err(Error::new(ErrorKind::WrongStatus, message).with_run(run))
    }
}
