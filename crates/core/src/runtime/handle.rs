//! What a caller holds of a run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

use super::load;
use super::outcome::Outcome;
use super::requests::signal::SignalRequest;
use super::shared::Shared;
use super::watch::WatchRequest;
use crate::clock::Timestamp;
use crate::compact::once::OnceReceiver;
use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::id::{Fingerprint, HeadRef, RunKey};
use crate::record::body::SignalKind;
use crate::record::{RunFacts, RunStatus};
use crate::state::State;
use crate::store::RunHead;

/// How often a run that goes on elsewhere is looked at.
const WATCH: Duration = Duration::from_millis(200);

/// The end of a run that rested is seen late by this share of the time for which it was waited for, and by no more than the interval of polls.
const PATIENT: u32 = 8;

/// How often one is looked at that waits here for room, at the least: there may be thousands, and the line tells first.
const LINE_WATCH: Duration = Duration::from_secs(2);

/// A run that was started or resumed. Dropping the handle changes nothing: the run goes on.
pub struct RunHandle<S: State> {
    shared: Arc<Shared>,
    graph: Graph<S>,
    run: RunKey,
    link: Link<S>,
    /// Which life of the run it is of, where its start or resume took the run.
    life: Option<Uuid>,
    /// When and with what the run was started that it is of, where it was found in the store.
    started: Option<(Timestamp, Fingerprint)>,
    /// Whether a wait has returned the error with which the driver here stopped.
    has_told: AtomicBool,
    /// Whether it was logged that nobody moves the run.
    has_warned: AtomicBool,
}

/// Which runs a watch waits for although they rest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// None: a rest is an outcome.
    Any,
    /// Those whose time has come: a process that serves the workflow claims them.
    NotDue,
}

/// How the driver of a run in this process ended.
pub(crate) struct DriverEnd<S: State> {
    pub(crate) outcome: Result<Outcome<S>>,
    /// The last record of which the driver knew that it is durable; absent if there is none.
    pub(crate) head: Option<HeadRef>,
    /// Whether the run may be on record.
    pub(crate) has_begun: bool,
}

/// How a handle hears of its run.
pub(crate) enum Link<S: State> {
    /// The run goes on here. Boxed, because room for an outcome is kept as long as there is none.
    Here(OnceReceiver<Box<DriverEnd<S>>>),
    /// It waits here for room; the handle of what it came to follows, or why it could not be taken up.
    Queued(watch::Receiver<Option<Result<RunHandle<S>>>>),
    /// It goes on elsewhere, or rests.
    Elsewhere,
}

