//! The state of a run as of some record, a level at a time.

use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use ferrata_core::RunKey;
use ferrata_core::runtime::Position;
use serde_json::{Value, json};

use super::run::place;
use crate::app::Call;
use crate::cache::About;
use crate::problem::Problem;
use crate::redact::at;
use crate::view::tree::{ENTRIES, tree};

/// Answers `GET /api/v1/runs/{tenant}/{run}/state`.
pub(super) async fn show(call: Call, Path(name): Path<(String, String)>) -> Result<Json<Value>, Problem> {
    let params = call.params(&["at", "path", "offset", "limit"])?;
    let position = place(params.one("at")?)?;
    let path = params.one("path")?.unwrap_or_default();
    let offset = params.parsed::<usize>("offset")?.unwrap_or(0);
    let limit = params.limit(u32::try_from(ENTRIES).unwrap_or(u32::MAX), 1_000)? as usize;
    let run = call.run(&name)?;
    let state = read(&call, &run, position.clone()).await?;
    Ok(Json(json!({ "at": position.to_string(), "state": tree(path, at(&state, path)?, offset, limit) })))
}

/// Reads the state of a run without what is hidden, once for each place as long as the head is the same.
pub(super) async fn read(call: &Call, run: &RunKey, at: Position) -> Result<Arc<Value>, Problem> {
    let head = call.head(run).await?;
    // A record that comes while this is answered is not in it.
    let at = if at == Position::Latest { Position::Record(head.id) } else { at };
    let about = About { run: run.clone(), head: head.id, what: at.to_string().into() };
    if let Some(known) = call.app.states.get(&about) {
        return Ok(known);
    }
    let mut state = Value::from(call.runtime().channels_at(run, at).await?);
    call.app.redaction.apply(&mut state);
    Ok(call.app.states.put(about, state))
}
