//! Acts on a run, if the inspector allows acts. The record of each act names the viewer.

use axum::Json;
use axum::body::Bytes;
use axum::extract::Path;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, header};
use ferrata_core::ask::{Answer, Resolution};
use ferrata_core::runtime::Position;
use ferrata_core::state::{HIDDEN as SECRET, Op, Patch};
use ferrata_core::{Error, ErrorKind, RunKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::run::place;
use crate::app::ApiCall;
use crate::exact_numbers;
use crate::problem::Problem;
use crate::redact::HIDDEN;
use crate::view::summary::key;

/// The recorded author of an act if the viewer has no name.
const BY: &str = "inspector";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasonBody {
    #[serde(default)]
    reason: String,
}

/// The body of an answer. Exactly one of the four fields is set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    question: String,
    #[serde(default, deserialize_with = "present")]
    accept: Option<Box<RawValue>>,
    reject: Option<String>,
    cancel: Option<String>,
    resolve: Option<Box<RawValue>>,
}

/// Reads an optional field for which `null` is a value, because `null` can be an answer.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageBody {
    message: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditBody {
    patch: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GoTo {
    nodes: Vec<String>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForkBody {
    at: Option<String>,
    id: Option<String>,
    #[serde(default)]
    start_at: Vec<String>,
    patch: Option<Box<RawValue>>,
}

/// Answers `POST /api/v1/runs/{tenant}/{run}/acts/{act}`.
pub(super) async fn act(
    call: ApiCall,
    Path((tenant, run, act)): Path<(String, String, String)>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, Problem> {
    let body = permitted(&call, &headers, body)?;
    let run = call.run(&(tenant, run))?;
    let by = by(&call);
    let runtime = call.runtime();
    match act.as_str() {
        "answer" => {
            let said: AnswerBody = read(&body)?;
            let question = said.question.clone();
            runtime.respond(&run, &question, said.answer()?).by(by).await?;
        }
        "send" => runtime.send(&run, read::<MessageBody>(&body)?.message).by(by).await?,
        "retry" => {
            let EmptyBody {} = read(&body)?;
            runtime.retry(&run).by(by).await?;
        }
        "pause" => runtime.pause(&run, reason(&body)?).by(by).await?,
        "unpause" => {
            let EmptyBody {} = read(&body)?;
            runtime.unpause(&run).by(by).await?;
        }
        "cancel" => runtime.cancel(&run, reason(&body)?).by(by).await?,
        "edit" => {
            let patch = patch(&call, &run, Position::Latest, &read::<EditBody>(&body)?.patch).await?;
            runtime.edit(&run, patch).by(by).await?;
        }
        "goto" => {
            let GoTo { nodes, reason } = read(&body)?;
            runtime.go_to(&run, nodes, reason).by(by).await?;
        }
        "fork" => return fork(&call, &run, read(&body)?).await,
        "purge" => return purge(&call, &run, read(&body)?).await,
        _ => {
            let acts = "answer, send, retry, pause, unpause, cancel, edit, goto, fork, purge";
            return Err(Problem::not_found(format!("unknown act; use one of: {acts}")));
        }
    }
    // The run may belong to a schedule that this act has paused or unpaused.
    call.app.schedules.forget().await;
    Ok(Json(json!({ "run": key(&run) })))
}

async fn fork(call: &ApiCall, run: &RunKey, fork: ForkBody) -> Result<Json<Value>, Problem> {
    let at = place(fork.at.as_deref())?;
    let mut request = call.runtime().fork(run, at.clone());
    if let Some(edit) = &fork.patch {
        request = request.edit(patch(call, run, at, edit).await?);
    }
    if let Some(id) = &fork.id {
        request = request.id(id);
    }
    if !fork.start_at.is_empty() {
        request = request.start_at(fork.start_at);
    }
    Ok(Json(json!({ "run": key(&request.await?) })))
}

/// Purges a run if it has not changed since the viewer read it, so that no newer signal is lost.
async fn purge(call: &ApiCall, run: &RunKey, EmptyBody {}: EmptyBody) -> Result<Json<Value>, Problem> {
    let head = call.head(run).await?;
    if !head.status.is_finished() {
        let message = format!("the run is {}; cancel it first", head.status);
        return Err(Error::new(ErrorKind::WrongStatus, message).with_run(run).into());
    }
    let removed = call.runtime().purge_at(run, head.head()).await?;
    Ok(Json(json!({ "run": key(run), "records": removed.records, "bytes": removed.bytes })))
}

/// Checks that the viewer may act, and that no form of another site could have sent the request. Returns the body.
pub(super) fn permitted(
    call: &ApiCall,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Bytes, Problem> {
    call.params(&[])?;
    if !call.app.allows_writes {
        return Err(Problem::forbidden(
            "this inspector is read-only; start it with `--allow-writes`, or `Inspector::allow_writes`",
        ));
    }
    if !call.viewer.may_write() {
        return Err(Problem::forbidden("the viewer has read access only; ask an operator for access to act"));
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        return Err(Problem::not_json());
    }
    body.map_err(|error| Problem::too_large(error.body_text()))
}

/// Returns the author of the act.
pub(super) fn by(call: &ApiCall) -> &str {
    call.viewer.name().unwrap_or(BY)
}

impl AnswerBody {
    fn answer(self) -> Result<Answer, Problem> {
        match (self.accept, self.reject, self.cancel, self.resolve) {
            (Some(value), None, None, None) => Ok(Answer::Accept(value)),
            (None, Some(why), None, None) => Ok(Answer::reject(why)),
            (None, None, Some(why), None) => Ok(Answer::cancel(why)),
            (None, None, None, Some(resolution)) => {
                exact_numbers::check_numbers(resolution.get())?;
                Ok(read::<Resolution>(resolution.get().as_bytes())?.into())
            }
            _ => Err(Problem::invalid("an answer is one of `accept`, `reject`, `cancel` and `resolve`")),
        }
    }
}

fn reason(body: &[u8]) -> Result<String, Problem> {
    Ok(reason_or_default(read::<ReasonBody>(body)?.reason))
}

/// Returns the reason in the request, or a default reason.
pub(super) fn reason_or_default(said: String) -> String {
    if said.trim().is_empty() { "requested in the inspector".to_owned() } else { said }
}

async fn patch(call: &ApiCall, run: &RunKey, at: Position, json: &RawValue) -> Result<Patch, Problem> {
    exact_numbers::check_numbers(json.get())?;
    let operations: Value = read(json.get().as_bytes())?;
    let text = operations.to_string();
    // A viewer who edits the displayed text could otherwise write the replacement of a hidden value into the state.
    let redaction = &call.app.redaction;
    let holds_shown = match redaction.is_empty() {
        true => false,
        false if text.contains(HIDDEN) => true,
        false => redaction.holds_shown(&operations, &Value::from(call.runtime().channels_at(run, at).await?)),
    };
    let patch = Patch::from_json(&text)?;
    if holds_shown || writes_hidden(call, run, &patch).await? {
        let message = "the change contains the placeholder of a hidden value; replace it with a value";
        return Err(Problem::invalid(message));
    }
    Ok(patch)
}

/// Returns whether a change writes the replacement of a secret value into a secret channel.
async fn writes_hidden(call: &ApiCall, run: &RunKey, patch: &Patch) -> Result<bool, Problem> {
    let is_hidden = |op: &Op| matches!(op, Op::Set(_, value) if value == SECRET);
    let mut hidden = patch.ops()?;
    hidden.retain(is_hidden);
    if hidden.is_empty() {
        return Ok(false);
    }
    let secrets = call.runtime().secrets(run).await?;
    Ok(hidden.iter().any(|op| secrets.contains(op.channel())))
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| Problem::invalid(format!("cannot read the body: {error}")))
}
