//! Acts on a queue: pause it, unpause it, and override its limits.

use axum::Json;
use axum::body::Bytes;
use axum::extract::Path;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use ferrata_core::{RunId, RunKey};
use ferrata_queue::{Queue, QueueStatus, RateLimit, RuntimeQueueExt as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::acts::{by, permitted, read, reason_or_default};
use crate::app::ApiCall;
use crate::problem::Problem;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PauseBody {
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnpauseBody {}

/// The body of a request that overrides limits. An omitted field leaves its limit unchanged, and `null` removes an override.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsBody {
    #[serde(default, deserialize_with = "given")]
    at_once: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given")]
    at_once_per_key: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given")]
    rate: Option<Option<RateLimit>>,
    #[serde(default, deserialize_with = "given")]
    rate_per_key: Option<Option<RateLimit>>,
}

fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Answers `POST /api/v1/queues/{queue}/acts/{act}`.
pub(super) async fn act(
    call: ApiCall,
    Path((name, act)): Path<(String, String)>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, Problem> {
    let body = permitted(&call, &headers, body)?;
    let queue = find(&call, &name).await?;
    match act.as_str() {
        "pause" => queue.pause(reason_or_default(read::<PauseBody>(&body)?.reason)).await?,
        "unpause" => {
            let UnpauseBody {} = read(&body)?;
            queue.unpause().await?;
        }
        "set" => {
            let limits: LimitsBody = read(&body)?;
            let change = |set: &mut ferrata_queue::QueueOverrides| {
                set.at_once = limits.at_once.unwrap_or(set.at_once);
                set.at_once_per_key = limits.at_once_per_key.unwrap_or(set.at_once_per_key);
                set.rate = limits.rate.unwrap_or(set.rate);
                set.rate_per_key = limits.rate_per_key.unwrap_or(set.rate_per_key);
            };
            queue.set(change).await?;
        }
        _ => return Err(Problem::not_found("unknown act; use one of: pause, unpause, set")),
    }
    let QueueStatus { name, overrides, .. } = queue.status().await?;
    Ok(Json(json!({ "name": name, "paused": overrides.paused.is_some() })))
}

/// Finds a queue that is visible to the viewer.
async fn find(call: &ApiCall, name: &str) -> Result<Queue, Problem> {
    let missing = || Problem::not_found(format!("cannot find the queue `{name}`"));
    let run = RunKey::from(RunId::new(format!("queue:{name}")).map_err(|_| missing())?);
    if !call.viewer.sees(&run) {
        return Err(missing());
    }
    Ok(call.runtime().queue(name).find().await?.ok_or_else(missing)?.by(by(call)))
}
