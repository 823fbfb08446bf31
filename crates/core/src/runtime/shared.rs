//! What all runs of a runtime share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::committer::Committer;
use super::event::{Event, Events, Subscribers};
use super::extension::{Extensions, LeftRun, RunNews};
use super::fleet::admission::{AdmissionControl, RunLimits, RunPermit};
use super::fleet::heartbeat::HeartbeatMonitor;
use super::fleet::life::{self, ClaimId};
use super::fleet::recovery::Recovery;
use super::fleet::resting::IdleRunCache;
use super::fleet::tags::ProcessTags;
use super::log::LogWriter;
use super::post::OutboxRegistry;
use super::registry::DriverRegistry;
use super::tasks::spawn;
use super::watch::{Feeds, StreamRelay};
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

/// How many times rarer a busy run is looked at where the store tells of changes. With thousands of runs in a process, looks are most
/// of what a store is asked, and heartbeats would wait behind them.
const HEARING: u32 = 10;

/// How often the log of a watched run is looked at where the store tells of no changes.
const WATCH: Duration = Duration::from_millis(200);

/// Limits and times of a runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuntimeLimits {
    pub(crate) max_body: usize,
    /// How many records of a run may be on their way before it waits: bounds memory and what a crash repeats.
    pub(crate) max_pending: usize,
    pub(crate) heartbeat_ttl: Duration,
    /// How often a run's head is looked at for signals of other processes.
    pub(crate) poll: Duration,
    pub(crate) cancel_grace: Duration,
    /// How often runs without a driver are looked for.
    pub(crate) sweep: Duration,
    /// How many runs may go on here for recovery to take up more.
    pub(crate) max_recovered: usize,
    /// How many runs recovery takes up at the same time.
    pub(crate) recovered_at_once: u32,
    /// How many bytes of logs it reads at the same time.
    pub(crate) recovered_bytes: u64,
    /// How often a run may be taken up without any progress before it is parked.
    pub(crate) max_claims: u32,
    /// How many messages may wait in a run for one more to be sent.
    pub(crate) max_waiting_messages: usize,
    /// How far away the time must be that alone moves a run for its memory to be let go of.
    pub(crate) release_after: Duration,
    /// How deep a child may be below the first run.
    pub(crate) max_depth: u32,
    /// How many children an activation may have.
    pub(crate) max_children: usize,
    /// How many runs the nodes of a run may start.
    pub(crate) max_children_of_run: u64,
}

/// What a driver is told by others in its process.
pub(crate) enum DriverCommand {
    /// A signaller sends a signal; the reply comes when it is durable.
    Signal { signal: Box<Signal>, reply: oneshot::Sender<Result<()>> },
    /// An operator changes the state; the reply comes when it is durable.
    Edit { patch: Box<Patch>, by: Option<String>, reply: oneshot::Sender<Result<()>> },
    /// A caller waits for the run to be driven here; dropping the sender says that it never was.
    Begun(oneshot::Sender<()>),
    /// The run may have changed in the store; with the head that it had then, if that is known.
    Look(Option<HeadRef>),
    /// The run is released at once, for another claim.
    Release,
    /// The runtime ends, or has lost its runs.
    Stop,
}

/// Whether a runtime goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RuntimePhase {
    #[default]
    Open,
    /// It takes nothing new, and lets its runs come to rest.
    Draining,
    /// It lets nodes finish for so long, and lets its runs go.
    Ending(Duration),
}

/// What the drivers of a runtime are told together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StopSignal {
    pub(crate) phase: RuntimePhase,
    /// How often heartbeats were lost: a driver of an earlier term is fenced.
    pub(crate) term: u64,
}

/// What a runtime is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeRole {
    /// Runs go on in it.
    Drives,
    /// It reads and steers runs that go on elsewhere.
    Operates,
}

