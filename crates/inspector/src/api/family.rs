//! Where a run comes from and what came of it: its line of forks, its parent, its forks and its children.

use axum::Json;
use axum::extract::Path;
use ferrata_core::store::{Page, RunQuery};
use serde_json::{Value, json};

use crate::app::Call;
use crate::problem::Problem;
use crate::view::summary::{key, label_of_children, origin, summary};

/// Answers `GET /api/v1/runs/{tenant}/{run}/family`.
pub(super) async fn family(call: Call, Path(name): Path<(String, String)>) -> Result<Json<Value>, Problem> {
    let params = call.params(&["limit"])?;
    let limit = params.limit(100, Page::MAX)?;
    let run = call.run(&name)?;
    let head = call.head(&run).await?;
    let line = call.runtime().lineage(&run).await?;
    let line: Vec<Value> = line
        .iter()
        .filter(|one| call.viewer.sees(&one.run))
        .map(|one| json!({ "run": key(&one.run), "forked_at": one.forked_at, "status": one.status }))
        .collect();
    let store = call.runtime().store();
    let mut children = RunQuery::default();
    children.tenant = Some(run.tenant.clone());
    children.labels = vec![label_of_children(&run)];
    let children = store.runs(&children, Page::first(limit)).await?;
    let mut forks = RunQuery::default();
    forks.tenant = call.viewer.tenant().cloned();
    forks.parent = Some(run);
    let forks = store.runs(&forks, Page::first(limit)).await?;
    let list = |heads: &[ferrata_core::store::RunHead]| -> Vec<Value> {
        heads.iter().map(|head| summary(head, &call.viewer)).collect()
    };
    Ok(Json(json!({
        "lineage": line,
        "started_by": origin(&head),
        "children": list(&children.items),
        "more_children": children.next.is_some(),
        "forks": list(&forks.items),
        "more_forks": forks.next.is_some(),
    })))
}
