//! The fleet: the runs that each process drives, the runs without a process, and the guarantees of the store.

use std::collections::BTreeMap;

use axum::Json;
use ferrata_core::Timestamp;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::is_system;
use ferrata_core::store::{Cursor, Page, RunHead, RunQuery};
use serde_json::{Value, json};

use crate::app::ApiCall;
use crate::problem::Problem;
use crate::queues;
use crate::view::summary::{key, summary};
use crate::view::text::LONG;

/// Maximum number of pages of runs in progress.
const PAGES: usize = 5;

/// Maximum number of named runs per group.
const NAMED: usize = 50;

#[derive(Default)]
struct Executor {
    alive: bool,
    runs: usize,
    updated: Option<Timestamp>,
    workflows: BTreeMap<String, usize>,
}

/// Answers `GET /api/v1/fleet`.
pub(super) async fn fleet(call: ApiCall) -> Result<Json<Value>, Problem> {
    let params = call.params(&["tenant"])?;
    let mut query = RunQuery::default();
    query.tenant = call.tenant(params.one("tenant")?)?;
    query.statuses = vec![RunStatus::InProgress];
    let store = call.runtime().store();
    let asked = call.app.now();
    let (mut heads, mut cursor): (Vec<RunHead>, Option<Cursor>) = (Vec::new(), None);
    for _ in 0..PAGES {
        let page = Page::first(Page::MAX);
        let page = match cursor.take() {
            Some(cursor) => page.with_cursor(cursor),
            None => page,
        };
        let mut found = store.runs(&query, page).await?;
        // Schedules have their own list, and queues follow below.
        found.items.retain(|head| !is_system(head));
        heads.extend(found.items);
        cursor = found.next;
        if cursor.is_none() {
            break;
        }
    }
    let took = call.app.now().unix_ms().saturating_sub(asked.unix_ms());
    let mut executors: BTreeMap<String, Executor> = BTreeMap::new();
    for head in &heads {
        let Some(owner) = head.owner else { continue };
        let executor = executors.entry(owner.to_string()).or_default();
        executor.alive |= head.owner_alive;
        executor.runs += 1;
        executor.updated = executor.updated.max(Some(head.updated));
        *executor.workflows.entry(head.facts.workflow.to_string()).or_default() += 1;
    }
    let executors: Vec<Value> = executors
        .into_iter()
        .map(|(id, one)| {
            json!({ "id": id, "alive": one.alive, "runs": one.runs, "updated": one.updated, "workflows": one.workflows })
        })
        .collect();
    let group = |is: &dyn Fn(&RunHead) -> bool| {
        let all: Vec<&RunHead> = heads.iter().filter(|head| is(head)).collect();
        let named: Vec<Value> = all.iter().take(NAMED).map(|head| summary(head, &call.viewer)).collect();
        json!({ "count": all.len(), "runs": named })
    };
    let stalled: Vec<Value> = call
        .runtime()
        .stalled()
        .iter()
        .filter(|stalled| call.viewer.sees(&stalled.run))
        .map(|stalled| {
            let why = call.app.redaction.cut(&stalled.error.to_string(), LONG);
            json!({ "run": key(&stalled.run), "why": why, "tries": stalled.tries, "next": stalled.next })
        })
        .collect();
    let promises = store.capabilities();
    Ok(Json(json!({
        "now": call.app.now(),
        "self": call.runtime().executor(),
        "executors": executors,
        "in_progress": heads.len(),
        "more": cursor.is_some(),
        "queued": group(&|head| head.is_queued()),
        "orphaned": group(&|head| !head.is_queued() && head.wake_at.is_none() && !head.owner_alive),
        "sleeping": group(&|head| head.wake_at.is_some()),
        "stalled": stalled,
        "queues": queues::all(&call).await?,
        "store": {
            "kind": promises.name, "durable": promises.durable, "shared": promises.shared, "notices": promises.notices,
            "listing_ms": took,
        },
    })))
}
