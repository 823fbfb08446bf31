//! The queues of the store as of the last read. All pages that ask at the same time share one read.

use std::fmt;
use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::store::RunHead;
use ferrata_core::{Clock as _, Timestamp};
use ferrata_queue::{QUEUE_LABEL, QueueMembership, QueueOverview, QueueStatus, SlotHolder, SlotWaiter};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::access::Viewer;
use crate::app::ApiCall;
use crate::problem::Problem;
use crate::redact::Redaction;
use crate::view::summary::key;
use crate::view::text::SHORT;

/// Maximum age of the data for the page of a run. The page of an active run asks at each of its records, the page of an idle run every few seconds.
const BUSY: Duration = Duration::from_secs(2);
const AT_REST: Duration = Duration::from_secs(10);

/// Maximum number of queues per answer, and of slot holders and waiters per queue.
const QUEUES: usize = 50;
const NAMED: usize = 10;

/// The queues of the store as of the last read.
#[derive(Default)]
pub(crate) struct QueueBoard(Mutex<QueueListing>);

#[derive(Default)]
struct QueueListing {
    overview: QueueOverview,
    at: Option<Duration>,
}

impl fmt::Debug for QueueBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueueBoard")
    }
}

impl QueueBoard {
    /// Reads the queues if the last read is older than `age`, and returns a value derived from them.
    async fn with_overview<T>(
        &self,
        call: &ApiCall,
        age: Duration,
        tell: impl FnOnce(&QueueOverview, Timestamp) -> T,
    ) -> Result<T, Problem> {
        let mut looked = self.0.lock().await;
        let now = call.app.clock.monotonic();
        if looked.at.is_none_or(|at| now.saturating_sub(at) >= age) {
            looked.at = None;
            looked.overview.refresh(call.runtime()).await?;
            looked.at = Some(now);
        }
        Ok(tell(&looked.overview, call.app.now()))
    }
}

/// Returns all queues that the viewer may see. Queues that grant no slots or have waiters come first.
pub(crate) async fn all(call: &ApiCall) -> Result<Value, Problem> {
    let told = |overview: &QueueOverview, now| (overview.statuses(now), overview.unreadable());
    let (mut known, unreadable) = call.app.queues.with_overview(call, Duration::ZERO, told).await?;
    known.retain(|one| call.viewer.sees(&one.run));
    known.sort_by_key(|one| one.overrides.paused.is_none() && one.closed_until.is_none() && one.waiting == 0);
    let queues: Vec<Value> =
        known.iter().take(QUEUES).map(|one| queue(one, &call.viewer, &call.app.redaction)).collect();
    let unreadable: Vec<Value> = unreadable
        .iter()
        .filter(|one| call.viewer.sees(&one.run))
        .take(QUEUES)
        .map(|one| json!({ "name": one.name, "run": key(&one.run), "why": call.app.redaction.cut(&one.why, SHORT) }))
        .collect();
    Ok(json!({ "count": known.len(), "items": queues, "unreadable": unreadable }))
}

fn queue(one: &QueueStatus, viewer: &Viewer, hides: &Redaction) -> Value {
    let (limits, set) = (one.limits(), &one.overrides);
    let status = match (&set.paused, one.closed_until) {
        (Some(_), _) => "paused",
        (None, Some(_)) => "closed",
        (None, None) => "open",
    };
    let set = [
        ("at_once", set.at_once.is_some()),
        ("at_once_per_key", set.at_once_per_key.is_some()),
        ("rate", set.rate.is_some()),
        ("rate_per_key", set.rate_per_key.is_some()),
    ];
    let set: Vec<&str> = set.iter().filter_map(|(name, is_set)| is_set.then_some(*name)).collect();
    let held = one.held.iter().filter(|held| viewer.sees(&held.run)).take(NAMED).map(holder);
    let line = one.line.iter().enumerate().filter(|(_, waiting)| viewer.sees(&waiting.run)).take(NAMED);
    json!({
        "name": one.name,
        "run": key(&one.run),
        "version": limits.version,
        "status": status,
        "why": one.overrides.paused.as_ref().map(|why| hides.cut(why, SHORT)),
        "until": one.closed_until,
        "at_once": limits.at_once,
        "at_once_per_key": limits.at_once_per_key,
        "rate": limits.rate,
        "rate_per_key": limits.rate_per_key,
        "max_waiting": limits.max_waiting,
        "weights": limits.weights,
        "set_by_operator": set,
        "held": one.held.iter().map(|held| u64::from(held.places)).sum::<u64>(),
        "waiting": one.waiting,
        "holders": held.collect::<Vec<_>>(),
        "line": line.map(|(before, waiting)| waits(before, waiting)).collect::<Vec<_>>(),
    })
}

