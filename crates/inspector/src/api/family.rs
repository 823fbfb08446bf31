//! The relations of a run: its line of forks, its parent, its forks and its children.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use ferrata_core::record::RunStatus;
use ferrata_core::store::{Page, RunHead, RunQuery};
use serde_json::{Value, json};

use crate::app::ApiCall;
use crate::problem::Problem;
use crate::view::summary::{key, label_of_children, origin, summary};

/// Answers `GET /api/v1/runs/{tenant}/{run}/family`.
pub(super) async fn family(
    call: ApiCall,
    Path(name): Path<(String, String)>,
) -> Result<Json<Value>, Problem> {
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
    let children = store.runs(&children, Page::first(Page::MAX)).await?;
    let mut forks = RunQuery::default();
    forks.tenant = call.viewer.tenant().cloned();
    forks.parent = Some(run);
    let forks = store.runs(&forks, Page::first(limit)).await?;
    let list = |heads: &[RunHead]| -> Vec<Value> {
        heads.iter().take(limit as usize).map(|head| summary(head, &call.viewer)).collect()
    };
    Ok(Json(json!({
        "lineage": line,
        "started_by": origin(&head),
        "children": list(&children.items),
        "more_children": children.next.is_some() || children.items.len() > limit as usize,
        "by_node": by_node(&children.items),
        "forks": list(&forks.items),
        "more_forks": forks.next.is_some(),
    })))
}

/// Maximum number of children that are named for each node. Children that need an operator come first.
const NAMED: usize = 8;

/// Counts for each node the runs that it started, by status.
fn by_node(children: &[RunHead]) -> Vec<Value> {
    let mut by_node: BTreeMap<String, Vec<(&RunHead, Value)>> = BTreeMap::new();
    for head in children {
        let Some(origin) = origin(head) else { continue };
        let at = origin["at"].as_str().unwrap_or_default();
        let node = at.rsplit_once('@').map_or(at, |(node, _)| node);
        by_node.entry(node.to_owned()).or_default().push((head, origin["name"].clone()));
    }
    let urgency = |status: RunStatus| match status {
        RunStatus::Failed => 0,
        RunStatus::Interrupted | RunStatus::AwaitingInput => 1,
        RunStatus::InProgress => 2,
        _ => 3,
    };
    by_node
        .into_iter()
        .map(|(node, mut heads)| {
            let mut statuses: BTreeMap<String, usize> = BTreeMap::new();
            for (head, _) in &heads {
                let word = json!(head.status).as_str().unwrap_or_default().to_owned();
                *statuses.entry(word).or_default() += 1;
            }
            heads.sort_by_key(|(head, _)| urgency(head.status));
            let named: Vec<Value> = heads
                .iter()
                .take(NAMED)
                .map(|(head, name)| {
                    json!({ "tenant": head.run.tenant, "id": head.run.run, "name": name, "status": head.status })
                })
                .collect();
            json!({ "node": node, "count": heads.len(), "statuses": statuses, "runs": named })
        })
        .collect()
}
