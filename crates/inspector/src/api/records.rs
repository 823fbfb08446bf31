//! The history of a run: each record, described in words.

use axum::Json;
use axum::extract::Path;
use ferrata_core::Seq;
use serde_json::{Value, json};

use crate::app::ApiCall;
use crate::problem::Problem;
use crate::view::text::LONG;

/// Maximum number of lines per answer.
const MOST: u32 = 2_000;

/// Answers `GET /api/v1/runs/{tenant}/{run}/records`: the records from a position on, or the last records.
pub(super) async fn list(call: ApiCall, Path(name): Path<(String, String)>) -> Result<Json<Value>, Problem> {
    let params = call.params(&["from", "limit"])?;
    let limit = params.limit(500, MOST)?;
    let from = params.parsed::<u64>("from")?;
    let run = call.run(&name)?;
    let head = call.head(&run).await?;
    let (first, last) = (head.first.get(), head.seq.get());
    let from = from.unwrap_or_else(|| last.saturating_sub(u64::from(limit) - 1)).max(first);
    let told = call.runtime().timeline(&run, Seq::new(from)).await?;
    let end = from.saturating_add(u64::from(limit));
    // A record may have several lines. An answer never separates them.
    let items: Vec<Value> = told
        .iter()
        .take_while(|entry| entry.header.seq.get() < end)
        .map(|entry| {
            let header = &entry.header;
            json!({
                "seq": header.seq, "at": header.at, "kind": header.kind, "status": header.status, "epoch": header.epoch,
                "owner": header.owner, "bytes": header.body_len, "base": header.base,
                "node": entry.activation.as_ref().map(|(node, _)| node),
                "visit": entry.activation.as_ref().map(|(_, visit)| visit),
                "text": call.app.redaction.cut(&entry.text, LONG),
            })
        })
        .collect();
    let next = told.iter().map(|entry| entry.header.seq.get()).find(|seq| *seq >= end);
    Ok(Json(json!({ "first": first, "last": last, "from": from, "items": items, "next": next })))
}
