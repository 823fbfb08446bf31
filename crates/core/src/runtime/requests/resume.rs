//! Resumes a run: claims it and continues from its last record.

use crate::kernel::recovery::ClaimTarget;
use crate::runtime::writes::registration::DriverRegistration;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::drive::drive;
use crate::claim::ClaimId;
use crate::clock::Timestamp;
use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{CheckpointPolicy, Graph};
use crate::id::{Epoch, RunKey};
use crate::kernel::admission::RunPermit;
use crate::kernel::event::Event as RunEventKind;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::run_writer::RunWriter;
use crate::kernel::tasks::finish;
use crate::record::RunStatus;
use crate::record::body::{ClaimRecord, RecordEvent, StatusChange};
use crate::runtime::child_control::orphan::is_wanted;
use crate::runtime::child_control::poll_children::poll_children;
use crate::runtime::driver::DriverInput;
use crate::runtime::driver::{PendingRecords, check_transactions};
use crate::runtime::handle::{OutcomeSource, RunHandle};
use crate::runtime::outbox::take;
use crate::runtime::writes::pause_events::parked;
use crate::runtime::writes::run_writer::ConflictRetries;
use crate::state::{Channels, State};
use crate::store::RunHead;
use crate::telemetry::LostClaim;

/// Options for claiming a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClaimOptions {
    pub(crate) allow_changed_graph: bool,
    pub(crate) take_over: bool,
    /// Whether recovery claims the run. If so, a run that makes no progress is paused.
    pub(crate) recovery: bool,
}

/// A prepared resume of a run. `.await` claims the run.
///
/// # Cancel safety
///
/// Cancel safe: after the first poll, the request completes even if the caller drops the future.
#[must_use = "a run is resumed only when the future is awaited"]
pub struct ResumeRequest<S: State> {
    shared: Arc<RuntimeInner>,
    graph: Graph<S>,
    run: Result<RunKey>,
    policy: CheckpointPolicy,
    terms: ClaimOptions,
}

impl<S: State> ResumeRequest<S> {
    pub(crate) fn new(shared: Arc<RuntimeInner>, graph: Graph<S>, run: Result<RunKey>) -> Self {
        Self { shared, graph, run, policy: CheckpointPolicy::default(), terms: ClaimOptions::default() }
    }

    /// Allows the resume even if unfinished nodes of the run differ between the graph and the recorded graph. Without it, the resume fails with
    /// [`ErrorKind::GraphChanged`].
    pub fn allow_changed_graph(mut self) -> Self {
        self.terms.allow_changed_graph = true;
        self
    }

    /// Claims the run even if its owner is alive. The former owner stops when it next writes a record. No acknowledged record is lost.
    pub fn take_over(mut self) -> Self {
        self.terms.take_over = true;
        self
    }

    /// Sets when the run writes checkpoints. By default it writes a checkpoint after every node.
    pub fn checkpoints(mut self, policy: CheckpointPolicy) -> Self {
        self.policy = policy;
        self
    }
}

/// Returns an error if a run cannot be resumed. The error says what to do instead.
fn check(head: &RunHead, shared: &RuntimeInner, terms: &ClaimOptions) -> Result<()> {
    let refuse = |kind, message: String| Err(Error::new(kind, message).with_run(&head.run));
    match head.status {
        RunStatus::Completed | RunStatus::Cancelled => {
            refuse(ErrorKind::WrongStatus, format!("the run is {} and cannot be resumed", head.status))
        }
        RunStatus::Failed => {
            refuse(ErrorKind::WrongStatus, "the run is failed; call `Runtime::retry`, then resume it".into())
        }
        _ => match head.owner {
            Some(owner) if head.owner_alive && owner != shared.executor && !terms.take_over => {
                let message = format!(
                    "process {owner} is alive and owns the run; wait for it, or claim the run with `.take_over()`"
                );
                refuse(ErrorKind::Conflict, message)
            }
            _ => Ok(()),
        },
    }
}

/// Returns whether a run waits for an answer, a message or a time.
fn is_at_rest(head: &RunHead) -> bool {
    head.status != RunStatus::InProgress || head.owner.is_none() && head.wake_at.is_some()
}

/// Returns whether the run's wake time has passed.
fn is_due(head: &RunHead, now: Timestamp) -> bool {
    head.wake_at.is_some_and(|wake| wake <= now)
}

/// Returns whether a run must not be claimed, because it has ended or still waits.
pub(super) fn is_left(head: &RunHead, now: Timestamp) -> bool {
    head.status.is_finished() || is_at_rest(head) && !is_due(head, now)
}

