//! Runs in a list: by filters and a search, a page at a time, from their heads alone.

use std::sync::Arc;

use axum::Json;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Position;
use ferrata_core::store::{Cursor, Order, Page, RunFilter, RunHead, RunQuery};
use ferrata_core::{ErrorKind, ExecutorId, RunKey, Timestamp, WorkflowName};
use serde_json::{Value, json};

use crate::app::Call;
use crate::cache::About;
use crate::params::Params;
use crate::problem::Problem;
use crate::view::brief::brief;
use crate::view::summary::summary;

/// How many heads a search looks at in one answer; the cursor goes on.
const SEARCHED: usize = 5_000;

/// How many runs one answer says more of, and how many records such a run may have: its log is read once for each head.
const BRIEFS: usize = 50;
const LONGEST: u64 = 20_000;

const PARAMS: &[&str] = &[
    "tenant",
    "workflow",
    "status",
    "label",
    "user",
    "since",
    "before",
    "forked_from",
    "owner",
    "filter",
    "q",
    "limit",
    "cursor",
    "order",
];

/// Answers `GET /api/v1/runs`.
pub(super) async fn list(call: Call) -> Result<Json<Value>, Problem> {
    let params = call.params(PARAMS)?;
    let query = query(&call, &params)?;
    let limit = params.limit(50, Page::MAX)?;
    let order = match params.one("order")? {
        None | Some("newest") => Order::NewestFirst,
        Some("oldest") => Order::OldestFirst,
        Some(_) => return Err(Problem::invalid("`order` is `newest` or `oldest`")),
    };
    let cursor = params.one("cursor")?.map(Cursor::new);
    let page = |limit: u32, cursor: Option<Cursor>| {
        let page = Page::first(limit).with_order(order);
        match cursor {
            Some(cursor) => page.with_cursor(cursor),
            None => page,
        }
    };
    let store = call.runtime().store();
    let (items, next, looked) = match params.one("q")? {
        None => {
            let found = store.runs(&query, page(limit, cursor)).await?;
            let looked = found.items.len();
            (found.items, found.next, looked)
        }
        Some(text) => {
            let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
            let mut items = match cursor {
                None => named(&call, &query, text).await?.into_iter().collect(),
                Some(_) => Vec::new(),
            };
            let known: Option<RunKey> = items.first().map(|head: &RunHead| head.run.clone());
            let is_hit = |head: &RunHead| known.as_ref() != Some(&head.run) && has(head, &words);
            let (mut cursor, mut looked) = (cursor, 0);
            loop {
                // Also beside one that is named there is room for another: a list that takes none cannot go on.
                let missing = (limit as usize).saturating_sub(items.len()).max(1);
                let mut size = Page::MAX;
                let found = loop {
                    let found = store.runs(&query, page(size, cursor.clone())).await?;
                    let mut hits = (1..).zip(&found.items).filter(|(_, head)| is_hit(head)).skip(missing - 1);
                    match (hits.next(), hits.next()) {
                        // A cursor stands behind a page: one that ends with the last that is wanted is read for it.
                        (Some((last, _)), Some(_)) => size = last,
                        _ => break found,
                    }
                };
                looked += found.items.len();
                items.extend(found.items.into_iter().filter(is_hit));
                cursor = found.next;
                if cursor.is_none() || items.len() >= limit as usize || looked >= SEARCHED {
                    break (items, cursor, looked);
                }
            }
        }
    };
    let items: Vec<Value> = items.iter().map(|head| summary(head, &call.viewer)).collect();
    Ok(Json(json!({ "now": call.app.now(), "items": items, "next": next, "looked_at": looked })))
}

