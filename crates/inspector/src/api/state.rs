//! The state of a run as of a record, one level at a time.

use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use ferrata_core::RunKey;
use ferrata_core::runtime::Position;
use ferrata_core::state::Secrets;
use ferrata_core::store::RunHead;
use serde_json::{Value, json};

use super::run::place;
use crate::app::ApiCall;
use crate::cache::CacheKey;
use crate::problem::Problem;
use crate::redact::at;
use crate::view::tree::{ENTRIES, tree};

/// Answers `GET /api/v1/runs/{tenant}/{run}/state`.
pub(super) async fn show(call: ApiCall, Path(name): Path<(String, String)>) -> Result<Json<Value>, Problem> {
    let params = call.params(&["at", "path", "offset", "limit"])?;
    let position = place(params.one("at")?)?;
    let path = params.one("path")?.unwrap_or_default();
    let offset = params.parsed::<usize>("offset")?.unwrap_or(0);
    let limit = params.limit(u32::try_from(ENTRIES).unwrap_or(u32::MAX), 1_000)? as usize;
    let run = call.run(&name)?;
    let state = read(&call, &run, position.clone(), call.viewer.sees_secrets()).await?;
    Ok(Json(json!({ "at": position.to_string(), "state": tree(path, at(&state, path)?, offset, limit) })))
}

/// Reads the state of a run, with hidden values replaced. If `reveal` is set, secrets stay visible. Each position is read once while the head stays
/// the same.
pub(super) async fn read(
    call: &ApiCall,
    run: &RunKey,
    at: Position,
    reveals: bool,
) -> Result<Arc<Value>, Problem> {
    let head = call.head(run).await?;
    // The answer must not contain records that are appended during this request.
    let at = if at == Position::Latest { Position::Record(head.id) } else { at };
    let what = if reveals { format!("{at}, with what is secret") } else { at.to_string() };
    let about = CacheKey { run: run.clone(), head: head.id, what: what.into() };
    if let Some(known) = call.app.states.get(&about) {
        return Ok(known);
    }
    let mut state = Value::from(call.runtime().channels_at(run, at).await?);
    if !reveals {
        secrets(call, &head).await?.hide(&mut state);
    }
    call.app.redaction.apply(&mut state);
    Ok(call.app.states.put(about, state))
}

/// Returns the secret channels of a run, read once for each head.
async fn secrets(call: &ApiCall, head: &RunHead) -> Result<Secrets, Problem> {
    let about = CacheKey { run: head.run.clone(), head: head.id, what: "secret channels".into() };
    if let Some(known) = call.app.cache.get(&about)
        && let Ok(known) = serde_json::from_value((*known).clone())
    {
        return Ok(known);
    }
    let secrets = call.runtime().secrets(&head.run).await?;
    call.app.cache.put(about, json!(secrets));
    Ok(secrets)
}
