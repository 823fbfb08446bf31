//! Passes the notices of the store on to the drivers and the watchers of this process.

use std::cmp::Ordering;
use std::sync::atomic;
use std::sync::{Arc, Weak};

use super::commands::DriverCommand;
use super::inner::{RuntimeInner, RuntimeRole};
use super::tasks::spawn;
use crate::id::{HeadRef, RunKey};
use crate::record::RunStatus;
use crate::store::Notice;

/// Starts to listen to the notices of the store, unless this runtime already does so. A runtime that drives no runs needs notices only for watches.
pub(crate) fn listen_for_watch(shared: &Arc<RuntimeInner>) {
    if shared.role() == RuntimeRole::Operates && shared.feeds().begins_to_listen() {
        spawn(pass_notices(Arc::downgrade(shared)));
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
