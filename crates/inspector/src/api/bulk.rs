//! Performs one act on all runs that match a filter, in parts. A dry run only lists the runs.

use axum::Json;
use axum::body::Bytes;
use axum::extract::Path;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use ferrata_core::runtime::{BulkReport, RunsRequest};
use ferrata_core::store::{Cursor, Page};
use ferrata_core::{Error, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::acts::{by, permitted, read, reason_or_default};
use super::runs::{pair, status};
use crate::app::ApiCall;
use crate::problem::Problem;
use crate::redact::Redaction;
use crate::view::summary::key;
use crate::view::text::SHORT;

/// Maximum number of runs that an answer names.
const NAMED: usize = 50;

/// The body of a bulk request: the filter, and the act with its arguments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkBody {
    #[serde(default)]
    filter: BulkFilter,
    /// Confirms that a filter without a condition selects every run.
    #[serde(default)]
    all: bool,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    reason: String,
    /// The cursor: `next` of the previous answer.
    cursor: Option<String>,
    /// Maximum number of runs per answer. With small parts, a page can show progress.
    limit: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct BulkFilter {
    tenant: Option<String>,
    workflow: Option<String>,
    user: Option<String>,
    status: Vec<String>,
    label: Vec<String>,
    since: Option<i64>,
    before: Option<i64>,
}

/// Answers `POST /api/v1/bulk/{act}`.
pub(super) async fn bulk(
    call: ApiCall,
    Path(act): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, Problem> {
    let body = permitted(&call, &headers, body)?;
    let bulk: BulkBody = read(&body)?;
    let runs = listing(&call, &bulk)?;
    let request = match act.as_str() {
        "cancel" => runs.cancel_all(reason_or_default(bulk.reason)),
        "retry" => runs.retry_all(),
        "purge" => runs.purge_all(),
        _ => {
            return Err(Problem::not_found("unknown act for many runs; use one of: cancel, retry, purge"));
        }
    };
    let request = if bulk.dry_run { request.dry_run() } else { request };
    Ok(Json(report_json(&request.by(by(&call)).await?, &call.app.redaction)))
}

fn listing(call: &ApiCall, bulk: &BulkBody) -> Result<RunsRequest, Problem> {
    let BulkFilter { tenant, workflow, user, status: words, label, since, before } = &bulk.filter;
    // The viewer did not choose the restriction to his tenant, so it does not count as a condition. Nor does a limit on the start time, which only
    // excludes runs that started between two requests.
    let is_any = [tenant, workflow, user].iter().all(|one| one.is_none())
        && words.is_empty()
        && label.is_empty()
        && since.is_none();
    if is_any && !bulk.all && !bulk.dry_run {
        return Err(Problem::invalid(
            "a filter without a condition selects every run; to mean that, add `\"all\": true`",
        ));
    }
    let mut runs = call
        .runtime()
        .runs()
        .limit(bulk.limit.unwrap_or(Page::MAX).clamp(1, Page::MAX))
        .after(bulk.cursor.clone().map(Cursor::new));
    if let Some(tenant) = call.tenant(tenant.as_deref())? {
        runs = runs.tenant(tenant.as_str());
    }
    if let Some(workflow) = workflow {
        runs = runs.workflow(workflow);
    }
    if let Some(user) = user {
        runs = runs.user(user);
    }
    for word in words {
        runs = runs.status(status(word)?);
    }
    for label in label {
        let (key, value) = pair(label)?;
        runs = runs.label(key, value);
    }
    if let Some(since) = since {
        runs = runs.since(Timestamp::from_unix_ms(*since));
    }
    if let Some(before) = before {
        runs = runs.before(Timestamp::from_unix_ms(*before));
    }
    Ok(runs)
}

fn report_json(report: &BulkReport, hides: &Redaction) -> Value {
    let refused = |error: &Error| json!({ "run": error.run().map(key), "code": error.kind().code(), "message": hides.cut(&error.to_string(), SHORT) });
    json!({
        "done": report.done.len(),
        "runs": report.done.iter().take(NAMED).map(key).collect::<Vec<_>>(),
        "refused": report.refused.len(),
        "refusals": report.refused.iter().take(NAMED).map(refused).collect::<Vec<_>>(),
        "stopped": report.stopped.as_ref().map(|error| hides.cut(&error.to_string(), SHORT)),
        "next": report.next,
    })
}
