//! One run as of some record: its graph, what its nodes came to, and why it stands as it does. No value of its state.

use std::str::FromStr;

use axum::Json;
use axum::extract::Path;
use ferrata_core::ask::Question;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Checkpoint, LoggedGraph, Past, Position};
use ferrata_core::store::RunHead;
use serde_json::{Value, json};

use crate::app::Call;
use crate::cache::About;
use crate::problem::Problem;
use crate::queues;
use crate::redact::Redaction;
use crate::view::graph::{Graph, KnownGraph, Look, reason};
use crate::view::summary::summary;
use crate::view::text::{LONG, SHORT};
use crate::view::tree::{fits, small};
use crate::view::why::why;

/// How many activations are listed, the last ones: a run of 10,000 is drawn by its graph.
const ACTIVATIONS: usize = 2_000;

/// The most bytes of a schema that a form is made of.
const FORM: usize = 64 * 1024;

/// Answers `GET /api/v1/runs/{tenant}/{run}`.
pub(super) async fn show(call: Call, Path(name): Path<(String, String)>) -> Result<Json<Value>, Problem> {
    let params = call.params(&["at"])?;
    let run = call.run(&name)?;
    let at = place(params.one("at")?)?;
    let head = call.head(&run).await?;
    let latest = at == Position::Latest;
    // Whether its owner is alive changes without a record.
    let what = if head.owner_alive { "run of the living" } else { "run of the dead" };
    let about = About { run: run.clone(), head: head.id, what: what.into() };
    let known = call.app.cache.get(&about).filter(|_| latest);
    let shown = match known {
        Some(known) => known,
        None => {
            let at = if latest { Position::Record(head.id) } else { at };
            let (now, told) = call.runtime().checkpoint_and_graph(&run, at).await?;
            // Nodes and edges are those of the newest record, so that the picture stays as it is when time moves.
            let known = if latest { keep(&call, &head, &now, &told) } else { newest(&call, &head).await? };
            let outline = call.app.outlines.of(&head);
            let graph = Graph::of(&now, &known, outline.as_deref(), &call.app.redaction);
            let shown = shown(&head, &now, &graph, &call.app.redaction);
            if latest { call.app.cache.put(about, shown) } else { shown.into() }
        }
    };
    let queues = match latest {
        true => queues::of_run(&call, &head, &shown["questions"]).await?,
        false => json!([]),
    };
    Ok(Json(json!({
        "now": call.app.now(),
        "queues": queues,
        "head": summary(&head, &call.viewer),
        "stalled": stalled(&call, &head),
        "run": shown,
    })))
}

fn about_graph(head: &RunHead) -> About {
    About { run: head.run.clone(), head: head.id, what: "graph".into() }
}

/// Keeps what the newest record tells of a run's graph.
fn keep(call: &Call, head: &RunHead, now: &Checkpoint, told: &LoggedGraph) -> KnownGraph {
    let known = KnownGraph::of(now, told);
    call.app.cache.put(about_graph(head), json!(known));
    known
}

/// Returns what the newest record tells of a run's graph, read once for each head.
async fn newest(call: &Call, head: &RunHead) -> Result<KnownGraph, Problem> {
    let known = call.app.cache.get(&about_graph(head));
    if let Some(known) = known.and_then(|known| serde_json::from_value((*known).clone()).ok()) {
        return Ok(known);
    }
    let (now, told) = call.runtime().checkpoint_and_graph(&head.run, Position::Record(head.id)).await?;
    Ok(keep(call, head, &now, &told))
}

/// Reads a place in a log.
pub(super) fn place(text: Option<&str>) -> Result<Position, Problem> {
    Ok(text.map(Position::from_str).transpose()?.unwrap_or(Position::Latest))
}

/// Says why this process could not take the run up.
fn stalled(call: &Call, head: &RunHead) -> Option<Value> {
    let all = call.runtime().stalled();
    let own = all.iter().find(|stalled| stalled.run == head.run)?;
    Some(
        json!({ "why": call.app.redaction.cut(&own.error.to_string(), LONG), "tries": own.tries, "next": own.next }),
    )
}

