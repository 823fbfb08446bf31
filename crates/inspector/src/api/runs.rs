//! Lists runs by filters and search words, page by page. The listing reads only the heads of runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Position, ReasonKind, RunOrigin, RunReason, is_system};
use ferrata_core::store::{CheckpointStore, Cursor, Order, Page, Paged, RunFilter, RunHead, RunQuery};
use ferrata_core::{ErrorKind, ExecutorId, RunKey, Timestamp, WorkflowName};
use ferrata_queue::{QUEUE_LABEL, explain_memberships};
use serde_json::{Value, json};

use crate::app::ApiCall;
use crate::cache::CacheKey;
use crate::params::QueryParams;
use crate::problem::Problem;
use crate::queues;
use crate::view::brief::{brief, urgent_reason};
use crate::view::summary::summary;
use crate::view::unreadable::{UnreadableList, is_unreadable, why_unreadable};

/// Maximum number of heads that a search reads for one answer. The next request continues at the cursor.
const SEARCHED: usize = 5_000;

/// Maximum number of runs with details in an answer, and of records of such a run. The log of a run is read once for each head.
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
    "below",
    "roots",
    "system",
    "owner",
    "filter",
    "q",
    "limit",
    "cursor",
    "order",
];

/// Answers `GET /api/v1/runs`.
pub(super) async fn list(call: ApiCall) -> Result<Json<Value>, Problem> {
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
    let store = &**call.runtime().store();
    let words: Vec<String> =
        params.one("q")?.unwrap_or_default().split_whitespace().map(str::to_lowercase).collect();
    let mut items = match (params.one("q")?, &cursor) {
        (Some(text), None) => named(&call, &query, text).await?.into_iter().collect(),
        _ => Vec::new(),
    };
    let known: Option<RunKey> = items.first().map(|head: &RunHead| head.run.clone());
    let choice = ExtraFilter::read(&params, &query)?;
    let is_hit =
        |head: &RunHead| known.as_ref() != Some(&head.run) && choice.takes(head) && has(head, &words);
    let mut lists = RunLister::default();
    let (mut cursor, mut looked) = (cursor, 0);
    // A list without search words reads one page of the store. A search reads large pages.
    let mut most = if words.is_empty() { limit } else { Page::MAX };
    let next = loop {
        // Leave space for one more run after a run that was found by name. Without it, the list could not continue.
        let missing = (limit as usize).saturating_sub(items.len()).max(1);
        let mut size = most;
        let found = loop {
            let found = lists.page(store, &query, page(size, cursor.clone())).await?;
            let mut hits = (1..).zip(&found.items).filter(|(_, head)| is_hit(head)).skip(missing - 1);
            match (hits.next(), hits.next()) {
                // A cursor points to the end of a page. So read this page with a size at which it ends with the last displayed run.
                (Some((last, _)), Some(_)) => size = last,
                _ => break found,
            }
        };
        looked += found.items.len();
        items.extend(found.items.into_iter().filter(is_hit));
        cursor = found.next;
        if cursor.is_none() || items.len() >= limit as usize || looked >= SEARCHED {
            break cursor;
        }
        most = Page::MAX;
    };
    let below = match choice.only_roots {
        true => call.app.trees.below(&call, &query, &items).await?,
        false => BTreeMap::new(),
    };
    let shown = |head: &RunHead| {
        let mut shown = summary(head, &call.viewer);
        if let Some(below) = below.get(&head.run) {
            shown["below"] = json!(below);
        }
        shown
    };
    Ok(Json(json!({
        "now": call.app.now(), "items": items.iter().map(shown).collect::<Vec<_>>(), "next": next, "looked_at": looked,
        "unreadable": lists.unreadable.shown(),
    })))
}

/// Lists pages of runs, and reports unreadable runs, which a store omits by default.
#[derive(Default)]
struct RunLister {
    unreadable: UnreadableList,
    is_partial: bool,
}

impl RunLister {
    async fn page(
        &mut self,
        store: &dyn CheckpointStore,
        query: &RunQuery,
        page: Page,
    ) -> Result<Paged<RunHead>, Problem> {
        let mut query = query.clone();
        query.complete = !self.is_partial;
        match store.runs(&query, page.clone()).await {
            Err(error) if query.complete && is_unreadable(&error) => {
                self.unreadable.add_error(&error);
                self.is_partial = true;
                query.complete = false;
                Ok(store.runs(&query, page).await?)
            }
            listed => Ok(listed?),
        }
    }
}

/// The conditions of a filter that the store does not evaluate.
struct ExtraFilter {
    only_roots: bool,
    with_system: bool,
}

