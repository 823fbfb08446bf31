//! The life of a runtime beside its runs: its heartbeats, the notices it hears, the runs it lets go of, and its end.

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

/// How long to wait before a run that could not be let go of is let go of again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Which claim of which life of a run. Epochs begin anew in each life, so neither is compared without the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimId {
    pub(crate) life: Uuid,
    pub(crate) epoch: Epoch,
}

/// Says that the process is alive, three times within each heartbeat's life, as long as there is a runtime.
pub(crate) async fn beat(shared: Weak<RuntimeInner>) {
    let mut last = HeartbeatResult::Alive;
    loop {
        let Some((clock, heartbeat)) =
            shared.upgrade().map(|shared| (Arc::clone(&shared.clock), Arc::clone(&shared.heartbeat)))
        else {
            return;
        };
        tokio::select! {
            // In this order, so that a simulation takes the same course each time.
            biased;
            // One that fails is tried again at its own pace.
            () = heartbeat.wanted(), if last == HeartbeatResult::Alive => {}
            () = clock.sleep(heartbeat.pause(last)) => {}
        }
        drop(heartbeat);
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_closing() && shared.driven() == 0 {
            // The caller that ended it may not have waited for the end.
            if let Err(error) = shared.heartbeat.end(&*shared.store, &shared.executor).await {
                tracing::debug!(%error, "cannot say that this process has ended; its heartbeat expires");
            }
            return;
        }
        let before = last;
        last = shared.heartbeat.try_once(&*shared.store, &shared.executor).await;
        shared.telemetry().beat(last, || shared.clock.now());
        match (before, last) {
            (_, HeartbeatResult::Lost) => shared.change_stop(|stop| stop.term += 1),
            (HeartbeatResult::Lost | HeartbeatResult::StillLost, HeartbeatResult::Alive) => {
                shared.recovery.ring()
            }
            _ => {}
        }
    }
}

/// Passes the store's notices on to the drivers of this process.
pub(crate) async fn pass_notices(shared: Weak<RuntimeInner>) {
    let Some(mut notices) = shared.upgrade().and_then(|shared| shared.store.subscribe()) else { return };
    let hear = |hears| {
        if let Some(shared) = shared.upgrade() {
            shared.hears.store(hears, atomic::Ordering::Relaxed);
        }
    };
    hear(true);
    while let Ok(notice) = notices.next().await {
        let Some(shared) = shared.upgrade() else { return };
        shared.feeds().wake(notice.as_ref().map(|notice| &notice.run));
        let Some(Notice { run, head, .. }) = notice else { continue };
        if let Some(driver) = shared.driver(&run) {
            // A driver that has ended needs no notice, nor does one that is about to look.
            let _ = driver.send_unless(DriverCommand::Look(head), |last| match last {
                DriverCommand::Look(told) => {
                    *told = further(*told, head);
                    true
                }
                _ => false,
            });
        } else if shared.admission.is_waiting(&run) {
            spawn(look_in_line(shared, run));
        }
    }
    hear(false);
}

/// Returns the head of a run that another one of two came before; none where only a look can tell.
fn further(one: Option<HeadRef>, other: Option<HeadRef>) -> Option<HeadRef> {
    let (one, other) = (one?, other?);
    match one.seq.cmp(&other.seq) {
        Ordering::Greater => Some(one),
        Ordering::Less => Some(other),
        Ordering::Equal => Some(one).filter(|one| *one == other),
    }
}

/// Takes a run out of the line that has ended elsewhere, or came to rest there.
async fn look_in_line(shared: Arc<RuntimeInner>, run: RunKey) {
    // Otherwise its turn tells, or the handle that waits for it.
    if let Ok(Some(head)) = shared.store.head(&run).await
        && head.status != RunStatus::InProgress
    {
        shared.admission.leave(&run, &head.facts);
    }
}

/// Goes on with runs that waited for room, as soon as there is any.
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
                // In this order, so that a simulation takes the same course each time.
                biased;
                () = line.0.rung() => {}
                _ = stop.wait_for(|stop| stop.phase != RuntimePhase::Open) => return,
            }
        }
    }
}

/// The line, as long as a task lets runs in: a run in line holds the runtime, and would do so for ever.
struct AdmissionCloseGuard(Arc<AdmissionControl>);

impl Drop for AdmissionCloseGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Says why a start or a claim was refused. If its reply was lost, what became of it is found out beside the caller; the run must not be
/// registered here any more.
pub(crate) fn refused(shared: &Arc<RuntimeInner>, append: RunAppend, tenure: ClaimId, why: &Error) -> Error {
    let error = not_taken(why.clone()).with_run(&append.run);
    resolve_doubt(shared, append, tenure, why);
    error
}

/// Says of a run that is not taken what being fenced means for it: nothing was written, and it may be tried again.
fn not_taken(error: Error) -> Error {
    if error.kind() != ErrorKind::Fenced {
        return error;
    }
    let message = "this process cannot say that it is alive, and takes no runs until it can; try again";
    Error::new(ErrorKind::Unavailable, message).with_source(error)
}

