//! Releases runs that this process owns according to the store, but does not drive.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::run_writer::{WriterRole, amend};
use crate::claim::ClaimId;
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::kernel::commands::RuntimePhase;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::spawn;
use crate::record::RunStatus;
use crate::record::body::{RecordEvent, ReleaseRecord};
use crate::store::RunAppend;

/// The first and the longest delay before the retry of a failed release.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Returns the error of a failed start or claim. If the reply of the store was lost, a separate task resolves the outcome. The caller must deregister
/// the run before.
pub(crate) fn claim_error(
    shared: &Arc<RuntimeInner>,
    append: RunAppend,
    claim: ClaimId,
    why: &Error,
) -> Error {
    let error = not_taken(why.clone()).with_run(&append.run);
    resolve_doubt(shared, append, claim, why);
    error
}

/// Turns `Fenced` into a retryable error for a run that was not claimed.
fn not_taken(error: Error) -> Error {
    if error.kind() != ErrorKind::Fenced {
        return error;
    }
    let message = "the heartbeat of this process fails, so it claims no runs; retry";
    Error::new(ErrorKind::Unavailable, message).with_source(error)
}

/// Resolves a start or claim whose reply was lost, and releases the run if the append succeeded. Otherwise the log would name this process as
/// owner, without a driver.
///
/// The task repeats the same append until the store returns a result. After this, the first append cannot be stored later any more. It stops
/// repeating a start if the run exists or if this process has purged it, because otherwise the run would start a second time.
fn resolve_doubt(shared: &Arc<RuntimeInner>, append: RunAppend, claim: ClaimId, why: &Error) {
    if why.kind() != ErrorKind::Indeterminate {
        return;
    }
    let (weak, why) = (Arc::downgrade(shared), why.clone());
    let doubt = UnknownOutcomeGuard::new(shared, &append.run);
    spawn(async move {
        let mut pause = FIRST_PAUSE;
        loop {
            let Some(shared) = weak.upgrade() else { return };
            // Its driver has read the log.
            if matches!(shared.registry.stop().phase, RuntimePhase::Ending(_))
                || shared.driver(&append.run).is_some()
                || !doubt.is_current(&shared)
            {
                return;
            }
            match resolve_append(&shared, &append, &doubt).await {
                Err(error) if error.is_retryable() || error.kind() == ErrorKind::Indeterminate => {}
                Ok(()) => return release_failed_run(&weak, &append.run, claim, &why),
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    return release_failed_run(&weak, &append.run, claim, &why);
                }
                Err(error) => {
                    tracing::warn!(run = %append.run, %error, "cannot check whether the run was claimed");
                    return;
                }
            }
            let clock = Arc::clone(&shared.clock);
            drop(shared);
            clock.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    });
}

/// Repeats the append of a start or claim. A start is not repeated if its run exists or if this process has purged it.
async fn resolve_append(
    shared: &RuntimeInner,
    append: &RunAppend,
    doubt: &UnknownOutcomeGuard,
) -> Result<()> {
    let is_start = append.expected.is_none();
    if is_start && (shared.store.head(&append.run).await?.is_some() || !doubt.is_current(shared)) {
        return Ok(());
    }
    // One attempt per check: the run could be removed between two attempts of the committer.
    match shared.store.append(vec![append.clone()]).await.pop() {
        Some(result) => result.map(|_| ()),
        None => Err(Error::new(ErrorKind::Corrupt, "the store returned no result for the append")),
    }
}

/// A guard that marks the outcome of a start or claim as unknown in this process until it is dropped.
struct UnknownOutcomeGuard {
    shared: Weak<RuntimeInner>,
    number: u64,
}

impl UnknownOutcomeGuard {
    fn new(shared: &Arc<RuntimeInner>, run: &RunKey) -> Self {
        Self { shared: Arc::downgrade(shared), number: shared.registry.lock_unknown_outcomes().add(run) }
    }

    /// Returns whether this process has not purged the run since the guard was created.
    fn is_current(&self, shared: &RuntimeInner) -> bool {
        shared.registry.lock_unknown_outcomes().has(self.number)
    }
}

