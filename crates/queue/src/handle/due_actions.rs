//! Actions for runs that got a slot, and for slots of dead holders. An action may run twice.

use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Position, Runtime, queue_name, queue_pause_reason};
use ferrata_core::store::RunHead;
use ferrata_core::{Epoch, Error, ErrorKind, ExecutorId, Result, RunKey, Seq, Timestamp};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::dwell_times::DwellTimes;
use super::recorded_starts::RecordedStarts;
use super::{QueueCommand, closed_error};
use crate::queue_run::BY;
use crate::state::{
    ExpiredStart, FoundRun, OverStart, QueueOp, QueueState, ReplacedStart, SlotHolder, SlotKind, StartId,
};

/// How long the queue waits for a run that is not in the store while its starter is alive. The starter is expected to record it. The run holds a slot
/// or is to be cancelled.
const MISSING: Duration = Duration::from_secs(300);

/// How long the queue waits for the run of a start while another start's run has the same id. The starter's process has probably died, and the slot
/// is needed. The start cannot be recorded before the other run is purged.
const OVERTAKEN: Duration = Duration::from_secs(30);

/// Number of checks before the queue reclaims the slot of a run that was woken and has not claimed it: a minute with the default interval.
const WOKEN: u32 = 60;

/// A pending action for a run or a node.
pub(super) enum DueAction {
    /// An idle run was granted a slot: the action answers its question.
    Wake { held: Box<SlotHolder>, question: String },
    /// A run on hold was granted a slot: the action unpauses the run.
    Begin { held: Box<SlotHolder> },
    /// A run got no slot by its deadline: the action cancels the run.
    Cancel { late: ExpiredStart },
    /// Another start has replaced this start: the action cancels its run.
    Replace { replaced: Box<ReplacedStart> },
}

/// Returns all pending actions.
pub(super) fn all_due(ledger: &QueueState) -> Vec<(String, DueAction)> {
    let held = ledger.held.iter().filter_map(|(id, held)| {
        let act = match &held.question {
            Some(_) if held.woken.is_some() => return None,
            Some(question) => DueAction::Wake { held: Box::new(held.clone()), question: question.clone() },
            None if held.on_hold => DueAction::Begin { held: Box::new(held.clone()) },
            None => return None,
        };
        Some((id.clone(), act))
    });
    let late = ledger.expired.iter().map(|(id, late)| (id.clone(), DueAction::Cancel { late: late.clone() }));
    let replaced = ledger.replaced.iter().map(|(id, replaced)| {
        let replaced = Box::new(replaced.clone());
        (id.clone(), DueAction::Replace { replaced })
    });
    held.chain(late).chain(replaced).collect()
}

