//! What came of a child, as its own log says.

use std::pin::pin;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::hold::let_go_on;
use super::tell::{SendCondition, tell};
use super::tries::{ChildBackoff, next, rarest};
use crate::clock::Timestamp;
use crate::engine::fold::fold;
use crate::engine::machine::Machine;
use crate::error::{ErrorKind, Result};
use crate::id::RunKey;
use crate::node::{EndWaiter, NodeScope, RunScope};
use crate::record::RunStatus;
use crate::record::body::SignalKind;
use crate::record::child::ChildEnd;
use crate::record::codec::to_raw;
use crate::record::parent_link::{ChildRef, start_of};
use crate::runtime::shared::RuntimeInner;
use crate::store::At;

/// How many children of a run are told at once to stop: enough to share the appends of a batch, few enough not to hold up other runs.
pub(crate) const TOLD_AT_ONCE: usize = 64;

/// Why a child is cancelled at its deadline.
pub(super) const OVERDUE: &str = "its deadline is over";

/// Returns what came of a run that has ended as a machine has it; `None` if it goes on. `state` is asked for a completed run: its state,
/// and the version of that.
///
/// # Errors
///
/// Those of `state`.
pub(crate) fn end_as(
    machine: &Machine,
    state: impl FnOnce() -> Result<(Box<RawValue>, u32)>,
) -> Result<Option<ChildEnd>> {
    Ok(match machine.status() {
        RunStatus::Completed => {
            let (state, version) = state()?;
            Some(ChildEnd::Completed { state, version })
        }
        RunStatus::Failed => machine.failure().cloned().map(ChildEnd::Failed),
        RunStatus::Cancelled => {
            Some(ChildEnd::Cancelled { reason: machine.cancel().map(str::to_owned).unwrap_or_default() })
        }
        // It was retried since.
        _ => None,
    })
}

/// How a child stands, as its own log says.
pub(super) enum ChildStand {
    Active,
    Ended(ChildEnd),
    /// The run with its id was started by a run of which the parent is a copy under another id.
    OfCopy,
}

/// Reads how a child stands. Another run that has its id by now is not the child.
///
/// # Errors
///
/// What the store says, and as [`fold`].
pub(super) async fn stand_of(shared: &RuntimeInner, child: &ChildRef) -> Result<ChildStand> {
    let run = &child.run;
    let gone = || Ok(ChildStand::Ended(ChildEnd::Gone));
    match shared.store.head(run).await? {
        None => return gone(),
        Some(head) if child.is_of_copy(&head.facts) => return Ok(ChildStand::OfCopy),
        Some(head) if !child.is(&head.facts) => return gone(),
        Some(head) if !head.status.is_finished() => return Ok(ChildStand::Active),
        Some(_) => {}
    }
    let Some(records) = shared.store.load(run, At::Latest).await? else { return gone() };
    let folded = fold(run, &records, None)?;
    let end = end_as(&folded.machine, || Ok((to_raw(&folded.channels)?, folded.version)))?;
    // It was retried since its head was read.
    Ok(end.map_or(ChildStand::Active, ChildStand::Ended))
}

/// Returns the end of a child; `None` if it has not ended.
///
/// # Errors
///
/// As [`stand_of`].
pub(super) async fn end_of(shared: &RuntimeInner, child: &ChildRef) -> Result<Option<ChildEnd>> {
    Ok(match stand_of(shared, child).await? {
        ChildStand::Active => None,
        ChildStand::Ended(end) => Some(end),
        ChildStand::OfCopy => Some(ChildEnd::Gone),
    })
}

