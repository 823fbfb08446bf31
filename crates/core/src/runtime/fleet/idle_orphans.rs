//! Cancels idle runs whose parent has ended. No process claims an idle run, so no driver would notice that the parent has ended.
//!
//! A parent stops its children before it ends, and a process that starts a child too late checks the parent. One case remains: the child became idle
//! before its process made this check, and the process then died. This case is rare, so this module checks rarely. It lists idle children, one page
//! in each sweep interval, and starts again after [`PASSES`] intervals.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::id::RunKey;
use crate::kernel::commands::RuntimePhase;
use crate::kernel::inner::RuntimeInner;
use crate::record::RunStatus;
use crate::record::child::ParentBond;
use crate::record::parent_link::{BOND, parent_link};
use crate::runtime::child_control::orphan::is_wanted;
use crate::store::{Cursor, Order, Page, RunHead, RunQuery};

/// The number of sweep intervals between two passes. By default, this is a minute.
const PASSES: u32 = 60;

/// The number of runs per page.
const PAGE: u32 = 500;

/// Cancels idle children of parents that have ended, repeatedly until the runtime ends.
pub(crate) async fn cancel_idle_orphans(shared: Weak<RuntimeInner>) {
    let mut cursor = None;
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let pause = strong.limits.sweep.saturating_mul(if cursor.is_some() { 1 } else { PASSES });
        let (clock, mut stop) = (Arc::clone(&strong.clock), strong.registry.watch_stop());
        drop(strong);
        tokio::select! {
            // Biased, because simulations must be deterministic.
            biased;
            _ = stop.wait_for(|stop| stop.phase != RuntimePhase::Open) => return,
            () = clock.sleep(pause) => {}
        }
        let Some(strong) = shared.upgrade() else { return };
        cursor = match check_page(&strong, cursor.take()).await {
            Ok(next) => next,
            Err(error) => {
                tracing::debug!(%error, "cannot list idle children of ended parents; will retry");
                None
            }
        };
    }
}

/// Checks one page of idle children. Returns the start of the next one.
async fn check_page(shared: &Arc<RuntimeInner>, from: Option<Cursor>) -> Result<Option<Cursor>> {
    let mut query = RunQuery::default();
    query.statuses = vec![RunStatus::InProgress, RunStatus::Interrupted, RunStatus::AwaitingInput];
    query.labels.push((BOND.to_owned(), ParentBond::Cancel.as_str().to_owned()));
    let mut page = Page::first(PAGE).with_order(Order::Any);
    page.cursor = from;
    let listed = shared.store.runs(&query, page).await?;
    let mut parents = HashMap::new();
    for child in listed.items {
        // A run without an owner that is not due has no claimer. The processes that serve a workflow check its runs.
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
            check_child(shared, &child.run, &child).await;
        }
    }
    Ok(listed.next)
}

/// Returns whether the parent of a run has ended, or its id belongs to another run.
fn has_ended(child: &RunHead, parent: Option<&RunHead>) -> bool {
    parent.is_none_or(|parent| {
        matches!(parent.status, RunStatus::Completed | RunStatus::Cancelled)
            || parent.facts.created > child.facts.created
    })
}

async fn check_child(shared: &Arc<RuntimeInner>, run: &RunKey, child: &RunHead) {
    match is_wanted(shared, run, &child.facts).await {
        Ok(true) => {}
        Ok(false) => tracing::info!(%run, "cancelled an idle run whose parent has ended"),
        // The next pass tries again.
        Err(error) => tracing::debug!(%run, %error, "cannot read the parent of an idle run; will retry"),
    }
}
