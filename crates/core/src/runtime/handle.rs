//! Handles of runs.

use crate::claim::StartId;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::load;
use super::outcome::Outcome;
use super::watch::WatchRequest;
use crate::clock::Timestamp;
use crate::compact::once_channel::OnceReceiver;
use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::id::{Fingerprint, HeadRef, RunKey};
use crate::kernel::inner::RuntimeInner;
use crate::record::body::SignalKind;
use crate::record::{RunFacts, RunStatus};
use crate::runtime::signals::signal::SignalRequest;
use crate::state::State;
use crate::store::RunHead;

/// The interval of polls for a run that another process drives.
const WATCH: Duration = Duration::from_millis(200);

/// A handle that waits for an idle run polls at intervals of the time waited so far, divided by this number. The poll interval also limits the delay.
const PATIENT: u32 = 8;

/// The longest interval of polls for a run that waits in line in this process. There may be thousands of such runs, and the line usually notifies the
/// handle earlier.
const LINE_WATCH: Duration = Duration::from_secs(2);

/// A handle to a run that was started or resumed. Dropping the handle does not affect the run.
pub struct RunHandle<S: State> {
    shared: Arc<RuntimeInner>,
    graph: Graph<S>,
    run: RunKey,
    link: OutcomeSource<S>,
    /// The start id of the run, if the start or resume claimed it.
    start_id: Option<StartId>,
    /// The start time and input of the run, if the start or resume found it in the store.
    started: Option<(Timestamp, Fingerprint)>,
    /// Whether a wait has already returned the error with which the driver in this process stopped.
    has_told: AtomicBool,
    /// Whether the handle has warned that no process continues the run.
    has_warned: AtomicBool,
}

/// Whether an idle run counts as an outcome, or the watch continues to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IdleTolerance {
    /// An idle run always counts as an outcome.
    Any,
    /// An idle run counts as an outcome only if it is not due. A due run is not idle for long, because a process that serves the workflow claims it.
    NotDue,
}

/// The end of a run's driver in this process.
pub(crate) struct DriverEnd<S: State> {
    pub(crate) outcome: Result<Outcome<S>>,
    /// The last record that the driver knew to be durable, if there is one.
    pub(crate) head: Option<HeadRef>,
    /// Whether the store may contain records of the run.
    pub(crate) has_begun: bool,
}

/// The source of a run's outcome.
pub(crate) enum OutcomeSource<S: State> {
    /// The driver in this process sends the outcome. The outcome is boxed, because a channel reserves memory for it during the wait.
    Here(OnceReceiver<Box<DriverEnd<S>>>),
    /// The run waits in line in this process. The channel yields a handle when the run is claimed, or the error of the claim.
    Queued(watch::Receiver<Option<Result<RunHandle<S>>>>),
    /// The run is active in another process or idle, so its outcome is loaded from the store.
    Elsewhere,
}

impl<S: State> RunHandle<S> {
    /// Returns the run's key.
    pub fn run(&self) -> &RunKey {
        &self.run
    }