fn shown(head: &RunHead, now: &Checkpoint, graph: &Graph, hides: &Redaction) -> Value {
    let older = now.history.len().saturating_sub(ACTIVATIONS);
    json!({
        "at": { "seq": now.index, "kind": now.kind, "time": now.at, "status": now.status },
        "why": why(head, now, hides),
        "failure": now.failure.as_ref().map(|failure| hides.cut(&failure.to_string(), LONG)),
        "causes": now.failure.as_ref().map(|failure| failure.causes.iter().map(|cause| hides.cut(cause, SHORT)).collect::<Vec<_>>()),
        "paused": now.paused.as_ref().map(|reason| hides.cut(reason, LONG)),
        "cancelled": now.cancelled.as_ref().map(|reason| hides.cut(reason, LONG)),
        "graph": graph,
        "past": now.history.iter().skip(older).map(|one| past(one, hides)).collect::<Vec<_>>(),
        "older": older,
        "open": open(now, hides),
        "questions": now.questions.iter().map(|one| question(one, hides)).collect::<Vec<_>>(),
        "unread": now.unread,
        "replans": now.replans.iter().rev().take(100).map(|replan| json!({
            "from": format!("{}@{}", replan.from, replan.visit), "to": replan.to, "reason": hides.cut(&replan.reason, SHORT)
        })).collect::<Vec<_>>(),
        "attempts": now.diagnostics.iter().rev().take(ACTIVATIONS).map(|failed| json!({
            "at": failed.at, "node": failed.node, "visit": failed.visit, "attempt": failed.attempt,
            "why": hides.cut(&failed.failure.to_string(), SHORT), "retry_at": failed.retry_at
        })).collect::<Vec<_>>(),
    })
}

fn past(past: &Past, hides: &Redaction) -> Value {
    json!({
        "node": past.node, "visit": past.visit, "look": Look::of(past), "attempts": past.attempts, "took_ms": past.took_ms,
        "at": past.at, "seq": past.index, "effect": past.effect, "led_to": past.led_to, "why": hides.cut(reason(past), SHORT),
        "outcome": past.verdict.as_ref().map(|verdict| hides.cut(&verdict.outcome, SHORT)),
    })
}

fn open(now: &Checkpoint, hides: &Redaction) -> Vec<Value> {
    let one = |pending: &ferrata_core::runtime::Pending| {
        let asks = now.questions.iter().any(|q| q.node == pending.node && q.visit == pending.visit);
        let look = match pending.stopped {
            true => Look::Failed,
            false if asks || now.status != RunStatus::InProgress || pending.retry_at.is_some() => {
                Look::Waiting
            }
            false => Look::Going,
        };
        json!({
            "node": pending.node, "visit": pending.visit, "look": look, "failed": pending.failed, "retry_at": pending.retry_at,
            "stopped": pending.stopped, "progress": pending.progress.as_ref().map(|said| {
                let mut said = said.clone();
                hides.value(&mut said);
                small(&said)
            }), "steps": pending.steps.iter().take(200).collect::<Vec<_>>(),
        })
    };
    now.next.iter().take(ACTIVATIONS).map(one).collect()
}

/// Writes a question: what is asked, and what an answer must look like.
pub(super) fn question(question: &Question, hides: &Redaction) -> Value {
    let mut schema = question.answer_schema();
    if let Value::Object(schema) = &mut schema {
        // Both are said beside it, cut.
        schema.remove("title");
        schema.remove("default");
    }
    json!({
        "id": question.id,
        "node": question.node,
        "visit": question.visit,
        "kind": question.kind,
        "asked_by": question.asked_by.as_ref().map(crate::view::summary::key),
        "text": question.text.as_ref().map(|text| hides.cut(text, LONG)),
        // What takes more is answered as JSON.
        "expects": question.expects.as_ref().map(|shape| json!(shape)).filter(|shape| fits(shape, FORM)),
        "schema": Some(schema).filter(|schema| fits(schema, FORM)),
        "deadline": question.deadline,
        "default": question.default.as_ref().map(|default| hides.cut(default, SHORT)),
        "problem": question.problem.as_ref().map(|problem| hides.cut(problem, SHORT)),
        "failure": question.failure.as_ref().map(|failure| hides.cut(&failure.to_string(), SHORT)),
    })
}