impl DueAction {
    /// Performs the action and sends its result to the queue. The next check retries a failed action.
    pub(super) async fn execute(self, watch: HolderWatch, id: String) {
        let HolderWatch { runtime, commands, seen, .. } = &watch;
        let note = |op| drop(commands.send(QueueCommand::Do { op, reply: None }));
        match self {
            Self::Wake { held, question } => {
                let Ok(answer) = Answer::accept("slot granted") else { return };
                match runtime.respond(&held.run, &question, answer).by(BY).await.map_err(|error| error.kind())
                {
                    Ok(()) | Err(ErrorKind::AlreadyExists) => note(QueueOp::Woken { id, question }),
                    // The node has not asked the question yet, or no longer asks it.
                    Err(ErrorKind::NotFound)
                        if seen.for_longer(
                            &id,
                            held.at,
                            runtime.poll_intervals().look.saturating_mul(WOKEN),
                        ) =>
                    {
                        let head = runtime.head(&held.run).await;
                        if head.is_ok_and(|head| !may_still_rest(&held, head.as_ref())) {
                            note(QueueOp::Gone { id, seen: held });
                        }
                    }
                    Err(kind) => {
                        tracing::debug!(run = %held.run, ?kind, "cannot wake a run that got a slot; will retry");
                        watch.check(vec![(id, *held)]).await;
                    }
                }
            }
            Self::Begin { held } => {
                let recorded = watch.recorded_starts(&id, &held);
                match start_granted_run(runtime, &id, &held, commands).await {
                    Ok(BeginResult::Begun(run)) => {
                        drop(commands.send(QueueCommand::Begun { id, at: held.at, run }));
                    }
                    Ok(BeginResult::Ended { start_id, ended_at }) => {
                        drop(commands.send(QueueCommand::Ended { id, start_id, ended_at }));
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        if let Some(op) = watch.remove_over_starts(id, *held, &recorded, None).await {
                            note(op);
                        }
                    }
                    // The next check retries it.
                    Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::WrongStatus) => {}
                    Err(error) => {
                        tracing::warn!(run = %held.run, %error, "cannot start a queued run that got a slot; will retry");
                    }
                }
            }
            Self::Replace { replaced } => {
                if let Some(op) = watch.cancel_replaced(id, &replaced).await {
                    note(op);
                }
            }
            Self::Cancel { late: ExpiredStart { run, at } } => {
                let cancelled = async {
                    let head = confirm_due(runtime, &id, &run, at, commands).await?.head();
                    runtime.cancel(&run, "it got no slot by its deadline").by(BY).at(head).await
                };
                match cancelled.await {
                    Ok(()) => note(QueueOp::Forgotten { id, at }),
                    // The run has ended.
                    Err(error) if error.kind() == ErrorKind::WrongStatus => {
                        note(QueueOp::Forgotten { id, at })
                    }
                    // The starter is about to record the run, or is dead.
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        if seen.for_longer(&id, at, MISSING) {
                            note(QueueOp::Forgotten { id, at });
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => {
                        tracing::warn!(%run, %error, "cannot cancel a queued run after its deadline; will retry");
                    }
                }
            }
        }
    }
}

/// The result of starting a run that was granted a slot. All of it comes from one read of the head, because another run may have the id at the next
/// read.
enum BeginResult {
    /// The run is no longer on hold for its queue.
    Begun(Option<FoundRun>),
    /// The run ended before.
    Ended { start_id: Option<StartId>, ended_at: Seq },
}

/// Unpauses a run that was granted a slot, if the run is on hold for its queue.
async fn start_granted_run(
    runtime: &Runtime,
    id: &str,
    held: &SlotHolder,
    commands: &UnboundedSender<QueueCommand>,
) -> Result<BeginResult> {
    let head = confirm_due(runtime, id, &held.run, held.at, commands).await?;
    if head.status.is_finished() {
        return Ok(BeginResult::Ended { start_id: StartId::of(&head.facts), ended_at: head.seq });
    }
    if head.status != RunStatus::Interrupted {
        return Ok(BeginResult::Begun(FoundRun::of(&head)));
    }
    if head.epoch != Epoch::NEVER {
        // The run was revived. If a person paused it, the run has its slot and stays paused.
        let now = runtime.checkpoint(&held.run, Position::Latest).await?;
        if now.record != head.id {
            return Err(Error::new(ErrorKind::Conflict, "the run has changed").with_run(&held.run));
        }
        if now.paused != queue_name(&head.facts).map(queue_pause_reason) {
            return Ok(BeginResult::Begun(FoundRun::of(&head)));
        }
    }
    runtime.start_held(&head, BY).await?;
    Ok(BeginResult::Begun(FoundRun::of(&head)))
}

