//! The inbox: what runs wait to be told, of all runs that have not ended.

use axum::Json;
use ferrata_core::record::RunStatus;
use ferrata_core::store::{Page, RunHead, RunQuery};
use ferrata_core::{ErrorKind, WorkflowName};
use serde_json::{Value, json};

use super::run::question;
use crate::app::Call;
use crate::cache::About;
use crate::problem::Problem;
use crate::view::summary::summary;

/// How many logs one answer reads: of others what is known from before is shown, until a later answer has looked.
const READ: usize = 100;

/// Answers `GET /api/v1/questions`.
pub(super) async fn list(call: Call) -> Result<Json<Value>, Problem> {
    let params = call.params(&["tenant", "workflow", "limit", "cursor"])?;
    let mut query = RunQuery::default();
    query.tenant = call.tenant(params.one("tenant")?)?;
    query.workflow = params.one("workflow")?.map(WorkflowName::new).transpose()?;
    // A question may be open while other branches go on.
    query.statuses = vec![RunStatus::Interrupted, RunStatus::InProgress, RunStatus::AwaitingInput];
    let mut page = Page::first(params.limit(200, Page::MAX)?);
    if let Some(cursor) = params.one("cursor")? {
        page = page.with_cursor(ferrata_core::store::Cursor::new(cursor));
    }
    let found = call.runtime().store().runs(&query, page).await?;
    let (mut items, mut read, mut unread) = (Vec::new(), 0, 0);
    for head in &found.items {
        let about = About { run: head.run.clone(), head: head.id, what: "questions".into() };
        let open = match call.app.cache.get(&about) {
            Some(known) => known,
            None if read >= READ => {
                unread += 1;
                continue;
            }
            None => {
                read += 1;
                call.app.cache.put(about, of(&call, head).await?)
            }
        };
        for question in open.as_array().into_iter().flatten() {
            items.push(json!({ "run": summary(head, &call.viewer), "question": question }));
        }
    }
    Ok(Json(json!({
        "now": call.app.now(), "items": items, "next": found.next, "looked_at": found.items.len(), "unread": unread
    })))
}

/// Reads the questions that a run itself asks: those of its descendants are listed with them.
async fn of(call: &Call, head: &RunHead) -> Result<Value, Problem> {
    match call.runtime().questions(&head.run).await {
        Ok(all) => Ok(all
            .iter()
            .filter(|one| one.asked_by.is_none())
            .map(|one| question(one, &call.app.redaction))
            .collect()),
        // A run that cannot be read, or was purged since it was listed, hides no other.
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Unsupported) =>
        {
            Ok(Value::Array(Vec::new()))
        }
        Err(error) => Err(error.into()),
    }
}