impl Drop for UnknownOutcomeGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.registry.lock_unknown_outcomes().remove(self.number);
        }
    }
}

/// Releases a run whose driver in this process stopped with an error, if this process still owns the run according to the log. Otherwise no other
/// process would claim the run while this process lives.
///
/// If the store does not contain the run, the function retries for the TTL of a heartbeat, because a folder may be unmounted for a moment, or a
/// replica may be behind.
pub(crate) fn release_failed_run(shared: &Weak<RuntimeInner>, run: &RunKey, claim: ClaimId, why: &Error) {
    let (weak, run) = (Weak::clone(shared), run.clone());
    // For readers of the log, `Fenced` means that another process claimed the run: this one still owns it.
    let reason = match why.kind() {
        ErrorKind::Fenced => "its heartbeat was lost".to_owned(),
        kind => format!("its driver stopped: {kind}"),
    };
    spawn(async move {
        let (mut pause, mut missing_since) = (FIRST_PAUSE, None);
        loop {
            let Some(shared) = weak.upgrade() else { return };
            // An ended executor owns nothing.
            if matches!(shared.registry.stop().phase, RuntimePhase::Ending(_))
                || shared.driver(&run).is_some()
            {
                return;
            }
            match release(&shared, &run, claim, &reason).await {
                Ok(ReleaseResult::Released) => return shared.recovery.notify_work(),
                Ok(ReleaseResult::NotOwned) => return,
                Ok(ReleaseResult::Missing) => {
                    let now = shared.clock.monotonic();
                    let missing_for = now.saturating_sub(*missing_since.get_or_insert(now));
                    if missing_for >= shared.limits.heartbeat_ttl {
                        return;
                    }
                }
                // Retry an unknown outcome, too: the next attempt reads whether the run was released.
                Err(error)
                    if error.is_retryable()
                        || matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Indeterminate) =>
                {
                    tracing::debug!(%run, %error, "cannot release a stopped run; will retry");
                }
                Err(error) => {
                    tracing::warn!(%run, %error, "cannot release a stopped run; this process owns the run until it ends");
                    return;
                }
            }
            let clock = Arc::clone(&shared.clock);
            drop(shared);
            clock.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    });
}

/// The result of a [`release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseResult {
    Released,
    /// The run has ended, is idle, has another owner, or belongs to another start of its id.
    NotOwned,
    /// The store has no such run.
    Missing,
}

/// Releases a run if its log says that this process owns it with this claim.
pub(crate) async fn release(
    shared: &Arc<RuntimeInner>,
    run: &RunKey,
    claim: ClaimId,
    reason: &str,
) -> Result<ReleaseResult> {
    let (term, _) = shared.heartbeat.check_alive()?;
    let owned = (RunStatus::InProgress, claim.epoch, Some(shared.executor));
    // Usually another executor has claimed it: the head suffices then.
    match shared.store.head(run).await? {
        None => return Ok(ReleaseResult::Missing),
        Some(head) if (head.status, head.epoch, head.owner) != owned => return Ok(ReleaseResult::NotOwned),
        Some(_) => {}
    }
    let mut is_ours = false;
    let released = amend(shared, run, WriterRole::Owner(term), |tip| {
        let (last, machine) = (&tip.folded.last, &tip.folded.machine);
        is_ours = (last.status, last.owner) == (RunStatus::InProgress, Some(shared.executor))
            && tip.folded.claim_id() == claim;
        if !is_ours {
            return Ok(Vec::new());
        }
        let released = ReleaseRecord {
            reason: reason.into(),
            wake: last.wake_at,
            receiving: machine.is_receiving(),
            begun: Vec::new(),
            receivers: Vec::new(),
            looks: None,
            orderly: false,
        };
        tip.release();
        Ok(vec![RecordEvent::Release(released)])
    })
    .await;
    match released {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(ReleaseResult::Missing),
        Err(error) => Err(error),
        Ok(_) if is_ours => Ok(ReleaseResult::Released),
        Ok(_) => Ok(ReleaseResult::NotOwned),
    }
}
