//! Sends signals, such as a cancellation or a pause, to runs. If this process drives the run, its driver receives the signal. Otherwise the signal is
//! appended to the log.

use crate::runtime::writes::pause_events::stop;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::engine::fold::{check_signal, full_id};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey};
use crate::kernel::commands::DriverCommand;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::run_change::RunChange;
use crate::kernel::run_writer::RunWriter;
use crate::kernel::tasks::finish;
use crate::past::run_tree::{active_child, find_asker};
use crate::record::RunFacts;
use crate::record::RunStatus;
use crate::record::body::{RecordEvent, Signal, SignalKind, StatusChange};
use crate::runtime::child_ends::notify_parent::{notify_parent_after_signal, wake};
use crate::runtime::claims::prompt_claim::claim_after_write;
use crate::runtime::inbox::check_room;
use crate::runtime::writes::run_writer::{WritePrecondition, WriterRole, amend};
use crate::runtime::writes::system_runs::{hold_for_queue, is_held_for_queue};

/// A prepared signal to a run, such as a cancellation or a pause. `.await` sends it, and returns when it is durable.
///
/// # Errors
///
/// Returns the errors of the method that created the request, and these errors:
///
/// - [`ErrorKind::Unavailable`]: the signal was not sent.
/// - [`ErrorKind::Indeterminate`]: the signal may be recorded, because the store did not answer or this process lost the run during the write. Check
///   the run before you repeat the signal.
///
/// # Cancel safety
///
/// Cancel safe: after the first poll, the request completes even if the caller drops the future.
#[must_use = "a signal is sent only when the future is awaited"]
pub struct SignalRequest {
    shared: Arc<RuntimeInner>,
    run: RunKey,
    what: Result<SignalKind>,
    by: Option<String>,
    at: Option<HeadRef>,
}

impl SignalRequest {
    pub(crate) fn new(shared: &Arc<RuntimeInner>, run: &RunKey, what: Result<SignalKind>) -> Self {
        Self { shared: Arc::clone(shared), run: run.clone(), what, by: None, at: None }
    }

    /// Sets the author of the signal, which the log records.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    /// Sends the signal only if `head` is still the last record of the run. Use it if the decision to send the signal depends on the state at `head`.
    /// If the run was purged and another run has its id, that run does not receive the signal. If this process drives the run, the check is made
    /// before the driver receives the signal.
    ///
    /// If the run has changed since `head`, the request fails with [`ErrorKind::Conflict`], and the signal is not sent.
    pub fn at(mut self, head: HeadRef) -> Self {
        self.at = Some(head);
        self
    }
}

/// The precondition that the head of a run is unchanged.
pub(super) struct IsAt<'a> {
    pub(super) shared: &'a RuntimeInner,
    pub(super) run: &'a RunKey,
    pub(super) head: HeadRef,
}

#[async_trait]
impl WritePrecondition for IsAt<'_> {
    async fn check(&self, seen: Option<&RunWriter>) -> Result<()> {
        let found = match seen {
            Some(seen) => Some(seen.folded.last.head()),
            None => self.shared.store.head(self.run).await?.map(|head| head.head()),
        };
        if found == Some(self.head) {
            return Ok(());
        }
        let message = "the run has changed since the caller read it; read it again";
        Err(Error::new(ErrorKind::Conflict, message).with_run(self.run).with_actual_head(found))
    }
}

/// The precondition that the run has no active child that would end with one of its activations. It is needed for a move, which drops the
/// activations.
struct HasNoChild<'a> {
    shared: &'a RuntimeInner,
    run: &'a RunKey,
}

#[async_trait]
impl WritePrecondition for HasNoChild<'_> {
    async fn check(&self, _seen: Option<&RunWriter>) -> Result<()> {
        match active_child(&*self.shared.store, self.run).await? {
            None => Ok(()),
            Some(child) => {
                let message = format!("its child {child} has not ended; wait for it, or cancel it first");
                Err(Error::new(ErrorKind::WrongStatus, message).with_run(self.run))
            }
        }
    }
}

/// The precondition that all of these conditions hold.
struct AllConditions<'a>(Vec<&'a dyn WritePrecondition>);

#[async_trait]
impl WritePrecondition for AllConditions<'_> {
    async fn check(&self, seen: Option<&RunWriter>) -> Result<()> {
        for condition in &self.0 {
            condition.check(seen).await?;
        }
        Ok(())
    }
}

impl IntoFuture for SignalRequest {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(async move {
            let what = self.what.map_err(|error| error.with_run(&self.run))?;
            let (shared, run) = (&self.shared, &self.run);
            let below = below(&what);
            let at = self.at.map(|head| IsAt { shared, run, head });
            let alone = matches!(what, SignalKind::GoTo { .. }).then_some(HasNoChild { shared, run });
            let conditions = at.iter().map(|at| at as &dyn WritePrecondition);
            let conditions: Vec<_> = conditions.chain(alone.iter().map(|alone| alone as _)).collect();
            let all = (!conditions.is_empty()).then_some(AllConditions(conditions));
            let signal = Signal { what, by: self.by.clone(), at: shared.clock.now(), of_parent: false };
            match send_if(shared, run, signal, all.as_ref().map(|all| all as _)).await {
                Err(error) if error.kind() == ErrorKind::NotFound => match below {
                    Some(what) => send_below(shared, run, what, self.by, error).await,
                    None => Err(error),
                },
                said => said,
            }
        }))
    }
}

impl std::fmt::Debug for SignalRequest {
    /// Formats the request without the content of the signal.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignalRequest").field("run", &self.run).field("by", &self.by).finish_non_exhaustive()
    }
}