fn holder(held: &SlotHolder) -> Value {
    json!({ "run": key(&held.run), "for": held.kind, "key": held.key, "places": held.places, "since": held.at })
}

fn waits(before: usize, waiting: &SlotWaiter) -> Value {
    json!({
        "run": key(&waiting.run), "for": waiting.kind, "key": waiting.key, "places": waiting.places, "since": waiting.since,
        "before": before, "priority": waiting.priority, "not_before": waiting.not_before, "deadline": waiting.deadline,
    })
}

/// The positions of a run in queues. Queues in which the run waits come first.
#[derive(Default)]
pub(crate) struct RunStandings(Vec<(QueueMembership, Option<QueueStatus>)>);

impl RunStandings {
    pub(crate) fn all(&self) -> Vec<QueueMembership> {
        self.0.iter().map(|(one, _)| one.clone()).collect()
    }

    /// Returns the status of a queue if the viewer may see it. The length of a line reveals something about the runs of other tenants.
    pub(crate) fn status(&self, standing: &QueueMembership) -> Option<QueueStatus> {
        self.0.iter().find(|(one, _)| one.queue == standing.queue).and_then(|(_, status)| status.clone())
    }

    pub(crate) fn to_json(&self, call: &ApiCall) -> Value {
        let hides = &call.app.redaction;
        self.0.iter().map(|(one, status)| standing(one, status.as_ref(), hides)).collect()
    }
}

/// Reads the positions of a run in queues. For a run that cannot be in a queue, nothing is read.
pub(crate) async fn of_run(
    call: &ApiCall,
    head: &RunHead,
    questions: &Value,
) -> Result<RunStandings, Problem> {
    let is_busy = head.status == RunStatus::InProgress && head.wake_at.is_none();
    let rests = || questions.as_array().into_iter().flatten().any(|one| is_slot_question(&one["id"]));
    let is_in_one = head.facts.labels.get(QUEUE_LABEL).is_some() || rests();
    if head.status.is_finished() || !(is_busy || is_in_one) {
        return Ok(RunStandings::default());
    }
    let tell = |overview: &QueueOverview, now: Timestamp| -> RunStandings {
        let of = |one: QueueMembership| {
            let status = overview.status(&one.queue, now).filter(|status| call.viewer.sees(&status.run));
            (one, status)
        };
        RunStandings(overview.memberships(&head.run, now).into_iter().take(NAMED).map(of).collect())
    };
    let told = call.app.queues.with_overview(call, if is_busy { BUSY } else { AT_REST }, tell).await?;
    // The run is in a queue but was not at the last read, so it joined the queue since then.
    if told.0.is_empty() && is_in_one {
        return call.app.queues.with_overview(call, Duration::ZERO, tell).await;
    }
    Ok(told)
}

/// Returns whether the question with this id stands for a node's wait for a slot.
fn is_slot_question(id: &Value) -> bool {
    id.as_str().is_some_and(|id| id.contains(":queue."))
}

fn standing(one: &QueueMembership, status: Option<&QueueStatus>, hides: &Redaction) -> Value {
    let mut told = json!({
        "queue": one.queue, "for": one.kind, "places": one.places, "key": one.key, "since": one.since,
        "waits": one.before.is_some(), "not_before": one.not_before, "deadline": one.deadline,
    });
    if let Some(status) = status {
        told["before"] = json!(one.before);
        told["waiting"] = json!(status.waiting);
        told["held"] = json!(status.held.iter().map(|held| u64::from(held.places)).sum::<u64>());
        told["at_once"] = json!(status.limits().at_once);
        told["paused"] = json!(status.overrides.paused.as_ref().map(|why| hides.cut(why, SHORT)));
        told["until"] = json!(status.closed_until);
    }
    told
}