fn query(call: &Call, params: &Params) -> Result<RunQuery, Problem> {
    let mut query = RunQuery::default();
    query.tenant = call.tenant(params.one("tenant")?)?;
    query.workflow = params.one("workflow")?.map(WorkflowName::new).transpose()?;
    query.user = params.one("user")?.map(str::to_owned);
    for words in params.all("status") {
        for word in words.split(',') {
            query.statuses.push(status(word)?);
        }
    }
    for label in params.all("label") {
        let (key, value) = pair(label)?;
        query.labels.push((key.to_owned(), value.to_owned()));
    }
    let ms = |name| Ok::<_, Problem>(params.parsed::<i64>(name)?.map(Timestamp::from_unix_ms));
    query.created_from = ms("since")?;
    query.created_before = ms("before")?;
    if let Some(source) = params.one("forked_from")? {
        let source = Params::run(source)?;
        if !call.viewer.sees(&source) {
            return Err(Problem::no_run(&source));
        }
        query.parent = Some(source);
    }
    query.owner = params.parsed::<ExecutorId>("owner")?;
    query.filter = match params.one("filter")? {
        None => RunFilter::Any,
        Some("orphaned") => RunFilter::Orphaned,
        Some("due") => RunFilter::Due,
        Some(_) => return Err(Problem::invalid("`filter` is `orphaned` or `due`")),
    };
    Ok(query)
}

/// Reads a label.
pub(super) fn pair(label: &str) -> Result<(&str, &str), Problem> {
    label.split_once('=').ok_or_else(|| Problem::invalid("`label` is written KEY=VALUE"))
}

pub(super) fn status(word: &str) -> Result<RunStatus, Problem> {
    serde_json::from_value(Value::from(word)).map_err(|_| {
        Problem::invalid(
            "`status` is one or several of in_progress, interrupted, awaiting_input, completed, failed, cancelled",
        )
    })
}

/// Finds the run that a search names in full, however old it is.
async fn named(call: &Call, query: &RunQuery, text: &str) -> Result<Option<RunHead>, Problem> {
    let word = text.trim();
    let Ok(mut key) = Params::run(word) else { return Ok(None) };
    if let Some(tenant) = query.tenant.as_ref().filter(|_| !word.contains('/')) {
        key.tenant.clone_from(tenant);
    }
    if !call.viewer.sees(&key) {
        return Ok(None);
    }
    Ok(call.runtime().head(&key).await?.filter(|head| query.matches(head, call.app.now())))
}

/// Whether each word stands in what the head says of a run.
fn has(head: &RunHead, words: &[String]) -> bool {
    let mut text =
        format!("{} {} {}", head.run, head.facts.workflow, head.facts.user.as_deref().unwrap_or_default());
    for (key, value) in head.facts.labels.iter() {
        text.push_str(&format!(" {key}={value}"));
    }
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word))
}

/// Answers `GET /api/v1/briefs`: what a list says of some runs beyond their heads.
pub(super) async fn briefs(call: Call) -> Result<Json<Value>, Problem> {
    let params = call.params(&["run"])?;
    let names: Vec<&str> = params.all("run").collect();
    if names.len() > BRIEFS {
        return Err(Problem::too_large(format!("at most {BRIEFS} runs in one request")));
    }
    let mut items = Vec::with_capacity(names.len());
    for name in names {
        let run = Params::run(name)?;
        if !call.viewer.sees(&run) {
            continue;
        }
        // Purged since it was listed.
        let Some(head) = call.runtime().head(&run).await? else { continue };
        items.push(
            json!({ "tenant": run.tenant, "id": run.run, "head": head.id, "brief": of(&call, &head).await? }),
        );
    }
    Ok(Json(json!({ "items": items })))
}

/// Reads the log of a run for its brief, once for each head; null if it is too long or cannot be read.
async fn of(call: &Call, head: &RunHead) -> Result<Arc<Value>, Problem> {
    let about = About { run: head.run.clone(), head: head.id, what: "brief".into() };
    if let Some(known) = call.app.cache.get(&about) {
        return Ok(known);
    }
    if head.seq.get().saturating_sub(head.first.get()) > LONGEST {
        return Ok(Arc::new(Value::Null));
    }
    match call.runtime().checkpoint(&head.run, Position::Record(head.id)).await {
        Ok(now) => Ok(call.app.cache.put(about, brief(&now, &call.app.redaction))),
        // A run that cannot be read hides no other.
        Err(error)
            if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::NotFound) =>
        {
            Ok(Arc::new(Value::Null))
        }
        Err(error) => Err(error.into()),
    }
}