/// Finds out what became of a start or claim whose reply was lost, and lets the run go if it was done after all: it would be this
/// process's by its log, and no driver would have it.
///
/// The same records are sent again until the store says what became of them. From then on they cannot arrive late, either. A start is sent
/// no more once its run is there, or was removed by this process: the run would begin anew.
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
            // Its driver has met its log.
            if matches!(shared.registry.stop().phase, RuntimePhase::Ending(_))
                || shared.driver(&append.run).is_some()
                || !doubt.stands(&shared)
            {
                return;
            }
            match find_out(&shared, &append, &doubt).await {
                Err(error) if error.is_retryable() || error.kind() == ErrorKind::Indeterminate => {}
                Ok(()) => return let_go(&weak, &append.run, tenure, &why),
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    return let_go(&weak, &append.run, tenure, &why);
                }
                Err(error) => {
                    tracing::warn!(run = %append.run, %error, "cannot find out whether the run was taken");
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

/// Sends the records of a start or claim again, unless the run of the start is there, or this process has removed it.
async fn find_out(shared: &RuntimeInner, append: &RunAppend, doubt: &UnknownOutcomeGuard) -> Result<()> {
    let is_start = append.expected.is_none();
    if is_start && (shared.store.head(&append.run).await?.is_some() || !doubt.stands(shared)) {
        return Ok(());
    }
    // Once for each look: between two tries of the committer the run could be removed.
    match shared.store.append(vec![append.clone()]).await.pop() {
        Some(result) => result.map(|_| ()),
        None => Err(Error::new(ErrorKind::Corrupt, "the store gave no result for the append")),
    }
}

/// That this process does not know yet what became of a start or claim, until this is dropped.
struct UnknownOutcomeGuard {
    shared: Weak<RuntimeInner>,
    number: u64,
}

impl UnknownOutcomeGuard {
    fn new(shared: &Arc<RuntimeInner>, run: &RunKey) -> Self {
        Self { shared: Arc::downgrade(shared), number: shared.registry.doubts().add(run) }
    }

    /// Tells whether this process has not removed the run since.
    fn stands(&self, shared: &RuntimeInner) -> bool {
        shared.registry.doubts().has(self.number)
    }
}

impl Drop for UnknownOutcomeGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.registry.doubts().remove(self.number);
        }
    }
}

/// Releases a run that stopped here with an error and is this process's by its log: while this process lives, no other process would
/// claim it.
///
/// A store that has no such run is asked again for as long as a heartbeat lives: a folder may be unmounted for a moment, or a replica lag.
pub(crate) fn let_go(shared: &Weak<RuntimeInner>, run: &RunKey, tenure: ClaimId, why: &Error) {
    let (weak, run) = (Weak::clone(shared), run.clone());
    // To whoever reads the log, being fenced is that another process took the run: this one still has it.
    let reason = match why.kind() {
        ErrorKind::Fenced => "its heartbeat was lost".to_owned(),
        kind => format!("its driver stopped: {kind}"),
    };
    spawn(async move {
        let (mut pause, mut missing_since) = (FIRST_PAUSE, None);
        loop {
            let Some(shared) = weak.upgrade() else { return };
            // An executor that has ended owns nothing.
            if matches!(shared.registry.stop().phase, RuntimePhase::Ending(_))
                || shared.driver(&run).is_some()
            {
                return;
            }
            match signal::release(&shared, &run, tenure, &reason).await {
                Ok(ReleaseResult::Released) => return shared.recovery.ring(),
                Ok(ReleaseResult::NotOwned) => return,
                Ok(ReleaseResult::Missing) => {
                    let now = shared.clock.monotonic();
                    let missing_for = now.saturating_sub(*missing_since.get_or_insert(now));
                    if missing_for >= shared.limits.heartbeat_ttl {
                        return;
                    }
                }
                // In doubt, too: the next try finds whether it was let go of.
                Err(error)
                    if error.is_retryable()
                        || matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Indeterminate) =>
                {
                    tracing::debug!(%run, %error, "a run that stopped cannot be let go of yet");
                }
                Err(error) => {
                    tracing::warn!(%run, %error, "a run that stopped cannot be let go of; it is this executor's until that ends");
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

/// Ends a runtime, and comes back when no run goes on here any more.
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
    // The sender lives as long as `shared`.
    let _ = drivers.wait_for(|count| *count == 0).await;
    let mut lines = shared.post().count();
    let grace = match shared.registry.stop().phase {
        RuntimePhase::Ending(grace) => grace,
        _ => Duration::MAX,
    };
    // What is being delivered is to be on record, so that it does not come again.
    drop(within(&*shared.clock, grace, lines.wait_for(|count| *count == 0)).await);
    shared.heartbeat.end(&*shared.store, &shared.executor).await
}