/// What an application gives its runtime for nodes and runs.
pub(crate) struct AppServices {
    pub(crate) resources: Arc<Resources>,
    pub(crate) answerer: Option<Arc<dyn Answerer>>,
    pub(crate) retention: Option<RetentionPolicy>,
    pub(crate) telemetry: Telemetry,
    pub(crate) trace: Option<Arc<dyn TraceContext>>,
    pub(crate) post: OutboxRegistry,
    pub(crate) tags: ProcessTags,
    /// What libraries keep beside the runtime.
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
    pub(crate) resting: IdleRunCache,
    pub(crate) admission: Arc<AdmissionControl>,
    subscribers: Subscribers,
    pub(crate) registry: DriverRegistry,
    /// Whether the store tells of changes, so that looking is only for what it fails to tell.
    pub(crate) hears: AtomicBool,
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
            resting: IdleRunCache::default(),
            admission: AdmissionControl::new(run_limits),
            subscribers: Subscribers::new(events),
            registry: DriverRegistry::default(),
            hears: AtomicBool::new(false),
        }
    }

    /// Makes the writing end of a run's log, for this executor and without any record yet.
    pub(crate) fn log_writer(&self, run: &RunKey) -> LogWriter {
        let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        LogWriter::new(run.clone(), self.executor, self.limits.max_body, clock, ids)
    }

    /// What is delivered here.
    pub(crate) fn post(&self) -> &OutboxRegistry {
        &self.services.post
    }

    /// What is measured here.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.services.telemetry
    }

    /// What makes one trace of the spans of several processes.
    pub(crate) fn trace(&self) -> Option<&dyn TraceContext> {
        self.services.trace.as_deref()
    }

    /// Tells subscribers, if there are any; `event` is made only then.
    pub(crate) fn emit(&self, run: &RunKey, event: impl FnOnce() -> Event) {
        self.subscribers.emit(run, event);
    }

    /// Whether there is a subscriber.
    pub(crate) fn has_subscribers(&self) -> bool {
        !self.subscribers.is_empty()
    }

    /// Subscribes to the events of all runs.
    pub(crate) fn subscribe(&self) -> Events {
        self.subscribers.subscribe()
    }

    /// Returns what is said to other processes.
    pub(crate) fn relayed(&self) -> &Arc<StreamRelay> {
        &self.subscribers.relayed
    }

    /// Returns those who watch a run.
    pub(crate) fn feeds(&self) -> &Arc<Feeds> {
        &self.subscribers.feeds
    }

    /// Hears the store's notices, if nothing of this runtime does yet: one that drives no runs needs them only to watch some.
    pub(crate) fn listen(self: &Arc<Self>) {
        if self.role == RuntimeRole::Operates && self.feeds().begins_to_listen() {
            spawn(life::pass_notices(Arc::downgrade(self)));
        }
    }

    /// Registers a run as driven here, so that no second driver of this process takes it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if it is driven here already, [`ErrorKind::Closed`] if the runtime is ending,
    /// [`ErrorKind::Unavailable`] while the heartbeats of this process are lost, [`ErrorKind::Invalid`] if it is an operator's.
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

    /// Returns how often heartbeats were lost and came late, if runs are taken now.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter), but for a run that is driven here.
    pub(crate) fn takes(&self, run: &RunKey) -> Result<(u64, u64)> {
        self.check_drives().map_err(|error| error.with_run(run))?;
        if self.is_closing() {
            return Err(Self::closed(run));
        }
        self.may_start(run)
    }

    /// As [`takes`](Self::takes), for a start that leaves the run to others where this runtime is closing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] while heartbeats are lost.
    pub(crate) fn may_start(&self, run: &RunKey) -> Result<(u64, u64)> {
        self.heartbeat.present().map_err(|error| error.with_run(run))
    }

    /// Waits until a start or a claim that is under way here has come to something. Returns whether the run goes on here.
    pub(crate) async fn decided(&self, run: &RunKey) -> bool {
        self.has_begun(run).await && self.driver(run).is_some()
    }

    /// As [`decided`](Self::decided), but returns whether the run was driven here; it may have ended since.
    pub(crate) async fn has_begun(&self, run: &RunKey) -> bool {
        let Some(driver) = self.driver(run) else { return false };
        let (reply, begun) = oneshot::channel();
        driver.send(DriverCommand::Begun(reply)).is_ok() && begun.await.is_ok()
    }

    pub(crate) fn closed(run: &RunKey) -> Error {
        let message = "the runtime is shutting down; start or resume the run with another";
        Error::new(ErrorKind::Closed, message).with_run(run)
    }

    /// Whether nothing new is taken.
    pub(crate) fn is_closing(&self) -> bool {
        self.registry.stop().phase != RuntimePhase::Open
    }

    /// Refuses to drive runs in an operator's runtime, which has no heartbeat: others would take them away.
    pub(crate) fn check_drives(&self) -> Result<()> {
        match self.role {
            RuntimeRole::Drives => Ok(()),
            RuntimeRole::Operates => {
                let message = "an operator's runtime drives no run; make one with `RuntimeBuilder::build`";
                Err(Error::new(ErrorKind::Invalid, message))
            }
        }
    }

    /// Returns how often a busy run is looked at.
    pub(crate) fn poll(&self) -> Duration {
        match self.hears.load(Ordering::Relaxed) {
            true => self.limits.poll.saturating_mul(HEARING),
            false => self.limits.poll,
        }
    }

    /// Returns how often the log of a watched run is looked at, beside what is told of it.
    pub(crate) fn watch_pause(&self) -> Duration {
        match self.hears.load(Ordering::Relaxed) {
            true => self.poll(),
            false => WATCH,
        }
    }

    /// Returns how many runs are driven here.
    pub(crate) fn driven(&self) -> usize {
        *self.registry.count().borrow()
    }

    /// Changes whether the runtime goes on, and tells every driver, in the order of their runs.
    pub(crate) fn change_stop(&self, change: impl FnOnce(&mut StopSignal)) {
        self.registry.change_stop(change);
    }

    /// Purges a run, and forgets it. If it was there, its start is not sent again, whatever became of it, and libraries of this process hear of it.
    ///
    /// # Errors
    ///
    /// As [`CheckpointStore::purge`].
    pub(crate) async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        // What cannot be read is purged all the same; libraries find out by themselves then.
        let head = match self.registry.has_listeners() {
            true => self.store.head(run).await.ok().flatten(),
            false => None,
        };
        let head = head.filter(|head| expected.is_none_or(|expected| expected == head.head()));
        // The name may be used again before the reply is here.
        let next = self.registry.doubts().next();
        let purged = self.store.purge(run, expected).await?;
        self.resting.forget(run);
        if purged.records > 0 {
            self.registry.doubts().forget(run, next);
        }
        if let Some(facts) = head.map(|head| Arc::new(head.facts)) {
            self.registry.publish(|| RunNews::Purged { run: run.clone(), facts: Arc::clone(&facts) });
        }
        Ok(purged)
    }

    /// Returns the way to the driver of a run, if it is driven here.
    pub(crate) fn driver(&self, run: &RunKey) -> Option<Sender<DriverCommand>> {
        self.registry.driver(run)
    }

    /// Refuses to remove a run that is driven here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongStatus`] if it is.
    pub(crate) fn check_not_driven(&self, run: &RunKey) -> Result<()> {
        if self.driver(run).is_none() {
            return Ok(());
        }
        let message = "the run goes on in this process; cancel it and wait for its end, then purge it";
        Err(Error::new(ErrorKind::WrongStatus, message).with_run(run))
    }
}

