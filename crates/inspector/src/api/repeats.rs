//! The work that a fork of a run may repeat. A page shows it before the fork and asks for confirmation.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use serde_json::{Value, json};

use super::run::place;
use crate::app::ApiCall;
use crate::problem::Problem;

/// Answers `GET /api/v1/runs/{tenant}/{run}/repeats`: the work by node, for a fork from any displayed record.
pub(super) async fn list(call: ApiCall, Path(name): Path<(String, String)>) -> Result<Json<Value>, Problem> {
    let params = call.params(&["at", "start_at"])?;
    let run = call.run(&name)?;
    let mut fork = call.runtime().fork(&run, place(params.one("at")?)?);
    let nodes: Vec<&str> = params.all("start_at").collect();
    if !nodes.is_empty() {
        fork = fork.start_at(nodes);
    }
    let repeats = fork.repeated_effects().await?;
    let mut by_node = BTreeMap::new();
    for one in &repeats {
        by_node.entry(&one.node).or_insert((one.effect, 0)).1 += 1;
    }
    let items: Vec<Value> = by_node
        .into_iter()
        .map(|(node, (effect, times))| json!({ "node": node, "effect": effect, "times": times }))
        .collect();
    Ok(Json(json!({ "items": items })))
}
