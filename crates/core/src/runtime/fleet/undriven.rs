//! Runs that the store gives to this process and that no driver here drives.
//!
//! While this process lives, no other process claims them. A driver that stops releases its run. A run is left if that release gave up, or if
//! the store lost it. So this process lists its own runs, rarely, and releases each that it finds twice without a driver.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::life::{Tenure, let_go};
use crate::engine::fold::fold;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{RecordId, RunKey};
use crate::record::RunStatus;
use crate::runtime::shared::{Phase, Shared};
use crate::store::{At, Order, Page, RunHead, RunQuery};

/// How many runs one page holds.
const PAGE: u32 = 500;

/// The undriven runs of one look, each with its last record.
type Undriven = HashMap<RunKey, RecordId>;

/// Releases runs of this process that no driver here drives, as long as there is a runtime. It looks once in the life of a heartbeat.
pub(crate) async fn release_undriven(shared: Weak<Shared>) {
    let mut seen = Undriven::new();
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let pause = strong.limits.heartbeat_ttl;
        let (clock, mut stop) = (Arc::clone(&strong.clock), strong.registry.watch_stop());
        drop(strong);
        tokio::select! {
            // In this order, so that a simulation takes the same course each time.
            biased;
            _ = stop.wait_for(|stop| stop.phase != Phase::Open) => return,
            () = clock.sleep(pause) => {}
        }
        let Some(strong) = shared.upgrade() else { return };
        seen = match look(&strong, &seen).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "cannot look for own runs without a driver; looking again later");
                Undriven::new()
            }
        };
    }
}

/// Releases the undriven runs that the last look saw as well, and returns those that this look sees.
async fn look(shared: &Arc<Shared>, seen: &Undriven) -> Result<Undriven> {
    let mut query = RunQuery::default();
    query.owner = Some(shared.executor);
    query.statuses = vec![RunStatus::InProgress];
    let (mut found, mut cursor) = (Undriven::new(), None);
    loop {
        let mut page = Page::first(PAGE).with_order(Order::Any);
        page.cursor = cursor;
        let listed = shared.store.runs(&query, page).await?;
        for head in listed.items {
            // A start or a claim is registered before its record.
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

async fn release(shared: &Arc<Shared>, head: &RunHead) -> Result<()> {
    let run = &head.run;
    let Some(records) = shared.store.load(run, At::Latest).await? else { return Ok(()) };
    let life = match fold(run, &records, None) {
        Ok(folded) => folded.machine.life(),
        // Whoever claims the run cannot read it either.
        Err(error) => {
            tracing::debug!(%run, %error, "cannot read an own run without a driver");
            return Ok(());
        }
    };
    tracing::warn!(%run, "releasing a run of this process that nothing here drives");
    let why = Error::new(ErrorKind::Closed, "its process had no driver of it");
    let_go(&Arc::downgrade(shared), run, Tenure { life, epoch: head.epoch }, &why);
    Ok(())
}