/// A run registered as driven here; leaving scope ends that.
pub(crate) struct DriverRegistration {
    shared: Arc<RuntimeInner>,
    /// What is told of the run when this is dropped.
    pub(crate) left: LeftRun,
    /// The term of heartbeats in which it was taken: see [`HeartbeatMonitor`].
    pub(crate) term: u64,
    /// How often heartbeats had come late when it was last certain who owns the run.
    pub(crate) gaps: u64,
    /// The tenure in which the log may give the run to this executor, until a driver has it.
    owed: Option<ClaimId>,
    /// Given back when the run is no longer registered.
    _permit: RunPermit,
    pub(crate) control: Receiver<DriverCommand>,
    /// Counts what the driver does.
    pub(crate) meter: RunMeter,
}

impl DriverRegistration {
    /// Appends what gives the run to this executor as this tenure. If the reply is lost, what became of it is found out beside the caller.
    ///
    /// # Errors
    ///
    /// As [`Committer::append`]; [`ErrorKind::Unavailable`] once heartbeats are lost. The run is not registered any more.
    pub(crate) async fn claim(mut self, append: RunAppend, tenure: ClaimId) -> Result<(Self, HeadRef)> {
        self.owe(Some(tenure));
        match self.shared.committer.append(append.clone(), Some(self.term)).await {
            Ok(durable) => Ok((self, durable)),
            Err(error) => {
                self.owe(None);
                let shared = Arc::clone(&self.shared);
                drop(self);
                Err(life::refused(&shared, append, tenure, &error))
            }
        }
    }

    /// Says as what the log may give the run to this executor before a driver has it. Unless that is taken back, the run is let go of
    /// when this is dropped, as it is if the start or the claim panics.
    pub(crate) fn owe(&mut self, tenure: Option<ClaimId>) {
        self.owed = tenure;
    }
}

impl Drop for DriverRegistration {
    fn drop(&mut self) {
        self.shared.registry.leave(&self.left);
        self.shared.recovery.left();
        // Only a driver says what run it is. Its run may have ended before it read what it was asked.
        while let Some(control) = self.control.try_recv().filter(|_| self.left.facts.is_some()) {
            if let DriverCommand::Begun(reply) = control {
                // A caller that has gone away needs no reply.
                let _ = reply.send(());
            }
        }
        if let Some(tenure) = self.owed {
            let why = Error::new(ErrorKind::Closed, "it panicked before it drove the run");
            life::let_go(&Arc::downgrade(&self.shared), &self.left.run, tenure, &why);
        }
    }
}