impl ExtraFilter {
    fn read(params: &QueryParams, query: &RunQuery) -> Result<Self, Problem> {
        let flag = |name| Ok::<_, Problem>(params.parsed::<bool>(name)?.unwrap_or(false));
        // If the filter names a workflow or a label, queues and schedules are listed too.
        let is_named = query.workflow.is_some() || !query.labels.is_empty();
        Ok(Self { only_roots: flag("roots")?, with_system: flag("system")? || is_named })
    }

    fn takes(&self, head: &RunHead) -> bool {
        (self.with_system || !is_system(head)) && (!self.only_roots || RunOrigin::is_root(head))
    }
}

fn query(call: &ApiCall, params: &QueryParams) -> Result<RunQuery, Problem> {
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
        let source = QueryParams::run(source)?;
        if !call.viewer.sees(&source) {
            return Err(Problem::no_run(&source));
        }
        query.parent = Some(source);
    }
    if let Some(root) = params.one("below")? {
        let root = QueryParams::run(root)?;
        if !call.viewer.sees(&root) {
            return Err(Problem::no_run(&root));
        }
        query.tenant = Some(root.tenant);
        query.labels.push((RunOrigin::ROOT_LABEL.to_owned(), root.run.to_string()));
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

/// Finds the run with the full name of a search, however old it is.
async fn named(call: &ApiCall, query: &RunQuery, text: &str) -> Result<Option<RunHead>, Problem> {
    let word = text.trim();
    let Ok(mut key) = QueryParams::run(word) else { return Ok(None) };
    if let Some(tenant) = query.tenant.as_ref().filter(|_| !word.contains('/')) {
        key.tenant.clone_from(tenant);
    }
    if !call.viewer.sees(&key) {
        return Ok(None);
    }
    Ok(call.runtime().head(&key).await?.filter(|head| query.matches(head, call.app.now())))
}

/// Returns whether the head of a run contains each word.
fn has(head: &RunHead, words: &[String]) -> bool {
    let mut text =
        format!("{} {} {}", head.run, head.facts.workflow, head.facts.user.as_deref().unwrap_or_default());
    for (key, value) in head.facts.labels.iter() {
        text.push_str(&format!(" {key}={value}"));
    }
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word))
}

/// Answers `GET /api/v1/briefs`: details of runs beyond their heads, for a list.
pub(super) async fn briefs(call: ApiCall) -> Result<Json<Value>, Problem> {
    let params = call.params(&["run"])?;
    let names: Vec<&str> = params.all("run").collect();
    if names.len() > BRIEFS {
        return Err(Problem::too_large(format!("the request has too many runs; use at most {BRIEFS}")));
    }
    let mut items = Vec::with_capacity(names.len());
    for name in names {
        let run = QueryParams::run(name)?;
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

/// Reads the log of a run for its brief, once for each head; null if it is too long.
async fn of(call: &ApiCall, head: &RunHead) -> Result<Arc<Value>, Problem> {
    let about = CacheKey { run: head.run.clone(), head: head.id, what: "brief".into() };
    if let Some(known) = call.app.cache.get(&about) {
        let kind = &known["why"]["kind"];
        if *kind != json!(ReasonKind::Child) && *kind != json!(ReasonKind::Queue) {
            return Ok(known);
        }
        // Children and queues can change the reasons without a record of the run.
        let reasons = reasons(call, head).await?;
        let mut brief = Value::clone(&known);
        brief["why"] = urgent_reason(&reasons, &call.app.redaction);
        return Ok(brief.into());
    }
    if head.seq.get().saturating_sub(head.first.get()) > LONGEST {
        return Ok(Arc::new(Value::Null));
    }
    match call.runtime().checkpoint(&head.run, Position::Record(head.id)).await {
        Ok(now) => {
            call.app.reasons.insert(&now);
            let reasons = reasons(call, head).await?;
            let brief = brief(&now, &reasons, &call.app.redaction);
            Ok(call.app.cache.put(about, brief))
        }
        // Purged since it was listed.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Arc::new(Value::Null)),
        // One unreadable run hides no other.
        Err(error) if is_unreadable(&error) => {
            let why = why_unreadable(&error, &call.app.redaction);
            Ok(call.app.cache.put(about, json!({ "unreadable": why })))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the reasons for a run's status, as its page does.
async fn reasons(call: &ApiCall, head: &RunHead) -> Result<Vec<RunReason>, Problem> {
    let mut reasons = call.runtime().explain(head, &call.app.reasons).await?.reasons;
    let of_queue = |reason: &&RunReason| reason.question.as_ref().is_some_and(|id| id.contains(":queue."));
    let questions: Value =
        reasons.iter().filter(of_queue).map(|reason| json!({ "id": reason.question })).collect();
    let waits = head.facts.labels.get(QUEUE_LABEL).is_some() || questions != json!([]);
    if waits {
        let standings = queues::of_run(call, head, &questions).await?;
        explain_memberships(&mut reasons, &standings.all(), |one| standings.status(one));
    }
    Ok(reasons)
}
