//! Waits for the end of a child, and cancels children.

use crate::runtime::child_ends::read_end::end_of;
use std::pin::pin;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::clock::Timestamp;
use crate::engine::fold::fold;
use crate::engine::machine::Machine;
use crate::error::{ErrorKind, Result};
use crate::id::RunKey;
use crate::kernel::end_waiters::EndWaiter;
use crate::kernel::inner::RuntimeInner;
use crate::node::{NodeScope, RunScope};
use crate::record::body::SignalKind;
use crate::record::child::ChildEnd;
use crate::record::parent_link::{ChildRef, start_of};
use crate::runtime::child_control::child_backoff::{ChildBackoff, next, rarest};
use crate::runtime::child_control::child_pause::unpause_child;
use crate::runtime::child_control::parent_signals::{SendCondition, send_signal};
use crate::store::At;

/// The number of children of a run that are cancelled at the same time. With this number, the appends fill a batch but do not delay other runs.
pub(crate) const TOLD_AT_ONCE: usize = 64;

/// The reason that is recorded if a child is cancelled at its deadline.
pub(crate) const OVERDUE: &str = "its deadline has passed";

/// Returns the end of a child, like [`end_of`]. If the child is being cancelled, it waits for the end. It retries after errors of the store.
///
/// # Errors
///
/// Returns the errors of [`ChildBackoff::failed`].
pub(crate) async fn read_end_with_retries(
    shared: &RuntimeInner,
    child: &ChildRef,
) -> Result<Option<ChildEnd>> {
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

/// Returns whether a cancellation of the child is recorded. Also returns true if the child was purged. The next check then reports the purge.
async fn is_ending(shared: &RuntimeInner, child: &ChildRef) -> Result<bool> {
    let Some(records) = shared.store.load(&child.run, At::Latest).await? else { return Ok(true) };
    Ok(fold(&child.run, &records, None)?.machine.cancel().is_some())
}

/// Waits for the end of a child and returns it. After a store error, retries with growing delays.
///
/// If the parent `was_paused` and is not paused any more, the child is unpaused if it is still paused by its parent.
///
/// `since` is a wait that was registered before this process started the child. In that case the first check is skipped.
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
                    // Rare and large, so boxed outside of each wait.
                    if let Some(parent) = was_paused
                        && let Err(error) =
                            Box::pin(unpause_child(shared, child, SendCondition::Owned(parent))).await
                    {
                        tracing::debug!(%run, %error, "cannot unpause a child; will retry");
                    }
                }
                Err(error) => tracing::debug!(%run, %error, "cannot read a child; will retry"),
            }
        }
        tokio::select! {
            biased;
            ended = waiter.wait_for_end() => if let Some(end) = ended {
                return end;
            },
            () = shared.clock.sleep(pause) => pause = next(pause, shared),
        }
    }
}

/// Waits for the end of a child, like [`await_end`], and cancels the child at its deadline. The deadline is measured by the wall clock.
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
            // The wall clock may jump, for example after the machine slept, and no sleep notices that.
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

/// Returns the next deadline among the awaited children of a run.
pub(crate) fn next_deadline(machine: &Machine, now: Timestamp) -> Option<Timestamp> {
    let open = machine.children().filter(|(_, child)| child.is_open());
    open.filter_map(|(_, child)| child.note.deadline).filter(|&deadline| deadline > now).min()
}

/// Cancels a child unless it has ended, and waits for its end.
pub(crate) async fn cancel(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
    reason: &str,
) {
    if record_cancel(shared, child, parent, reason).await {
        await_end(shared, child, None, None).await;
    }
}

/// Records a cancellation in the log of a child unless it has ended. Retries after a store error. Returns whether the child exists, so that the
/// caller can wait for its end.
pub(crate) async fn record_cancel(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
    reason: &str,
) -> bool {
    let run = &child.run;
    let mut tries = ChildBackoff::of(shared, run);
    loop {
        // Read this first: a start that ends in between leaves a run that the next call finds.
        let is_starting = shared.registry.starts.is_starting(run);
        match cancel_once(shared, child, parent, reason).await {
            // Also if the child was cancelled before.
            Ok(()) => return true,
            Err(error) if matches!(error.kind(), ErrorKind::WrongStatus) => return true,
            Err(error) if error.kind() == ErrorKind::NotFound && is_starting => tries.wait().await,
            // The child was not started, and no request of this process will start it. If another process starts it, that process sees that the
            // parent continued without it.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Fenced) => return false,
            Err(error) => {
                if let Err(error) = tries.failed(error).await {
                    tracing::error!(%run, %error, "cannot cancel a child; cancel it by its id");
                    return false;
                }
            }
        }
    }
}

/// Records the cancellation of a child, like [`cancel`], but makes only one attempt and does not wait for the end.
///
/// # Errors
///
/// Returns the errors of [`send_signal`].
pub(crate) async fn cancel_once(
    shared: &Arc<RuntimeInner>,
    child: &ChildRef,
    parent: SendCondition<'_>,
    reason: &str,
) -> Result<()> {
    send_signal(shared, child, parent, SignalKind::Cancel { reason: reason.to_owned() }).await
}

/// Returns a future that cancels the children which end with an activation, after the last attempt of the activation. It waits until they have ended,
/// at most for the grace period of a cancelled run. Returns `None` if there are no such children.
pub(crate) fn closing(scope: &NodeScope) -> Option<impl Future<Output = ()> + Send + 'static> {
    // Most activations have no children and must not pay for this.
    if scope.memos.is_empty() && scope.started_children.is_empty() {
        return None;
    }
    let before = if scope.memos.is_empty() { Vec::new() } else { scope.memos.children() };
    let open = scope.started_children.open_with(&before);
    if open.is_empty() {
        return None;
    }
    let parent = &scope.run.key;
    let named = open.into_iter().map(|child| ChildRef {
        start: start_of(scope.run.claim.start_id, &scope.node, scope.visit, &child.name),
        run: RunKey::new(parent.tenant.clone(), child.note.run),
        parent: parent.run.clone(),
    });
    let children: Vec<_> = named.collect();
    let shared = scope.run.host.runtime.upgrade()?;
    let reason = format!("the node {}@{} of its parent {parent} ended", scope.node, scope.visit);
    Some(close(shared, Arc::clone(&scope.run), children, reason))
}

/// Cancels children of a run, as long as this process owns the run: another owner may wait for these children. First, all cancellations are recorded,
/// without a time limit. Then it waits until the children have ended, at most for the grace period of a cancelled run.
pub(crate) async fn close(
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
            record_cancel(&shared, &child, SendCondition::Owned(&parent), &reason).await.then_some(child)
        });
    }
    let mut ending = JoinSet::new();
    while let Some(told) = telling.join_next().await {
        // If the task panicked, for example in a store, the claimer of the child or a poll of the idle parent handles the child.
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