impl<S: State> RunHandle<S> {
    pub(crate) fn new(shared: Arc<Shared>, graph: Graph<S>, run: RunKey, link: Link<S>) -> Self {
        Self {
            shared,
            graph,
            run,
            link,
            life: None,
            started: None,
            has_told: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Makes it one of the run with these facts alone, as [`of_life`](Self::of_life) where its life is not known.
    pub(crate) fn of_start(self, facts: &RunFacts) -> Self {
        Self { started: Some((facts.created, facts.input)), ..self }
    }

    /// Makes it one of this life of the run alone: what others start anew under the name is none of it.
    pub(crate) fn of_life(self, life: Uuid) -> Self {
        Self { life: Some(life), ..self }
    }

    /// Returns the run's key.
    pub fn run(&self) -> &RunKey {
        &self.run
    }

    /// Tells whether this handle's start or resume took the run; otherwise it had ended, goes on elsewhere, or waits for room.
    pub fn is_driven_here(&self) -> bool {
        match &self.link {
            Link::Here(_) => true,
            Link::Queued(taken) => {
                matches!(&*taken.borrow(), Some(Ok(taken)) if taken.is_driven_here() && self.is_of_life_of(taken))
            }
            Link::Elsewhere => false,
        }
    }

    /// Tells whether the run is recorded and waits here for room: see [`RunLimits`](super::RunLimits).
    ///
    /// One that another process finished meanwhile waits here no more once this process hears of it: from a store that sends notices, from
    /// a [`wait`](Self::wait), or when its turn comes.
    pub fn is_queued(&self) -> bool {
        match &self.link {
            Link::Here(_) => false,
            // Without a sender it was taken out of the line.
            Link::Queued(taken) => taken.borrow().is_none() && taken.has_changed().is_ok(),
            Link::Elsewhere => self.shared.admission.is_waiting(&self.run),
        }
    }

    /// Waits until nothing moves the run any more. What is returned rests on durable records, unless checkpoints are disabled.
    ///
    /// A run that goes on elsewhere is watched as long as it has a driver. If its owner dies, or lets it go, and no process takes
    /// it up within [`heartbeat_ttl`](super::RuntimeBuilder::heartbeat_ttl), the wait ends with [`ErrorKind::Closed`], or with the
    /// reason why it cannot be taken up here. Where its workflow is [served](super::Runtime::serve) by this runtime, and this runtime has
    /// the [tags](super::RuntimeBuilder::tags) that the run asks for, it is taken up in time, and waited for. So is a run that waits in this
    /// process for room, however long. One that waits for room elsewhere, or was unpaused before its first claim, is watched as any other:
    /// the store does not tell whether it stands in line somewhere. Nothing of it is lost, and it can be waited for again.
    ///
    /// # Errors
    ///
    /// Why the run stopped without an outcome; it is in the store as of its last record and can be resumed.
    ///
    /// - [`ErrorKind::Fenced`]: another executor has claimed the run, and it goes on there; or this process could not say that it is
    ///   alive, and let go of it.
    /// - [`ErrorKind::Closed`]: it has no driver; serve its workflow, or resume it.
    /// - [`ErrorKind::GraphChanged`]: its workflow is served here with a graph that does not fit it, and no other process has taken it up.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: the store could not be written to, or read, after all
    ///   [retries](super::RuntimeBuilder::store_retries).
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the log cannot be read.
    /// - [`ErrorKind::NotFound`]: the run was purged, also if another was started under its name since.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the run goes on, and can be waited for again.
    ///
    /// <!-- held by: rests::a_handle_tells_of_no_other_run_of_its_name, queued::a_handle_of_a_run_in_line_or_elsewhere_tells_of_no_other_run_of_its_name, endings::whoever_watches_a_run_that_asks_for_a_tag_is_told_that_nobody_here_has_it, endings::a_run_whose_store_failed_goes_on_when_the_store_is_back, waits::second_wait_tells_later_outcome -->
    pub async fn wait(&self) -> Result<Outcome<S>> {
        match &self.link {
            Link::Here(ended) => self.wait_here(ended, &self.has_told).await,
            Link::Elsewhere => self.watch(Rest::Any).await,
            Link::Queued(taken) => {
                let mut taken = taken.clone();
                let taken = tokio::select! {
                    biased;
                    taken = taken.wait_for(Option::is_some) => taken.ok().and_then(|taken| taken.clone()),
                    // Others may have room for it first, or cancel it.
                    outcome = self.watch(Rest::Any) => return outcome,
                };
                match taken {
                    // What others started under its name had the room.
                    Some(Ok(handle)) if !self.is_of_life_of(&handle) => Err(self.began_anew()),
                    Some(Ok(handle)) => match &handle.link {
                        Link::Here(ended) => handle.wait_here(ended, &self.has_told).await,
                        _ => Box::pin(handle.wait()).await,
                    },
                    Some(Err(error)) => Err(error),
                    None if self.shared.is_closing() => {
                        let head = self.shared.store.head(&self.run).await;
                        // As far as it got elsewhere before it was left to others.
                        let outcome = self.outcome(head.ok().flatten().as_ref()).await;
                        Ok(outcome.ok().flatten().unwrap_or(Outcome::Released))
                    }
                    None => self.watch(Rest::Any).await,
                }
            }
        }
    }

    /// Waits for the end of the driver here, or for what follows if the run went on since.
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
            // Others may have moved it since: the head says so.
            Ok(_) => !is_past || end.head.is_none() || self.is_at(end.head).await?,
            Err(_) => !(end.has_begun && has_told.swap(true, Ordering::Relaxed)),
        };
        if is_current { Result::clone(&end.outcome) } else { self.watch(Rest::Any).await }
    }

    /// Whether this is the last record of the run.
    async fn is_at(&self, head: Option<HeadRef>) -> Result<bool> {
        let found = self.shared.committer.read(|| self.shared.store.head(&self.run)).await?;
        Ok(found.map(|found| found.head()) == head)
    }

