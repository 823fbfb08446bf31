//! Releases runs that this process owns according to the store, but that have no driver in this process.
//!
//! While this process lives, no other process claims such runs. Normally a driver releases its run when it stops. But the release may have failed, or
//! the store may have lost its record. So this process lists its own runs from time to time, and releases each run that it has twice found without a
//! driver.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::claim::ClaimId;
use crate::engine::fold::fold;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{RecordId, RunKey};
use crate::kernel::commands::RuntimePhase;
use crate::kernel::inner::RuntimeInner;
use crate::record::RunStatus;
use crate::runtime::writes::release::release_failed_run;
use crate::store::{At, Order, Page, RunHead, RunQuery};

/// The number of runs per page.
const PAGE: u32 = 500;

/// The runs without a driver that one check found, each with its last record.
type Undriven = HashMap<RunKey, RecordId>;

/// Releases runs that this process owns but does not drive. It checks once in each heartbeat TTL, until the runtime ends.
pub(crate) async fn release_undriven(shared: Weak<RuntimeInner>) {
    let mut seen = Undriven::new();
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let pause = strong.limits.heartbeat_ttl;
        let (clock, mut stop) = (Arc::clone(&strong.clock), strong.registry.watch_stop());
        drop(strong);
        tokio::select! {
            // Biased, because simulations must be deterministic.
            biased;
            _ = stop.wait_for(|stop| stop.phase != RuntimePhase::Open) => return,
            () = clock.sleep(pause) => {}
        }
        let Some(strong) = shared.upgrade() else { return };
        seen = match check_undriven(&strong, &seen).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "cannot list own runs without a driver; will retry");
                Undriven::new()
            }
        };
    }
}

/// Releases the runs without a driver that the previous check has also found, and returns all runs that this check found.
async fn check_undriven(shared: &Arc<RuntimeInner>, seen: &Undriven) -> Result<Undriven> {
    let mut query = RunQuery::default();
    query.owner = Some(shared.executor);
    query.statuses = vec![RunStatus::InProgress];
    let (mut found, mut cursor) = (Undriven::new(), None);
    loop {
        let mut page = Page::first(PAGE).with_order(Order::Any);
        page.cursor = cursor;
        let listed = shared.store.runs(&query, page).await?;
        for head in listed.items {
            // A start or a claim registers before it appends.
            if head.owner != Some(shared.executor) || shared.driver(&head.run).is_some() {
                continue;
            }
            if seen.get(&head.run) == Some(&head.id) {
                release(shared, &head).await?;
            }
            found.insert(head.run, head.id);
        }
        cursor = listed.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

async fn release(shared: &Arc<RuntimeInner>, head: &RunHead) -> Result<()> {
    let run = &head.run;
    let Some(records) = shared.store.load(run, At::Latest).await? else { return Ok(()) };
    let start_id = match fold(run, &records, None) {
        Ok(folded) => folded.machine.start_id(),
        // Other claimers cannot read the run, either.
        Err(error) => {
            tracing::debug!(%run, %error, "cannot read an own run without a driver");
            return Ok(());
        }
    };
    tracing::warn!(%run, "releasing an own run without a driver");
    let why = Error::new(ErrorKind::Closed, "its process had no driver for it");
    release_failed_run(&Arc::downgrade(shared), run, ClaimId { start_id, epoch: head.epoch }, &why);
    Ok(())
}