/// Claims a run and drives it. An idle run that is not due is not claimed. The handle then returns the reason why the run waits.
///
/// `known` is what the caller already knows about the run, which saves a read. `permit` is capacity that is already reserved for the run.
pub(crate) async fn resume<S: State>(
    shared: &Arc<RuntimeInner>,
    graph: &Graph<S>,
    run: &RunKey,
    policy: CheckpointPolicy,
    terms: &ClaimOptions,
    mut known: Option<ClaimTarget>,
    mut permit: Option<RunPermit>,
) -> Result<RunHandle<S>> {
    check_transactions(shared, graph).map_err(|error| error.with_run(run))?;
    let mut races = ConflictRetries::new();
    loop {
        let known = match known.take() {
            Some(known) => known,
            None => shared.store.head(run).await?.ok_or_else(|| missing(run))?.into(),
        };
        let meter = || shared.telemetry().of(Some(graph.name()));
        // Boxed: large, and part of each start and each node with a child, which seldom reach it.
        let claimed = Box::pin(claim(shared, graph, known, policy, terms, &mut permit)).await;
        match claimed.inspect_err(|error| meter().not_claimed(classify_failure(error)))? {
            ClaimResult::Taken(handle) => return Ok(handle),
            ClaimResult::Overtaken(epoch) => {
                meter().not_claimed(LostClaim::Late);
                let head = shared.store.head(run).await?.ok_or_else(|| missing(run))?;
                // An earlier claim may have succeeded although its reply was lost: this executor then owns the run, without a driver.
                if head.epoch != epoch && head.owner != Some(shared.executor) {
                    let message = "another process claimed the run at the same time; the run continues there";
                    return Err(Error::new(ErrorKind::Conflict, message).with_run(run));
                }
            }
        }
        races.count_conflict(run).await?;
    }
}

/// Classifies a failed claim.
fn classify_failure(error: &Error) -> LostClaim {
    use ErrorKind::{Closed, Conflict, Fenced, NotFound, WrongStatus};
    match error.kind() {
        Conflict | WrongStatus | NotFound | Closed | Fenced => LostClaim::Late,
        _ => LostClaim::Failed,
    }
}

/// The result of one attempt to claim a run.
enum ClaimResult<S: State> {
    /// The run was claimed, or it did not need a claim. The handle belongs to the run.
    Taken(RunHandle<S>),
    /// Another writer appended a record first, so this claim wrote nothing. The writer may have claimed the run or only sent a signal. The epoch is
    /// the epoch of the run that this claim had read. If the run was purged and started again, the next attempt reads the new run.
    Overtaken(Epoch),
}

