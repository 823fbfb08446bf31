//! The data of a runtime that all its clones and drivers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::committer::Committer;
use super::event::{Event, EventSubscription, Subscribers};
use super::extension::{Extensions, LeftRun, RunChange};
use super::fleet::admission::{AdmissionControl, RunLimits, RunPermit};
use super::fleet::background_tasks::{self, ClaimId};
use super::fleet::heartbeat::HeartbeatMonitor;
use super::fleet::idle_runs::IdleRunCache;
use super::fleet::recovery::Recovery;
use super::fleet::tags::ProcessTags;
use super::log::LogWriter;
use super::outbox::OutboxRegistry;
use super::registry::DriverRegistry;
use super::tasks::spawn;
use super::watch::{RunFeeds, StreamRelay};
use crate::ask::Answerer;
use crate::clock::Clock;
use crate::compact::queue::{Receiver, Sender};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ExecutorId, HeadRef, IdSource, RunKey};
use crate::node::Resources;
use crate::past::retention::RetentionPolicy;
use crate::record::body::Signal;
use crate::state::Patch;
use crate::store::{CheckpointStore, Removed, RunAppend};
use crate::telemetry::{RunMeter, Telemetry, TraceContext};

/// If the store sends notices, the poll interval of active runs is longer by this factor. With thousands of runs in a process, polls would otherwise
/// be most of the store's load and would delay heartbeats.
const HEARING: u32 = 10;

/// The interval of polls of a watched run's log, if the store sends no notices.
const WATCH: Duration = Duration::from_millis(200);

/// The limits and intervals of a runtime.
#[derive(Clone, Copy, Debug)]
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

/// A command to a driver from its own process.
pub(crate) enum DriverCommand {
    /// A signal for the run. The driver replies when the signal is durable.
    Signal { signal: Box<Signal>, reply: oneshot::Sender<Result<()>> },
    /// An edit of the state. The driver replies when the edit is durable.
    Edit { patch: Box<Patch>, by: Option<String>, reply: oneshot::Sender<Result<()>> },
    /// A caller waits until the driver has started. If the sender is dropped, the driver never started.
    Begun(oneshot::Sender<()>),
    /// The run may have changed in the store, so the driver must check it. Contains the new head of the run, if it is known.
    Look(Option<HeadRef>),
    /// The driver must release the run at once, because the run will be claimed again.
    Release,
    /// The driver must stop, because the runtime shuts down or has lost its claims.
    Stop,
}

/// The phase of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RuntimePhase {
    #[default]
    Open,
    /// The runtime claims no further runs, and waits until its runs end or become idle.
    Draining,
    /// The runtime lets running nodes finish during this grace period, and then releases its runs.
    Ending(Duration),
}

/// The stop signal of a runtime's drivers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StopSignal {
    pub(crate) phase: RuntimePhase,
    /// The heartbeat term: the number of times that this process has lost its claims. A driver of an earlier term must stop.
    pub(crate) term: u64,
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

    /// Starts to listen to the notices of the store, unless this runtime already does so. A runtime that drives no runs needs notices only for
    /// watches.
    pub(crate) fn listen(self: &Arc<Self>) {
        if self.role == RuntimeRole::Operates && self.feeds().begins_to_listen() {
            spawn(background_tasks::pass_notices(Arc::downgrade(self)));
        }
    }

    /// Registers that this process drives a run, so that it cannot have a second driver in this process.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Conflict`] if this process already drives the run, and [`ErrorKind::Closed`] if the runtime is shutting down. Returns
    /// [`ErrorKind::Unavailable`] while the heartbeats of this process are lost, and [`ErrorKind::Invalid`] if the runtime is an operator's.
    pub(crate) fn enter(
        self: &Arc<Self>,
        run: &RunKey,
        permit: RunPermit,
        is_recovered: bool,
    ) -> Result<DriverRegistration> {
        let (term, gaps) = self.takes(run)?;
        let control = self.registry.enter(run, is_recovered)?;
        let shared = Arc::clone(self);
        let meter = RunMeter::silent();
        let left = LeftRun { run: run.clone(), facts: None, ended_at: None };
        Ok(DriverRegistration { shared, left, term, gaps, owed: None, control, meter, _permit: permit })
    }

    /// Returns the heartbeat term and the number of late heartbeats, if this runtime can claim runs now.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`enter`](Self::enter), except for a run that this process drives.
    pub(crate) fn takes(&self, run: &RunKey) -> Result<(u64, u64)> {
        self.check_drives().map_err(|error| error.with_run(run))?;
        if self.is_closing() {
            return Err(Self::closed(run));
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

    pub(crate) fn closed(run: &RunKey) -> Error {
        let message = "the runtime is shutting down; start or resume the run with another";
        Error::new(ErrorKind::Closed, message).with_run(run)
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

/// The registration of a run that this process drives. Dropping it deregisters the run.
pub(crate) struct DriverRegistration {
    shared: Arc<RuntimeInner>,
    /// The change that is sent to libraries when the registration is dropped.
    pub(crate) left: LeftRun,
    /// The heartbeat term of the claim: see [`HeartbeatMonitor`].
    pub(crate) term: u64,
    /// The number of late heartbeats when ownership was last certain.
    pub(crate) gaps: u64,
    /// The claim with which the log may name this process as the owner, until the run has a driver.
    owed: Option<ClaimId>,
    /// The capacity that the run uses. It is freed when the run is deregistered.
    _permit: RunPermit,
    pub(crate) control: Receiver<DriverCommand>,
    /// Counts the driver's work.
    pub(crate) meter: RunMeter,
}

impl DriverRegistration {
    /// Appends the record that makes this process the owner of the run with this claim. If the reply is lost, a separate task resolves the outcome.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Committer::append`], and [`ErrorKind::Unavailable`] if heartbeats are lost. After an error, the run is deregistered.
    pub(crate) async fn claim(mut self, append: RunAppend, tenure: ClaimId) -> Result<(Self, HeadRef)> {
        self.expect_claim(Some(tenure));
        match self.shared.committer.append(append.clone(), Some(self.term)).await {
            Ok(durable) => Ok((self, durable)),
            Err(error) => {
                self.expect_claim(None);
                let shared = Arc::clone(&self.shared);
                drop(self);
                Err(background_tasks::claim_error(&shared, append, tenure, &error))
            }
        }
    }

    /// Sets the claim with which the log may name this process as the owner before the run has a driver. If the registration is dropped before the
    /// caller resets the claim, the run is released. This also happens after a panic during the start or claim.
    pub(crate) fn expect_claim(&mut self, tenure: Option<ClaimId>) {
        self.owed = tenure;
    }
}

impl Drop for DriverRegistration {
    fn drop(&mut self) {
        self.shared.registry.unregister(&self.left);
        self.shared.recovery.notify_ended();
        // Only a driver knows the facts of its run. The run may have ended before the driver received this command.
        while let Some(control) = self.control.try_recv().filter(|_| self.left.facts.is_some()) {
            if let DriverCommand::Begun(reply) = control {
                // The caller may be gone.
                let _ = reply.send(());
            }
        }
        if let Some(tenure) = self.owed {
            let why = Error::new(ErrorKind::Closed, "it panicked before it drove the run");
            background_tasks::release_failed_run(&Arc::downgrade(&self.shared), &self.left.run, tenure, &why);
        }
    }
}
