//! The queues in which runs wait or hold slots.

use std::collections::{HashMap, HashSet};

use ferrata::queue::{QueueMembership, QueueOverview, explain_memberships};
use ferrata::runtime::RunReason;
use ferrata::store::RunHead;
use ferrata::{RunKey, RunStatus, Runtime, Timestamp};
use ferrata_core::wording::count;
use tokio::sync::Mutex;

use crate::context::CommandContext;
use crate::table::clean;

/// The queues of the store. After the first read, each read loads only changed queues.
#[derive(Default)]
pub(crate) struct QueueCache(Mutex<QueueOverview>);

impl QueueCache {
    /// Returns the waits of the runs in a listing. If none of the runs can wait, no queue is read.
    pub(crate) async fn of(
        &self,
        context: &CommandContext,
        runtime: &Runtime,
        heads: &[RunHead],
    ) -> HashMap<RunKey, Vec<QueueMembership>> {
        let may_wait: HashSet<&RunKey> =
            heads.iter().filter(|head| may_wait(head)).map(|head| &head.run).collect();
        if may_wait.is_empty() {
            return HashMap::new();
        }
        let mut overview = self.0.lock().await;
        refresh_queues(context, runtime, &mut overview).await;
        let mut waits = overview.waits_by_run(context.now());
        waits.retain(|run, _| may_wait.contains(run));
        waits
    }
}

/// Returns whether a run or one of its nodes may wait for a slot, according to the head of the run.
fn may_wait(head: &RunHead) -> bool {
    matches!(head.status, RunStatus::InProgress | RunStatus::Interrupted) && head.wake_at.is_none()
}

/// Reads the queues. An unreadable queue does not prevent the others from being read.
pub(crate) async fn refresh_queues(
    context: &CommandContext,
    runtime: &Runtime,
    overview: &mut QueueOverview,
) {
    if let Err(error) = overview.refresh(runtime).await {
        context.out.note(&format!("cannot read the queues: {}", clean(&error.to_string())));
    }
}

/// Describes the slot that a run holds or waits for.
pub(crate) fn describe_slot(one: &QueueMembership, since: &str) -> String {
    let slots = match one.places {
        1 => "a slot".to_owned(),
        places => count(places, "slot"),
    };
    format!("{slots} of queue `{}`, since {since}", clean(&one.queue))
}

impl QueueCache {
    /// Does the same as the function [`explain`], with the queues of the last read.
    pub(crate) async fn explain(
        &self,
        reasons: &mut Vec<RunReason>,
        standings: &[QueueMembership],
        now: Timestamp,
    ) {
        if !standings.is_empty() {
            explain(reasons, standings, &*self.0.lock().await, now);
        }
    }
}

/// Adds the reasons from the queues to the reasons for the status of a run.
pub(crate) fn explain(
    reasons: &mut Vec<RunReason>,
    standings: &[QueueMembership],
    overview: &QueueOverview,
    now: Timestamp,
) {
    explain_memberships(reasons, standings, |one| overview.status(&one.queue, now));
}