async fn claim<S: State>(
    shared: &Arc<RuntimeInner>,
    graph: &Graph<S>,
    ClaimTarget { head, tip, unwritten }: ClaimTarget,
    policy: CheckpointPolicy,
    terms: &ClaimOptions,
    permit: &mut Option<RunPermit>,
) -> Result<ClaimResult<S>> {
    let run = &head.run;
    let watching = || {
        RunHandle::new(Arc::clone(shared), graph.clone(), run.clone(), OutcomeSource::Elsewhere)
            .of_start(&head.facts)
    };
    check(&head, shared, terms)?;
    if head.facts.workflow != *graph.name() {
        let message =
            format!("the run belongs to the workflow `{}`, not `{}`", head.facts.workflow, graph.name());
        return Err(Error::new(ErrorKind::Invalid, message).with_run(run));
    }
    let due = is_due(&head, shared.clock.now());
    if is_at_rest(&head) && !due {
        return Ok(ClaimResult::Taken(watching()));
    }
    if terms.recovery && head.status == RunStatus::InProgress && !is_wanted(shared, run, &head.facts).await? {
        // The stop takes effect at once, or, if the owner is dead, with the next claimer.
        return Ok(ClaimResult::Taken(watching()));
    }
    // Kept over retries, so that no other run uses the room meanwhile.
    let room = permit.get_or_insert_with(|| shared.admission.admit(run, &head.facts)).clone();
    let registration = match DriverRegistration::enter(shared, run, room, terms.recovery) {
        // A process that serves the workflow may have claimed it just before: the run is active, which is the caller's goal.
        Err(error)
            if error.kind() == ErrorKind::Conflict
                && !terms.recovery
                && shared.registry.is_recovered(run) =>
        {
            return Ok(ClaimResult::Taken(watching()));
        }
        entered => entered?,
    };
    let mut reservation = None;
    let mut tip = match tip {
        Some(tip) => tip.with_plan(graph.plan())?,
        None => {
            if terms.recovery {
                reservation = Some(shared.recovery.read_budget.reserve().await);
            }
            RunWriter::load(shared, run, Some(graph.plan())).await?
        }
    };
    let state = tip.state(graph)?;
    if let Some(reservation) = &mut reservation {
        reservation.resize(tip.folded.base_bytes + tip.folded.since_bytes);
    }
    let (seq, epoch) = (tip.folded.last.seq, tip.folded.last.epoch);
    if (tip.folded.last.status, tip.folded.last.owner) != (head.status, head.owner) {
        // It became idle, ended, or was claimed since the check, which is now void.
        return Ok(ClaimResult::Overtaken(head.epoch));
    }
    let now = shared.clock.now();
    let is_asleep = head.owner.is_none() && tip.folded.machine.wake().is_none_or(|wake| wake > now);
    if due && is_asleep && tip.folded.machine.is_delivering() {
        // It wakes only for its outbox messages, and stays idle.
        return match Box::pin(take(shared, &mut tip)).await {
            Ok(()) => Ok(ClaimResult::Taken(watching())),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(ClaimResult::Overtaken(epoch)),
            Err(error) => Err(error.with_run(run)),
        };
    }
    if terms.recovery && tip.folded.machine.child_polls().is_some() {
        match poll_children(shared, &mut tip).await {
            Ok(false) => {}
            Ok(true) => {
                // Any process may claim it now.
                shared.recovery.notify_work();
                return Ok(ClaimResult::Taken(watching()));
            }
            Err(error) if error.kind() == ErrorKind::Conflict => return Ok(ClaimResult::Overtaken(epoch)),
            Err(error) => return Err(error.with_run(run)),
        }
    }
    let machine = &tip.folded.machine;
    let misfits = machine.misfits();
    if !(misfits.is_empty()
        || terms.allow_changed_graph
            && misfits.iter().all(|(name, _)| graph.plan().find(name.as_str()).is_some()))
    {
        let listed: Vec<_> = misfits.iter().map(|(name, why)| format!("`{name}` {why}")).collect();
        let message = format!(
            "the graph changed where the run is: {}; resume with the earlier graph, or with `.allow_changed_graph()`",
            listed.join(", ")
        );
        return Err(Error::new(ErrorKind::GraphChanged, message).with_run(run).with_seq(seq));
    }
    if terms.recovery && machine.claims_without_progress() >= shared.limits.max_claims {
        drop(registration);
        let reason = format!(
            "claims without progress: {}; inspect its node, then unpause it",
            machine.claims_without_progress()
        );
        tracing::error!(%run, reason, "paused a run that makes no progress");
        let events = parked(machine, &reason, shared.clock.now());
        return match tip.append(shared, None, &events).await {
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(ClaimResult::Overtaken(epoch)),
            Err(error) => Err(error.with_run(run)),
            Ok(()) => {
                shared.telemetry().of(Some(graph.name())).parked();
                Ok(ClaimResult::Taken(watching()))
            }
        };
    }
    let (changed, secret) = (machine.changed_graph(), machine.new_secrets());
    let (settled, unmet) = machine.decide_starts();
    let unmet = unmet.filter(|_| machine.in_flight().is_empty());
    let graph_changed = changed.is_some();
    let edges = graph_changed.then(|| Arc::clone(&graph.plan().targets));
    let mut events = vec![RecordEvent::Claim(ClaimRecord {
        executor: shared.executor,
        graph: changed,
        edges,
        secret,
        settled,
    })];
    events.extend(unmet.map(|failure| RecordEvent::Status(StatusChange::Failed(failure))));
    tip.claim(shared.executor).map_err(|error| error.with_run(run))?;
    if tip.may_lack(graph) {
        tip.migrate(graph, Channels::from_json(state.to_channels_json()?.get())?);
    }
    let mut append = tip.record(&events).map_err(|error| error.with_run(run))?;
    if let Some(mut first) = unwritten {
        first.records.append(&mut append.records);
        append = first;
    }
    let RunWriter { folded, log, .. } = tip;
    let claim = ClaimId { start_id: folded.machine.start_id(), epoch: log.epoch };
    let (registration, durable) = match registration.claim(append, claim).await {
        Ok(taken) => taken,
        Err(error) if error.kind() == ErrorKind::Conflict => return Ok(ClaimResult::Overtaken(epoch)),
        Err(error) => return Err(error),
    };
    shared.admission.remove_waiting(run, &head.facts);
    shared.telemetry().of(Some(graph.name())).claimed(|| {
        let now = shared.clock.now();
        let due = head.wake_at.filter(|wake| *wake <= now);
        now.since(due.unwrap_or(head.updated).max(head.updated))
    });
    let (epoch, recorded) = (log.epoch, folded.machine.ended_count());
    shared.emit(run, || RunEventKind::Resumed { epoch, recorded, graph_changed });
    let outbox =
        PendingRecords::new(run.clone(), shared.committer.clone(), None, Some(durable), registration.term);
    let parts =
        DriverInput { machine: folded.machine, state, log, outbox, first: None, facts: head.facts.into() };
    Ok(ClaimResult::Taken(drive(Arc::clone(shared), graph.clone(), policy, registration, parts)))
}

impl<S: State> IntoFuture for ResumeRequest<S> {
    type Output = Result<RunHandle<S>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(async move {
            let run = self.run?;
            resume(&self.shared, &self.graph, &run, self.policy, &self.terms, None, None).await
        }))
    }
}

impl<S: State> std::fmt::Debug for ResumeRequest<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResumeRequest")
            .field("workflow", self.graph.name())
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}