    /// Waits until the run is completed, however often it rests and a process claims it again, in this process or in another. Returns its state.
    ///
    /// A run that is answered, or whose time has come, goes on only in a process that [serves](super::Runtime::serve) its workflow. If no process
    /// claims it for a third of [`heartbeat_ttl`](super::RuntimeBuilder::heartbeat_ttl), a process that does not serve the workflow logs one
    /// warning. After the whole `heartbeat_ttl` the wait ends with [`ErrorKind::Closed`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongStatus`] with the reason if it failed or was cancelled, [`ErrorKind::NotFound`] if it was purged, also if
    /// another was started under its name since, and as [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the run goes on, and can be waited for again.
    ///
    /// <!-- held by: endings::whoever_watches_a_run_that_nobody_serves_is_told, unserved::unserved_run_is_reported_once -->
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
                // A rest may last for months: the longer it does, the rarer are the looks.
                Ok(_) => {
                    let rested = clock.monotonic().saturating_sub(begun);
                    let rarest = self.shared.limits.poll.max(WATCH);
                    clock.sleep((rested / PATIENT).clamp(WATCH, rarest)).await;
                }
                // It goes on elsewhere.
                Err(error) if error.kind() == ErrorKind::Fenced => {}
                Err(error) => return Err(error),
            }
            outcome = self.watch(Rest::NotDue).await;
        }
    }

    /// Follows a run that goes on elsewhere.
    async fn watch(&self, rest: Rest) -> Result<Outcome<S>> {
        let clock = &self.shared.clock;
        // Since when it has had no driver, and as of which record.
        let mut left = None;
        let mut pause = WATCH;
        loop {
            let head = self.shared.committer.read(|| self.shared.store.head(&self.run)).await?;
            let head = head.ok_or_else(|| missing(&self.run))?;
            if self.started.is_some_and(|started| started != (head.facts.created, head.facts.input)) {
                return Err(self.began_anew());
            }
            let is_due = rest == Rest::NotDue
                && head.status == RunStatus::InProgress
                && head.wake_at.is_some_and(|at| at <= clock.now());
            if !is_due && let Some(outcome) = self.outcome(Some(&head)).await? {
                self.shared.admission.leave(&self.run, &head.facts);
                return Ok(outcome);
            }
            // A run in line here has room in time; of other lines nothing is known.
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
                if let Some(error) = self.shared.recovery.why(&self.run).filter(|error| !error.is_retryable())
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

    /// Logs once that no process goes on with the run, if this one does not serve its workflow.
    fn warn_unserved(&self, facts: &RunFacts) {
        let workflow = &facts.workflow;
        if self.shared.recovery.serves(workflow) || self.has_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(
            run = %self.run, %workflow,
            "no process goes on with the run, and this one does not serve its workflow; call `Runtime::serve` with its graph, here or in another process"
        );
    }

    /// Returns what the run came to, if it has ended or rests by its head.
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
        if self.life.is_some_and(|life| life != machine.life()) {
            return Err(self.began_anew());
        }
        // It may have gone on since.
        let rests = machine.status() != RunStatus::InProgress || machine.wake().is_some();
        Ok(rests.then(|| Outcome::of(machine, &loaded.state)))
    }

    /// Tells whether another handle is of the same life of the run, as far as both know theirs.
    fn is_of_life_of(&self, other: &Self) -> bool {
        self.life.zip(other.life).is_none_or(|(one, other)| one == other)
            && self.started.zip(other.started).is_none_or(|(one, other)| one == other)
    }

    fn began_anew(&self) -> Error {
        let message = "the run was purged, and another was started under its name";
        Error::new(ErrorKind::NotFound, message).with_run(&self.run)
    }

    fn has_no_driver(&self, head: &RunHead) -> Error {
        let patience = self.shared.limits.heartbeat_ttl;
        let tags = self.shared.services.tags.lacking(&head.facts);
        let with = tags.map(|tags| format!(" that has its tags ({tags})")).unwrap_or_default();
        let message = if head.is_queued() {
            format!(
                "no process has begun with the run for {patience:?}: it waits for room in a process that is full, or that has ended; serve \
                 its workflow in some process with room{with}, resume it, or wait again"
            )
        } else {
            format!(
                "no process goes on with the run: its owner has ended or let it go, and no other has taken it up for {patience:?}; serve its \
                 workflow in some process{with}, or resume it"
            )
        };
        Error::new(ErrorKind::Closed, message).with_run(&self.run)
    }

    /// Asks the run to stop for good: see [`Runtime::cancel`](super::Runtime::cancel).
    ///
    /// # Errors
    ///
    /// As [`Runtime::cancel`](super::Runtime::cancel).
    ///
    /// <!-- held by: cancelling::of_two_cancellations_one_is_recorded_however_they_are_made, model::every_operation_does_what_the_documentation_says -->
    pub fn cancel(&self, reason: impl Into<String>) -> SignalRequest {
        SignalRequest::new(&self.shared, &self.run, Ok(SignalKind::Cancel { reason: reason.into() }))
    }

    /// Watches the run: see [`Runtime::watch`](super::Runtime::watch).
    pub fn events(&self) -> WatchRequest {
        WatchRequest::new(&self.shared, &self.run)
    }
}

impl<S: State> Clone for Link<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Here(ended) => Self::Here(ended.clone()),
            Self::Queued(taken) => Self::Queued(taken.clone()),
            Self::Elsewhere => Self::Elsewhere,
        }
    }
}

impl<S: State> Clone for RunHandle<S> {
    /// A further handle of the same run.
    fn clone(&self) -> Self {
        let (shared, graph) = (Arc::clone(&self.shared), self.graph.clone());
        Self {
            life: self.life,
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
