//! The background tasks of a runtime, which send heartbeats, receive notices of the store, release runs and shut the runtime down.

use crate::kernel::heartbeat::HeartbeatResult;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::within;
use crate::error::Result;
use crate::kernel::admission::AdmissionControl;
use crate::kernel::commands::RuntimePhase;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::spawn;

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
