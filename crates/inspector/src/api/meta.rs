//! Describes this inspector, and the acts that the viewer may perform.

use axum::Json;
use serde_json::{Value, json};

use crate::app::ApiCall;
use crate::problem::Problem;

/// Answers `GET /api/v1`.
pub(super) async fn meta(call: ApiCall) -> Result<Json<Value>, Problem> {
    call.params(&[])?;
    let (app, store) = (&call.app, call.runtime().store().capabilities());
    Ok(Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": app.now(),
        "writes": app.allows_writes && call.viewer.may_write(),
        "viewer": call.viewer.name(),
        "tenant": call.viewer.tenant(),
        "redacts": !app.redaction.is_empty(),
        "words": app.redaction.is_empty(),
        "options": app.options,
        "store": {
            "kind": store.name, "durable": store.durable, "shared": store.shared, "notices": store.notices
        },
    })))
}
