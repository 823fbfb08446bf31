//! Idle runs whose parent has ended: nobody claims them, so nobody would see that nobody waits for them.
//!
//! A parent tells its children to stop before it ends, and a process that starts a child too late looks for the parent. What is left is a child
//! that came to rest before that process, which died, had looked. It is rare, so it is looked for rarely: the children at rest are listed page by
//! page, one page for each pause of the sweep, and again after [`PASSES`] pauses.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::id::RunKey;
use crate::record::RunStatus;
use crate::record::child::ParentBond;
use crate::record::parent_link::{BOND, parent_link};
use crate::runtime::children::is_wanted;
use crate::runtime::shared::{RuntimeInner, RuntimePhase};
use crate::store::{Cursor, Order, Page, RunHead, RunQuery};

/// How many pauses of the sweep lie between two passes: a minute by default.
const PASSES: u32 = 60;

/// How many runs one page holds.
const PAGE: u32 = 500;

/// Cancels idle children of ended parents, as long as there is a runtime.
pub(crate) async fn cancel_idle_orphans(shared: Weak<RuntimeInner>) {
    let mut cursor = None;
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let pause = strong.limits.sweep.saturating_mul(if cursor.is_some() { 1 } else { PASSES });
        let (clock, mut stop) = (Arc::clone(&strong.clock), strong.registry.watch_stop());
        drop(strong);
        tokio::select! {
            // In this order, so that a simulation takes the same course each time.
            biased;
            _ = stop.wait_for(|stop| stop.phase != RuntimePhase::Open) => return,
            () = clock.sleep(pause) => {}
        }
        let Some(strong) = shared.upgrade() else { return };
        cursor = match look_at_page(&strong, cursor.take()).await {
            Ok(next) => next,
            Err(error) => {
                tracing::debug!(%error, "cannot look for idle children of ended parents; looking again later");
                None
            }
        };
    }
}

/// Goes through one page of the children at rest. Returns where the next one begins.
async fn look_at_page(shared: &Arc<RuntimeInner>, from: Option<Cursor>) -> Result<Option<Cursor>> {
    let mut query = RunQuery::default();
    query.statuses = vec![RunStatus::InProgress, RunStatus::Interrupted, RunStatus::AwaitingInput];
    query.labels.push((BOND.to_owned(), ParentBond::Cancel.as_str().to_owned()));
    let mut page = Page::first(PAGE).with_order(Order::Any);
    page.cursor = from;
    let listed = shared.store.runs(&query, page).await?;
    let mut parents = HashMap::new();
    for child in listed.items {
        // One that no process has and that is not due is claimed by nobody. Of each workflow, those who serve it look.
        let is_idle =
            child.owner.is_none() && (child.status != RunStatus::InProgress || child.wake_at.is_some());
        if !is_idle || !shared.recovery.serves(&child.facts.workflow) {
            continue;
        }
        let Some(link) = parent_link(&child.run, &child.facts) else { continue };
        let parent = match parents.get(&link.parent) {
            Some(parent) => parent,
            None => {
                let head = shared.store.head(&link.parent).await?;
                parents.entry(link.parent.clone()).or_insert(head)
            }
        };
        if has_ended(&child, parent.as_ref()) {
            look_at_child(shared, &child.run, &child).await;
        }
    }
    Ok(listed.next)
}

/// Whether the parent of a run has ended for good, as its head tells, or is another run by now.
fn has_ended(child: &RunHead, parent: Option<&RunHead>) -> bool {
    parent.is_none_or(|parent| {
        matches!(parent.status, RunStatus::Completed | RunStatus::Cancelled)
            || parent.facts.created > child.facts.created
    })
}

async fn look_at_child(shared: &Arc<RuntimeInner>, run: &RunKey, child: &RunHead) {
    match is_wanted(shared, run, &child.facts).await {
        Ok(true) => {}
        Ok(false) => tracing::info!(%run, "cancelled an idle run whose parent has ended"),
        // The next pass looks again.
        Err(error) => tracing::debug!(%run, %error, "cannot look for the parent of an idle run"),
    }
}