    /// Waits until the run completes, and returns its final state. The wait continues while the run becomes idle and is claimed again, any number of
    /// times and in any process.
    ///
    /// An idle run that was answered or is due continues only in a process that [serves](super::Runtime::serve) its workflow. If no process claims
    /// the run for a third of [`heartbeat_ttl`](super::RuntimeBuilder::heartbeat_ttl) and this process does not serve the workflow, this process logs
    /// one warning. After the whole `heartbeat_ttl` the wait ends with [`ErrorKind::Closed`].
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongStatus`] with the reason if the run failed or was cancelled, [`ErrorKind::NotFound`] if the run was purged, even if
    /// a new run has its id, and the errors of [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the run continues. Call it again to wait.
    pub async fn completed(&self) -> Result<S> {
        let refuse = |message: String| Err(Error::new(ErrorKind::WrongStatus, message).with_run(&self.run));
        let clock = &self.shared.clock;
        let mut outcome = self.wait().await;
        let begun = clock.monotonic();
        loop {
            match outcome {
                Ok(Outcome::Completed(state)) => return Ok(state),
                Ok(Outcome::Failed { failure, .. }) => return refuse(format!("the run failed: {failure}")),
                Ok(Outcome::Cancelled { reason, .. }) => {
                    return refuse(format!("the run was cancelled: {reason}"));
                }
                // A run may be idle for months: poll less often the longer the run is idle.
                Ok(_) => {
                    let rested = clock.monotonic().saturating_sub(begun);
                    let rarest = self.shared.limits.poll.max(WATCH);
                    clock.sleep((rested / PATIENT).clamp(WATCH, rarest)).await;
                }
                // The run is active in another process.
                Err(error) if error.kind() == ErrorKind::Fenced => {}
                Err(error) => return Err(error),
            }
            outcome = self.watch_store(IdleTolerance::NotDue).await;
        }
    }

    /// Waits until the run ends or becomes idle. The records that the result depends on are durable, unless checkpoints are disabled.
    ///
    /// If the run is active in another process, the handle watches the store. The owner of the run may die or release the run. If no process then
    /// claims it within [`heartbeat_ttl`](super::RuntimeBuilder::heartbeat_ttl), the wait ends with [`ErrorKind::Closed`], or with the reason why
    /// this process cannot claim the run. If this runtime [serves](super::Runtime::serve) the workflow and has the
    /// [tags](super::RuntimeBuilder::tags) that the run requires, it claims the run in time, and the wait continues.
    ///
    /// The wait also continues while the run waits in line in this process. If the run waits in line in another process, or was unpaused before its
    /// first claim, the wait can end with [`ErrorKind::Closed`], because the store does not show that the run waits in line. A failed wait does not
    /// affect the run, so you can call this method again.
    ///
    /// # Errors
    ///
    /// Returns the reason why the run stopped without an outcome. The store holds the run up to its last record, and you can resume it.
    ///
    /// - [`ErrorKind::Fenced`]: another process has claimed the run and continues it, or this process could not send heartbeats and released the run.
    /// - [`ErrorKind::Closed`]: no process drives the run; serve its workflow, or resume it.
    /// - [`ErrorKind::GraphChanged`]: the graph served here does not fit the run, and no other process has claimed it.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: store calls failed after all [retries](super::RuntimeBuilder::store_retries).
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the log is damaged, or of a newer version.
    /// - [`ErrorKind::NotFound`]: the run was purged, even if a new run has its id.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the run continues. Call it again to wait.
    pub async fn wait(&self) -> Result<Outcome<S>> {
        match &self.link {
            OutcomeSource::Here(ended) => self.wait_here(ended, &self.has_told).await,
            OutcomeSource::Elsewhere => self.watch_store(IdleTolerance::Any).await,
            OutcomeSource::Queued(taken) => {
                let mut taken = taken.clone();
                let taken = tokio::select! {
                    biased;
                    taken = taken.wait_for(Option::is_some) => taken.ok().and_then(|taken| taken.clone()),
                    // Another process may claim or cancel the run first.
                    outcome = self.watch_store(IdleTolerance::Any) => return outcome,
                };
                match taken {
                    // The permit went to a new run with the same id.
                    Some(Ok(handle)) if !self.is_of_same_start(&handle) => Err(self.replaced_error()),
                    Some(Ok(handle)) => match &handle.link {
                        OutcomeSource::Here(ended) => handle.wait_here(ended, &self.has_told).await,
                        _ => Box::pin(handle.wait()).await,
                    },
                    Some(Err(error)) => Err(error),
                    None if self.shared.is_closing() => {
                        let head = self.shared.store.head(&self.run).await;
                        // Read the outcome that the run reached in another process before its release.
                        let outcome = self.outcome(head.ok().flatten().as_ref()).await;
                        Ok(outcome.ok().flatten().unwrap_or(Outcome::Released))
                    }
                    None => self.watch_store(IdleTolerance::Any).await,
                }
            }
        }
    }

    /// Watches the events of the run, like [`Runtime::watch`](super::Runtime::watch).
    pub fn watch(&self) -> WatchRequest {
        WatchRequest::new(&self.shared, &self.run)
    }

    /// Cancels the run, like [`Runtime::cancel`](super::Runtime::cancel).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Runtime::cancel`](super::Runtime::cancel).
    pub fn cancel(&self, reason: impl Into<String>) -> SignalRequest {
        SignalRequest::new(&self.shared, &self.run, Ok(SignalKind::Cancel { reason: reason.into() }))
    }

    /// Returns whether the start or resume that created this handle claimed the run. If not, the run had already ended, is active in another process,
    /// or waits in line.
    pub fn is_driven_here(&self) -> bool {
        match &self.link {
            OutcomeSource::Here(_) => true,
            OutcomeSource::Queued(taken) => {
                matches!(&*taken.borrow(), Some(Ok(taken)) if taken.is_driven_here() && self.is_of_same_start(taken))
            }
            OutcomeSource::Elsewhere => false,
        }
    }

    /// Returns whether the start that returned this handle recorded the run on hold. If not, the run existed before, or it is not on hold.
    #[doc(hidden)]
    pub fn is_recorded_on_hold(&self) -> bool {
        self.start_id.is_some() && matches!(self.link, OutcomeSource::Elsewhere)
    }

    /// Returns whether the run is recorded but waits in this process until the [`RunLimits`](super::RunLimits) allow another active run.
    ///
    /// If another process finishes the run during this wait, this process removes the run from its line when it learns of the end. This happens on a
    /// notice of the store, in a call of [`wait`](Self::wait), or when the run would be next.
    pub fn is_queued(&self) -> bool {
        match &self.link {
            OutcomeSource::Here(_) => false,
            // A dropped sender means that the run left the line.
            OutcomeSource::Queued(taken) => taken.borrow().is_none() && taken.has_changed().is_ok(),
            OutcomeSource::Elsewhere => self.shared.admission.is_waiting(&self.run),
        }
    }

    pub(crate) fn new(
        shared: Arc<RuntimeInner>,
        graph: Graph<S>,
        run: RunKey,
        link: OutcomeSource<S>,
    ) -> Self {
        Self {
            shared,
            graph,
            run,
            link,
            start_id: None,
            started: None,
            has_told: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Binds the handle to the run with these start facts, like [`of_start_id`](Self::of_start_id), for the case that the start id is unknown.
    pub(crate) fn of_start(self, facts: &RunFacts) -> Self {
        Self { started: Some((facts.created, facts.input)), ..self }
    }

    /// Binds the handle to this start of the run id, so that a later run with the same id does not count.
    pub(crate) fn of_start_id(self, start_id: StartId) -> Self {
        Self { start_id: Some(start_id), ..self }
    }

    /// Waits for the end of the driver in this process. If the run continued after this, it waits for the outcome.
    async fn wait_here(
        &self,
        ended: &OnceReceiver<Box<DriverEnd<S>>>,
        has_told: &AtomicBool,
    ) -> Result<Outcome<S>> {
        let is_past = ended.get().is_some();
        let Some(end) = ended.recv().await else {
            let message = "the driver of the run ended without an outcome; resume the run";
            return Err(Error::new(ErrorKind::Closed, message).with_run(&self.run));
        };
        let is_current = match &end.outcome {
            Ok(Outcome::Completed(_) | Outcome::Cancelled { .. }) => true,
            // Another process may have continued the run, so read the head of its log.
            Ok(_) => !is_past || end.head.is_none() || self.is_at(end.head).await?,
            Err(_) => !(end.has_begun && has_told.swap(true, Ordering::Relaxed)),
        };
        if is_current { Result::clone(&end.outcome) } else { self.watch_store(IdleTolerance::Any).await }
    }

    /// Returns whether this is the last record of the run.
    async fn is_at(&self, head: Option<HeadRef>) -> Result<bool> {
        let found = self.shared.committer.read(|| self.shared.store.head(&self.run)).await?;
        Ok(found.map(|found| found.head()) == head)
    }

    /// Follows a run that another process drives.
    async fn watch_store(&self, rest: IdleTolerance) -> Result<Outcome<S>> {
        let clock = &self.shared.clock;
        // The time since which the run has had no driver, and its last record at that time.
        let mut left = None;
        let mut pause = WATCH;
        loop {
            let head = self.shared.committer.read(|| self.shared.store.head(&self.run)).await?;
            let head = head.ok_or_else(|| missing(&self.run))?;
            if self.started.is_some_and(|started| started != (head.facts.created, head.facts.input)) {
                return Err(self.replaced_error());
            }
            let is_due = rest == IdleTolerance::NotDue
                && head.status == RunStatus::InProgress
                && head.wake_at.is_some_and(|at| at <= clock.now());
            if !is_due && let Some(outcome) = self.outcome(Some(&head)).await? {
                self.shared.admission.remove_waiting(&self.run, &head.facts);
                return Ok(outcome);
            }
            // A run in the line of this process gets a permit later. The lines of other processes are unknown.
            let is_in_line = self.shared.admission.is_waiting(&self.run);
            let is_ours = is_in_line || self.shared.driver(&self.run).is_some();
            let is_left = !(head.owner_alive || is_ours);
            left = match left {
                _ if !is_left => None,
                Some((id, since)) if id == head.id => Some((id, since)),
                _ => Some((head.id, clock.monotonic())),
            };
            let left_for = left.map_or(Duration::ZERO, |(_, since)| clock.monotonic().saturating_sub(since));
            if left_for > self.shared.limits.heartbeat_ttl / 3 {
                self.warn_unserved(&head.facts);
            }
            if left_for > self.shared.limits.heartbeat_ttl {
                if let Some(error) =
                    self.shared.recovery.claim_failure(&self.run).filter(|error| !error.is_retryable())
                {
                    return Err(error);
                }
                let is_takable = self.shared.recovery.serves(&head.facts.workflow)
                    && self.shared.services.tags.lacking(&head.facts).is_none();
                if !is_takable || self.shared.is_closing() {
                    return Err(self.has_no_driver(&head));
                }
            }
            pause = if is_in_line { (pause * 2).min(LINE_WATCH) } else { WATCH };
            clock.sleep(pause).await;
        }
    }

    /// Logs once that no process continues the run, unless this process serves its workflow.
    fn warn_unserved(&self, facts: &RunFacts) {
        let workflow = &facts.workflow;
        if self.shared.recovery.serves(workflow) || self.has_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(
            run = %self.run, %workflow,
            "no process drives the run, and this process does not serve its workflow; call `Runtime::serve` with its graph, in this or \
             another process"
        );
    }

    /// Returns the outcome of the run, if its head shows that it has ended or is idle.
    async fn outcome(&self, head: Option<&RunHead>) -> Result<Option<Outcome<S>>> {
        let rests = |head: &&RunHead| {
            head.status != RunStatus::InProgress || head.owner.is_none() && head.wake_at.is_some()
        };
        if head.filter(rests).is_none() {
            return Ok(None);
        }
        let loaded =
            self.shared.committer.read(|| load::load(&*self.shared.store, &self.graph, &self.run)).await?;
        let machine = &loaded.folded.machine;
        if self.start_id.is_some_and(|start_id| start_id != machine.start_id()) {
            return Err(self.replaced_error());
        }
        // The run may have continued after the read of its head.
        let rests = machine.status() != RunStatus::InProgress || machine.wake().is_some();
        Ok(rests.then(|| Outcome::of(machine, &loaded.state)))
    }

    /// Returns whether another handle belongs to the same start, as far as both handles know their start.
    fn is_of_same_start(&self, other: &Self) -> bool {
        self.start_id.zip(other.start_id).is_none_or(|(one, other)| one == other)
            && self.started.zip(other.started).is_none_or(|(one, other)| one == other)
    }

    fn replaced_error(&self) -> Error {
        let message = "the run was purged, and its id was started again; get a new handle";
        Error::new(ErrorKind::NotFound, message).with_run(&self.run)
    }

    fn has_no_driver(&self, head: &RunHead) -> Error {
        let patience = self.shared.limits.heartbeat_ttl;
        let tags = self.shared.services.tags.lacking(&head.facts);
        let with = tags.map(|tags| format!(" that has its tags ({tags})")).unwrap_or_default();
        let message = if head.is_queued() {
            format!(
                "no process started the run within {patience:?}: it waits for capacity in a process that is full or has ended; serve its \
                 workflow in a process with free capacity{with}, resume it, or wait again"
            )
        } else {
            format!(
                "no process drives the run: its owner has ended or released it, and no other process claimed it within {patience:?}; serve \
                 its workflow in a process{with}, or resume it"
            )
        };
        Error::new(ErrorKind::Closed, message).with_run(&self.run)
    }
}

impl<S: State> Clone for OutcomeSource<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Here(ended) => Self::Here(ended.clone()),
            Self::Queued(taken) => Self::Queued(taken.clone()),
            Self::Elsewhere => Self::Elsewhere,
        }
    }
}

impl<S: State> Clone for RunHandle<S> {
    /// Returns a further handle of the same run.
    fn clone(&self) -> Self {
        let (shared, graph) = (Arc::clone(&self.shared), self.graph.clone());
        Self {
            start_id: self.start_id,
            started: self.started,
            has_told: AtomicBool::new(self.has_told.load(Ordering::Relaxed)),
            has_warned: AtomicBool::new(self.has_warned.load(Ordering::Relaxed)),
            ..Self::new(shared, graph, self.run.clone(), self.link.clone())
        }
    }
}

impl<S: State> fmt::Debug for RunHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("run", &self.run)
            .field("workflow", self.graph.name())
            .field("driven_here", &self.is_driven_here())
            .field("queued", &self.is_queued())
            .finish_non_exhaustive()
    }
}