/// Reads the head of the run, then confirms with the queue that the action due since `at` is still due. The head must be read first: after a long
/// stall the run may have ended and a new run may have its id.
async fn confirm_due(
    runtime: &Runtime,
    id: &str,
    run: &RunKey,
    at: Timestamp,
    commands: &UnboundedSender<QueueCommand>,
) -> Result<RunHead> {
    let missing = || Error::new(ErrorKind::NotFound, "the run is not recorded yet").with_run(run);
    let head = runtime.head(run).await?.ok_or_else(missing)?;
    let (reply, said) = oneshot::channel();
    // The actor stops only with the runtime.
    let _ = commands.send(QueueCommand::IsDue { id: id.to_owned(), at, reply });
    match said.await.map_err(|_| closed_error())?? {
        true => Ok(head),
        false => Err(Error::new(ErrorKind::Conflict, "the action is no longer due").with_run(run)),
    }
}

/// Checks the holders of a queue and acts for them, with this process's knowledge of their runs.
#[derive(Clone)]
pub(super) struct HolderWatch {
    pub(super) runtime: Runtime,
    pub(super) commands: UnboundedSender<QueueCommand>,
    pub(super) seen: DwellTimes,
    pub(super) recorded: RecordedStarts,
}

impl HolderWatch {
    /// Releases the slots of dead holders.
    pub(super) async fn check(&self, some: Vec<(String, SlotHolder)>) {
        for (id, held) in some {
            let recorded = self.recorded_starts(&id, &held);
            // A later check retries unreadable runs.
            let Ok(head) = self.runtime.head(&held.run).await else { continue };
            let woken = self.runtime.poll_intervals().look.saturating_mul(WOKEN);
            let op = match held.kind {
                SlotKind::Run => self.remove_over_starts(id, held, &recorded, head.as_ref()).await,
                SlotKind::Node => is_slot_unused(&id, &held, head.as_ref(), woken, &self.seen)
                    .then(|| QueueOp::Gone { id, seen: Box::new(held) }),
            };
            if let Some(op) = op {
                drop(self.commands.send(QueueCommand::Do { op, reply: None }));
            }
        }
    }

    /// Removes the nodes of dead processes from the line, so that no grant goes to them. A process is dead if it was dead at two checks.
    pub(super) async fn check_executors(&self, executors: Vec<ExecutorId>) {
        for executor in executors {
            // An unreadable heartbeat counts as alive.
            if !matches!(self.runtime.store().is_alive(&executor).await, Ok(false)) {
                continue;
            }
            if self.seen.for_longer(&executor.to_string(), Timestamp::default(), Duration::ZERO) {
                let op = QueueOp::LeaveExecutor(executor);
                drop(self.commands.send(QueueCommand::Do { op, reply: None }));
            }
        }
    }

    /// Returns the starts in `held` for which this process has seen a run in the store. Call this method before reading the head. Otherwise a run
    /// that is recorded between the two calls would look purged.
    fn recorded_starts(&self, id: &str, held: &SlotHolder) -> Vec<StartId> {
        held.start_ids.iter().copied().filter(|start| self.recorded.has(id, *start)).collect()
    }

    /// Returns the operation that removes finished starts from a slot, and adds the start of the run that is in the store. A start without a run
    /// keeps its slot, unless `recorded` names it.
    async fn remove_over_starts(
        &self,
        id: String,
        held: SlotHolder,
        recorded: &[StartId],
        head: Option<&RunHead>,
    ) -> Option<QueueOp> {
        let has_ended = head.is_some_and(|head| head.status.is_finished());
        let found = head.map(FoundRun::of_holder);
        if !held.has_start_ids() || matches!(found, Some(None)) {
            let is_gone = has_ended || head.is_none() && self.seen.for_longer(&id, held.at, MISSING);
            return is_gone.then(|| QueueOp::Gone { id, seen: Box::new(held) });
        }
        let found = found.flatten();
        if let Some(found) = found {
            self.recorded.add(&id, found.start);
        }
        let mut gone = Vec::new();
        for &start in &held.start_ids {
            match found.filter(|found| found.start == start) {
                Some(found) if has_ended => gone.push(OverStart { start, ended_at: found.at }),
                Some(_) => {}
                None if recorded.contains(&start)
                    || self.is_missing(&id, &held, start, found.is_some()).await =>
                {
                    gone.push(OverStart::without_run(start));
                }
                None => {}
            }
        }
        let found = found.filter(|_| !has_ended);
        let is_known = found.is_none_or(|found| held.start_ids.contains(&found.start));
        (!gone.is_empty() || !is_known).then_some(QueueOp::Settle { id, gone, found })
    }

