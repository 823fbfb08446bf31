//! The background tasks of a runtime, which send heartbeats, receive notices of the store, release runs and shut the runtime down.

use std::cmp::Ordering;
use std::sync::atomic;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uuid::Uuid;

use super::admission::AdmissionControl;
use super::heartbeat::HeartbeatResult;
use crate::clock::within;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, HeadRef, RunKey};
use crate::record::RunStatus;
use crate::runtime::requests::signal::{self, ReleaseResult};
use crate::runtime::shared::{DriverCommand, RuntimeInner, RuntimePhase};
use crate::runtime::tasks::spawn;
use crate::store::{Notice, RunAppend};

/// The first and the longest delay before the retry of a failed release.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Identifies a claim of a run by its generation and its epoch. Epochs start again with each generation, so compare both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimId {
    pub(crate) life: Uuid,
    pub(crate) epoch: Epoch,
}

/// Sends heartbeats until the runtime ends, three in each TTL.
pub(crate) async fn beat(shared: Weak<RuntimeInner>) {
    let mut last = HeartbeatResult::Alive;
    loop {
        let Some((clock, heartbeat)) =
            shared.upgrade().map(|shared| (Arc::clone(&shared.clock), Arc::clone(&shared.heartbeat)))
        else {
            return;
        };
        tokio::select! {
            // Biased, because simulations must be deterministic.
            biased;
            // A failed heartbeat has its own retry interval.
            () = heartbeat.wait_until_wanted(), if last == HeartbeatResult::Alive => {}
            () = clock.sleep(heartbeat.pause(last)) => {}
        }
        drop(heartbeat);
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_closing() && shared.driven() == 0 {
            // The caller of the shutdown may not have waited for it.
            if let Err(error) = shared.heartbeat.end(&*shared.store, &shared.executor).await {
                tracing::debug!(%error, "cannot record the end of this process; its heartbeat will expire");
            }
            return;
        }
        let before = last;
        last = shared.heartbeat.try_once(&*shared.store, &shared.executor).await;
        shared.telemetry().beat(last, || shared.clock.now());
        match (before, last) {
            (_, HeartbeatResult::Lost) => shared.change_stop(|stop| stop.term += 1),
            (HeartbeatResult::Lost | HeartbeatResult::StillLost, HeartbeatResult::Alive) => {
                shared.recovery.notify_work()
            }
            _ => {}
        }
    }
}

/// Forwards the store's notices to the drivers of this process.
pub(crate) async fn pass_notices(shared: Weak<RuntimeInner>) {
    let Some(mut notices) = shared.upgrade().and_then(|shared| shared.store.subscribe()) else { return };
    let hear = |hears| {
        if let Some(shared) = shared.upgrade() {
            shared.has_notices.store(hears, atomic::Ordering::Relaxed);
        }
    };
    hear(true);
    while let Ok(notice) = notices.next().await {
        let Some(shared) = shared.upgrade() else { return };
        shared.feeds().wake(notice.as_ref().map(|notice| &notice.run));
        let Some(Notice { run, head, .. }) = notice else { continue };
        if let Some(driver) = shared.driver(&run) {
            // A driver that has ended, or is about to check, needs no notice.
            let _ = driver.send_unless(DriverCommand::Look(head), |last| match last {
                DriverCommand::Look(told) => {
                    *told = further(*told, head);
                    true
                }
                _ => false,
            });
        } else if shared.admission.is_waiting(&run) {
            spawn(check_waiting_run(shared, run));
        }
    }
    hear(false);
}

/// Returns the later of two heads, or `None` if only a read of the store can show which one is later.
fn further(one: Option<HeadRef>, other: Option<HeadRef>) -> Option<HeadRef> {
    let (one, other) = (one?, other?);
    match one.seq.cmp(&other.seq) {
        Ordering::Greater => Some(one),
        Ordering::Less => Some(other),
        Ordering::Equal => Some(one).filter(|one| *one == other),
    }
}

/// Removes a run from the line if another process has ended it or made it idle.
async fn check_waiting_run(shared: Arc<RuntimeInner>, run: RunKey) {
    // If the read fails, its turn or the waiting handle finds out.
    if let Ok(Some(head)) = shared.store.head(&run).await
        && head.status != RunStatus::InProgress
    {
        shared.admission.remove_waiting(&run, &head.facts);
    }
}

/// Continues runs that wait in line as soon as there is capacity.
pub(crate) fn admit(shared: &Arc<RuntimeInner>) -> impl Future<Output = ()> + Send + 'static {
    let (line, shared) = (AdmissionCloseGuard(Arc::clone(&shared.admission)), Arc::downgrade(shared));
    async move {
        loop {
            let Some(strong) = shared.upgrade() else { return };
            let mut stop = strong.registry.watch_stop();
            while let Some((go, permit)) = (!strong.is_closing()).then(|| strong.admission.pop()).flatten() {
                spawn(go(permit));
            }
            drop(strong);
            tokio::select! {
                // Biased, because simulations must be deterministic.
                biased;
                () = line.0.wait_for_capacity() => {}
                _ = stop.wait_for(|stop| stop.phase != RuntimePhase::Open) => return,
            }
        }
    }
}

/// A guard that closes the line when the task which admits runs ends. A run in line keeps the runtime alive, so without this guard the runtime would
/// never be dropped.
struct AdmissionCloseGuard(Arc<AdmissionControl>);

impl Drop for AdmissionCloseGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Returns the error of a failed start or claim. If the reply of the store was lost, a separate task resolves the outcome. The caller must deregister
/// the run before.
pub(crate) fn claim_error(
    shared: &Arc<RuntimeInner>,
    append: RunAppend,
    tenure: ClaimId,
    why: &Error,
) -> Error {
    let error = not_taken(why.clone()).with_run(&append.run);
    resolve_doubt(shared, append, tenure, why);
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
fn resolve_doubt(shared: &Arc<RuntimeInner>, append: RunAppend, tenure: ClaimId, why: &Error) {
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
                Ok(()) => return release_failed_run(&weak, &append.run, tenure, &why),
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    return release_failed_run(&weak, &append.run, tenure, &why);
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
pub(crate) fn release_failed_run(shared: &Weak<RuntimeInner>, run: &RunKey, tenure: ClaimId, why: &Error) {
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
            match signal::release(&shared, &run, tenure, &reason).await {
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

/// Shuts a runtime down, and returns when it drives no run.
pub(crate) async fn end(shared: &Arc<RuntimeInner>, phase: RuntimePhase) -> Result<()> {
    shared.change_stop(|stop| {
        stop.phase = match (stop.phase, phase) {
            (RuntimePhase::Ending(before), RuntimePhase::Ending(now)) => {
                RuntimePhase::Ending(before.min(now))
            }
            (RuntimePhase::Ending(before), _) => RuntimePhase::Ending(before),
            (_, phase) => phase,
        };
    });
    let mut drivers = shared.registry.count();
    // Cannot fail: `shared` owns the sender.
    let _ = drivers.wait_for(|count| *count == 0).await;
    let mut lines = shared.post().count();
    let grace = match shared.registry.stop().phase {
        RuntimePhase::Ending(grace) => grace,
        _ => Duration::MAX,
    };
    // Record the current deliveries, to avoid duplicates.
    drop(within(&*shared.clock, grace, lines.wait_for(|count| *count == 0)).await);
    shared.heartbeat.end(&*shared.store, &shared.executor).await
}
