//! Differences between two states, of one run at two records or of two runs.

use axum::Json;
use axum::extract::Path;
use ferrata_core::runtime::{Change, Diff};
use serde_json::{Value, json};

use super::run::place;
use super::state::read;
use crate::app::ApiCall;
use crate::params::QueryParams;
use crate::problem::Problem;
use crate::view::tree::small;

/// Maximum number of changes in an answer.
const MOST: usize = 500;

/// Answers `GET /api/v1/runs/{tenant}/{run}/diff`: the changes from one position to another. The second position may be in the run `of`.
pub(super) async fn show(call: ApiCall, Path(name): Path<(String, String)>) -> Result<Json<Value>, Problem> {
    let params = call.params(&["from", "to", "of"])?;
    let from = params
        .one("from")?
        .ok_or_else(|| Problem::invalid("`from` is missing; add a position in the log"))?;
    let (from, to) = (place(Some(from))?, place(params.one("to")?)?);
    let run = call.run(&name)?;
    let other = match params.one("of")? {
        None => run.clone(),
        Some(other) => {
            let other = QueryParams::run(other)?;
            if !call.viewer.sees(&other) {
                return Err(Problem::no_run(&other));
            }
            other
        }
    };
    let reveals = call.viewer.sees_secrets();
    let (before, after) = (read(&call, &run, from, reveals).await?, read(&call, &other, to, reveals).await?);
    // Comparing states of many megabytes takes a while and must not delay other requests.
    let diff = tokio::task::spawn_blocking(move || Diff::between(&before, &after)).await;
    let diff = diff.map_err(|_| Problem::internal())?;
    let changes: Vec<Value> = diff.changes.iter().take(MOST).filter_map(change).collect();
    Ok(Json(json!({ "changes": changes, "total": diff.changes.len() })))
}

fn change(change: &Change) -> Option<Value> {
    Some(match change {
        Change::Add { path, value } => json!({ "op": "add", "path": path, "after": small(value) }),
        Change::Replace { path, value, before } => {
            json!({ "op": "replace", "path": path, "before": small(before), "after": small(value) })
        }
        Change::Remove { path, before } => json!({ "op": "remove", "path": path, "before": small(before) }),
        _ => return None,
    })
}