/// Returns the signal that a descendant must receive, if the signal is an answer whose question id contains a path.
fn below(what: &SignalKind) -> Option<SignalKind> {
    match what {
        SignalKind::Respond { question, .. } | SignalKind::Answer { question, .. } => {
            question.contains('/').then(|| what.clone())
        }
        _ => None,
    }
}

/// Records an answer in the log of the descendant that asks. If there is no such descendant, returns the error of the run itself.
async fn send_below(
    shared: &Arc<RuntimeInner>,
    run: &RunKey,
    mut what: SignalKind,
    by: Option<String>,
    error: Error,
) -> Result<()> {
    let (SignalKind::Respond { question, .. } | SignalKind::Answer { question, .. }) = &mut what else {
        return Err(error);
    };
    let Some((asking, name)) = find_asker(&*shared.store, run, question).await? else { return Err(error) };
    *question = name;
    send(shared, &asking, what, by).await
}

/// Records a signal. Returns when it is durable.
pub(crate) async fn send(
    shared: &Arc<RuntimeInner>,
    run: &RunKey,
    what: SignalKind,
    by: Option<String>,
) -> Result<()> {
    send_if(shared, run, Signal { what, by, at: shared.clock.now(), of_parent: false }, None).await
}

/// Records a signal for this run under an optional condition. Returns when the signal is durable.
pub(crate) async fn send_if(
    shared: &Arc<RuntimeInner>,
    run: &RunKey,
    signal: Signal,
    condition: Option<&dyn WritePrecondition>,
) -> Result<()> {
    let message = |reply| DriverCommand::Signal { signal: Box::new(signal.clone()), reply };
    let revival = Revival { shared, run, condition, facts: Mutex::default() };
    let writer = match condition {
        _ if revives(&signal.what) => WriterRole::If(&revival, &message),
        None => WriterRole::Signaller(&message),
        Some(condition) => WriterRole::If(condition, &message),
    };
    let tip = amend(shared, run, writer, |tip| {
        let facts = revival.facts();
        decide(shared, tip, signal.clone(), facts.as_deref())
    })
    .await?;
    if let Some(tip) = tip {
        if let Some(facts) = revival.facts().filter(|facts| is_held_for_queue(&tip.folded.machine, facts)) {
            let head = tip.folded.last.head();
            let held = || RunChange::Held { run: run.clone(), facts: Arc::clone(&facts), head };
            shared.registry.publish(held);
        }
        notify_parent_after_signal(shared, &tip);
        claim_after_write(shared, tip);
    }
    Ok(())
}

/// Returns whether a signal may make a failed run active again.
pub(crate) fn revives(what: &SignalKind) -> bool {
    matches!(what, SignalKind::Retry { .. } | SignalKind::GoTo { .. })
}

/// Reads the facts of a run before a signal that may make the failed run active again. The facts name the queue of the run.
struct Revival<'a> {
    shared: &'a RuntimeInner,
    run: &'a RunKey,
    condition: Option<&'a dyn WritePrecondition>,
    facts: Mutex<Option<Arc<RunFacts>>>,
}

impl Revival<'_> {
    fn facts(&self) -> Option<Arc<RunFacts>> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl WritePrecondition for Revival<'_> {
    async fn check(&self, seen: Option<&RunWriter>) -> Result<()> {
        if let Some(condition) = self.condition {
            condition.check(seen).await?;
        }
        if let Some(seen) = seen {
            let known = self.shared.idle_runs.get(self.run, seen.folded.machine.start_id());
            let facts = match known {
                Some(facts) => Some(facts),
                // Read after the log: if another run has the id since, the following append fails.
                None => self.shared.store.head(self.run).await?.map(|head| Arc::new(head.facts)),
            };
            *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = facts;
        }
        Ok(())
    }
}

/// Returns the events that a signal causes in a run which this process does not drive, or the reason why the signal is rejected. `facts` are the
/// facts of the run. They are present if the signal may make the run active again.
fn decide(
    shared: &RuntimeInner,
    tip: &RunWriter,
    mut signal: Signal,
    facts: Option<&RunFacts>,
) -> Result<Vec<RecordEvent>> {
    let machine = &tip.folded.machine;
    if machine.was_sent(&signal.what)? {
        return Ok(Vec::new());
    }
    check_signal(machine, &signal, shared.clock.now())?;
    if matches!(signal.what, SignalKind::GoTo { .. }) && tip.folded.last.owner.is_some() {
        return Err(at_work());
    }
    check_room(machine, &signal.what, shared.limits.max_waiting_messages)?;
    full_id(machine, &mut signal.what)?;
    // An idle run has no driver, so the signaller carries out a stop. The owner or the next claimer does so for an active run.
    let stop = stop(machine, &signal.what).filter(|_| tip.folded.last.owner.is_none());
    if revives(&signal.what) && machine.status() == RunStatus::Failed {
        let hold = hold_for_queue(machine, facts, shared.clock.now());
        return Ok([RecordEvent::Signal(signal)].into_iter().chain(hold).collect());
    }
    let cleans_up = stop == Some(StatusChange::Cancelled) && machine.requires_cleanup();
    if cleans_up || stop.is_some() && machine.children().any(|(_, child)| child.ends_with_parent()) {
        // The cleanup, and the end or pause of its children, take a driver.
        return Ok(vec![RecordEvent::Signal(signal), wake()]);
    }
    Ok([RecordEvent::Signal(signal)].into_iter().chain(stop.map(RecordEvent::Status)).collect())
}

/// Returns the error for moving a run that a process drives.
pub(crate) fn at_work() -> Error {
    let message = "the run is active; pause it, move it when it is idle, and unpause it";
    Error::new(ErrorKind::WrongStatus, message)
}