    /// Returns whether this start will never record a run. A start will never record a run if its recorded run has vanished, if its process was dead
    /// at two checks, or if the run has been missing for too long. While the store has the run of another start, this start cannot record its run
    /// before a purge.
    async fn is_missing(&self, id: &str, held: &SlotHolder, start: StartId, is_overtaken: bool) -> bool {
        if held.was_on_record(start) {
            return true;
        }
        // Each start has its own time, because a start may be new.
        let (entry, most) = (format!("{id} {start}"), if is_overtaken { OVERTAKEN } else { MISSING });
        if self.seen.for_longer(&entry, held.at, most) {
            return true;
        }
        // An unreadable heartbeat counts as alive.
        self.seen.for_longer(&entry, held.at, Duration::ZERO)
            && matches!(self.runtime.store().is_alive(&start.by).await, Ok(false))
    }

    /// Cancels a replaced run once its replacement is recorded, so that a crash loses neither.
    async fn cancel_replaced(&self, id: String, replaced: &ReplacedStart) -> Option<QueueOp> {
        let Self { runtime, commands, seen, .. } = self;
        let ReplacedStart { waiting, by, at } = replaced;
        let is_over = seen.for_longer(&id, *at, MISSING);
        let run = &waiting.run;
        // A later check retries unreadable runs.
        if runtime.head(run).await.ok()?.is_none() {
            // The starter is about to record the run, or is dead.
            return is_over.then_some(QueueOp::Forgotten { id, at: *at });
        }
        if runtime.head(by).await.ok()?.is_none() {
            return is_over.then(|| QueueOp::Restore { id, by: by.clone() });
        }
        let reason = format!("the later start {by} replaced it");
        let cancelled = async {
            let head = confirm_due(runtime, &id, run, *at, commands).await?.head();
            runtime.cancel(run, reason).by(BY).at(head).await
        };
        match cancelled.await {
            Ok(()) => Some(QueueOp::Forgotten { id, at: *at }),
            Err(error) if error.kind() == ErrorKind::WrongStatus => Some(QueueOp::Forgotten { id, at: *at }),
            Err(error) if error.kind() == ErrorKind::Conflict => None,
            Err(error) => {
                tracing::warn!(%run, %error, "cannot cancel a replaced run; will retry");
                None
            }
        }
    }
}

/// Returns whether a node may still record that it becomes idle, after it has announced this to the queue. Its process counts as dead, but may only
/// be suspended. The next claim of the run decides. Without the entry, nothing would wake the run.
fn may_still_rest(held: &SlotHolder, head: Option<&RunHead>) -> bool {
    head.is_some_and(|head| {
        let is_lost = head.status == RunStatus::InProgress && head.owner.is_some() && !head.owner_alive;
        is_lost && head.epoch == held.epoch
    })
}

/// Returns whether a node no longer uses its slot.
fn is_slot_unused(
    id: &str,
    held: &SlotHolder,
    head: Option<&RunHead>,
    woken: Duration,
    seen: &DwellTimes,
) -> bool {
    let Some(head) = head else { return true };
    match &held.question {
        _ if head.status.is_finished() => true,
        // The node was woken and has not claimed its slot. Before the node is woken, the slot stays: no other process would wake the node.
        Some(_) => held.woken.is_some_and(|at| seen.for_longer(id, at, woken)),
        None => {
            head.status != RunStatus::InProgress || head.owner != Some(held.executor) || !head.owner_alive
        }
    }
}