/// As [`end_of`], waits for the end of a child that is being cancelled, and asks a store that fails again.
///
/// # Errors
///
/// As [`ChildBackoff::failed`].
pub(super) async fn look_at_end(shared: &RuntimeInner, child: &ChildRef) -> Result<Option<ChildEnd>> {
    let mut tries = ChildBackoff::of(shared, &child.run);
    loop {
        let looked = match end_of(shared, child).await {
            Ok(None) => is_ending(shared, child).await.map(|is_ending| (None, is_ending)),
            end => end.map(|end| (end, false)),
        };
        match looked {
            Ok((end, false)) => return Ok(end),
            Ok((_, true)) => tries.wait().await,
            Err(error) => tries.failed(error).await?,
        }
    }
}

/// Whether a child has been told to stop; also one that is gone by now, which the next look tells.
async fn is_ending(shared: &RuntimeInner, child: &ChildRef) -> Result<bool> {
    let Some(records) = shared.store.load(&child.run, At::Latest).await? else { return Ok(true) };
    Ok(fold(&child.run, &records, None)?.machine.cancel().is_some())
}

/// Waits for the end of a child, and returns what came of it. A store that fails is asked again, ever less often.
///
/// If the parent `was_paused`, which it is not any more, the child is let go on where that pause holds it.
///
/// `since` is a wait that was begun before the child was started in this process: then the child is not looked at first.
pub(crate) async fn await_end(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    was_paused: Option<&RunScope>,
    since: Option<EndWaiter>,
) -> Arc<RawValue> {
    let run = &child.run;
    let mut pause = shared.limits.poll;
    let mut looks = since.is_none();
    let waiter = since.unwrap_or_else(|| shared.registry.end_waiters.wait_for(child));
    loop {
        if std::mem::replace(&mut looks, true) {
            match end_of(shared, child).await.and_then(|end| end.map(|end| end.to_raw()).transpose()) {
                Ok(Some(end)) => return end,
                Ok(None) => {
                    // Rare and large, so not a part of each wait.
                    if let Some(parent) = was_paused
                        && let Err(error) =
                            Box::pin(let_go_on(shared, child, SendCondition::Owned(parent))).await
                    {
                        tracing::debug!(%run, %error, "cannot let a child go on; trying again");
                    }
                }
                Err(error) => tracing::debug!(%run, %error, "cannot look at a child; looking again"),
            }
        }
        tokio::select! {
            biased;
            ended = waiter.ended() => if let Some(end) = ended {
                return end;
            },
            () = shared.clock.sleep(pause) => pause = next(pause, shared),
        }
    }
}

/// As [`await_end`], and cancels the child at its deadline, by the wall clock as every wait.
pub(crate) async fn await_in_time(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    deadline: Option<Timestamp>,
    was_paused: Option<&RunScope>,
    since: Option<EndWaiter>,
) -> Arc<RawValue> {
    let mut end = pin!(await_end(shared, child, was_paused, since));
    let Some(deadline) = deadline else { return end.await };
    loop {
        let left = deadline.since(shared.clock.now());
        if left.is_zero() {
            break;
        }
        tokio::select! {
            biased;
            end = &mut end => return end,
            // The wall clock may jump, on a machine that slept say, and no sleep hears of that.
            () = shared.clock.sleep(left.min(rarest(shared))) => {}
        }
    }
    tokio::select! {
        biased;
        end = &mut end => return end,
        () = Box::pin(cancel(shared, child, SendCondition::Always, OVERDUE)) => {}
    }
    end.await
}

/// Returns the next deadline of a child that a run waits for.
pub(crate) fn next_deadline(machine: &Machine, now: Timestamp) -> Option<Timestamp> {
    let open = machine.children().filter(|(_, child)| child.is_open());
    open.filter_map(|(_, child)| child.note.deadline).filter(|&deadline| deadline > now).min()
}

/// Cancels a child, unless it has ended, and waits for its end.
pub(crate) async fn cancel(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
    reason: &str,
) {
    if tell_to_stop(shared, child, parent, reason).await {
        await_end(shared, child, None, None).await;
    }
}

