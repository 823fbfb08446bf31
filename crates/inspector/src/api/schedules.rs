//! The schedules of the store. For each schedule, the answer has the next ticks, the latest results, and whether it is paused.

use std::time::Duration;

use axum::Json;
use ferrata_core::{Clock as _, ErrorKind, TenantId};
use ferrata_schedule::{Schedule, ScheduleStatus};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::app::ApiCall;
use crate::problem::Problem;
use crate::view::summary::key;
use crate::view::text::SHORT;
use crate::view::unreadable::{UnreadableList, is_unreadable, why_unreadable};

/// Maximum age of cached data. A page polls every few seconds, and without the cache each poll would read the log of each schedule.
const AGE: Duration = Duration::from_secs(10);

/// Number of listed ticks in the future and in the past.
const AHEAD: usize = 3;
const RECENT: usize = 8;

/// Maximum number of schedules per answer.
const MOST: usize = 200;

/// The schedules as of the last read.
#[derive(Debug, Default)]
pub(crate) struct ScheduleBoard(Mutex<Option<ScheduleListing>>);

#[derive(Debug)]
struct ScheduleListing {
    tenant: Option<TenantId>,
    at: Duration,
    found: Vec<ScheduleStatus>,
    unreadable: Value,
}

impl ScheduleBoard {
    /// Drops the cached data after a change.
    pub(crate) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

/// Answers `GET /api/v1/schedules`.
pub(super) async fn list(call: ApiCall) -> Result<Json<Value>, Problem> {
    let params = call.params(&["tenant"])?;
    let tenant = call.tenant(params.one("tenant")?)?;
    let mut board = call.app.schedules.0.lock().await;
    let now = call.app.clock.monotonic();
    let holds = |looked: &ScheduleListing| looked.tenant == tenant && now.saturating_sub(looked.at) < AGE;
    let looked = match board.take().filter(holds) {
        Some(looked) => board.insert(looked),
        None => board.insert(read(&call, tenant, now).await?),
    };
    let items: Vec<Value> = looked.found.iter().take(MOST).map(|one| shown(&call, one)).collect();
    Ok(Json(json!({
        "now": call.app.now(), "count": looked.found.len(), "items": items, "unreadable": looked.unreadable
    })))
}

async fn read(call: &ApiCall, tenant: Option<TenantId>, at: Duration) -> Result<ScheduleListing, Problem> {
    let (mut found, mut unreadable) = (Vec::new(), UnreadableList::default());
    for schedule in Schedule::list(call.runtime(), tenant.as_ref()).await? {
        match schedule.status().await {
            Ok(status) => found.push(status),
            // The schedule was purged after it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if is_unreadable(&error) => {
                let why = why_unreadable(&error, &call.app.redaction);
                match error.run() {
                    Some(run) => unreadable.add(run, &why),
                    None => unreadable.add_error(&error),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ScheduleListing { tenant, at, found, unreadable: unreadable.shown() })
}

fn shown(call: &ApiCall, one: &ScheduleStatus) -> Value {
    let (definition, progress) = (&one.definition, &one.progress);
    let next = match one.has_ended() || one.is_paused {
        true => Vec::new(),
        false => one.next(call.app.now(), AHEAD).unwrap_or_default(),
    };
    let recent = progress.recent.iter().rev().take(RECENT);
    let recent = recent
        .map(|tick| json!({ "tick": tick.tick, "text": call.app.redaction.cut(&tick.to_string(), SHORT) }));
    json!({
        "name": definition.name,
        "run": key(&one.run),
        "status": one.run_status,
        "paused": one.is_paused,
        "ended": one.has_ended(),
        "cron": definition.cron,
        "timezone": definition.timezone,
        "starts_workflow": definition.workflow,
        "next": next,
        "recent": recent.collect::<Vec<_>>(),
        "started": progress.started,
        "skipped": progress.skipped,
        "missed": progress.missed,
        "due": progress.due.len(),
    })
}