/// Records in the log of a child that it is cancelled, unless it has ended. A store that fails is asked again. Returns whether the child
/// is there, so that its end can be waited for.
pub(crate) async fn tell_to_stop(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
    reason: &str,
) -> bool {
    let run = &child.run;
    let mut tries = ChildBackoff::of(shared, run);
    loop {
        // Asked first: a start that ends in between has left a run that is found.
        let is_starting = shared.registry.starts.is_starting(run);
        match cancel_once(shared, child, parent, reason).await {
            // Also one that was asked to stop before.
            Ok(()) => return true,
            Err(error) if matches!(error.kind(), ErrorKind::WrongStatus) => return true,
            Err(error) if error.kind() == ErrorKind::NotFound && is_starting => tries.wait().await,
            // Not started, and no request is left here that would: one that starts it elsewhere finds that its parent goes on without it.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Fenced) => return false,
            Err(error) => {
                if let Err(error) = tries.failed(error).await {
                    tracing::error!(%run, %error, "a child cannot be cancelled; cancel it by its id");
                    return false;
                }
            }
        }
    }
}

/// As [`cancel`], once, without a wait.
///
/// # Errors
///
/// As [`tell`].
pub(super) async fn cancel_once(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
    reason: &str,
) -> Result<()> {
    tell(shared, child, parent, SignalKind::Cancel { reason: reason.to_owned() }).await
}

/// Cancels the children that end with an activation, as its last attempt leaves them, and waits for their ends, but no longer than a
/// cancelled run has time. `None` if there are none.
pub(crate) fn closing(scope: &NodeScope) -> Option<impl Future<Output = ()> + Send + 'static> {
    // Most activations have none, and are to pay nothing for it.
    if scope.memos.is_empty() && scope.started.is_empty() {
        return None;
    }
    let before = if scope.memos.is_empty() { Vec::new() } else { scope.memos.children() };
    let open = scope.started.open_with(&before);
    if open.is_empty() {
        return None;
    }
    let parent = &scope.run.key;
    let named = open.into_iter().map(|child| ChildRef {
        start: start_of(scope.run.life, &scope.node, scope.visit, &child.name),
        run: RunKey::new(parent.tenant.clone(), child.note.run),
        parent: parent.run.clone(),
    });
    let children: Vec<_> = named.collect();
    let shared = scope.run.host.runtime.upgrade()?.downcast::<RuntimeInner>().ok()?;
    let reason = format!("the node {}@{} of its parent {parent} ended", scope.node, scope.visit);
    Some(close(shared, Arc::clone(&scope.run), children, reason))
}

/// Cancels children of a run as long as this process owns it, because another owner may wait for them. First each is told, however long
/// that takes; then their ends are waited for, but no longer than a cancelled run has time.
pub(super) async fn close(
    shared: Arc<RuntimeInner>,
    parent: Arc<RunScope>,
    children: Vec<ChildRef>,
    reason: String,
) {
    let (turns, reason) = (Arc::new(Semaphore::new(TOLD_AT_ONCE)), Arc::<str>::from(reason));
    let mut telling = JoinSet::new();
    for child in children {
        let (shared, parent, turns) = (Arc::clone(&shared), Arc::clone(&parent), Arc::clone(&turns));
        let reason = Arc::clone(&reason);
        telling.spawn(async move {
            let _turn = turns.acquire().await;
            tell_to_stop(&shared, &child, SendCondition::Owned(&parent), &reason).await.then_some(child)
        });
    }
    let mut ending = JoinSet::new();
    while let Some(told) = telling.join_next().await {
        // One that panicked, in a store say, is found by whoever claims the child, or looks for it at rest.
        if let Ok(Some(child)) = told {
            let shared = Arc::clone(&shared);
            ending.spawn(async move { await_end(&shared, &child, None, None).await });
        }
    }
    tokio::select! {
        biased;
        () = async { while ending.join_next().await.is_some() {} } => {}
        () = shared.clock.sleep(shared.limits.cancel_grace) => {}
    }
}
