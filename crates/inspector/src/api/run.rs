//! One run as of a record: its graph, the results of its nodes, and the reasons for its status. This view of a run contains no values of the state.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use ferrata_core::ask::Question;
use ferrata_core::runtime::{
    ActivationPhase, Checkpoint, LoggedGraph, PastActivation, PendingActivation, Position,
};
use ferrata_core::store::RunHead;
use ferrata_queue::explain_memberships;
use serde_json::{Value, json};

use crate::app::ApiCall;
use crate::cache::CacheKey;
use crate::problem::Problem;
use crate::queues;
use crate::redact::Redaction;
use crate::view::graph::{KnownGraph, NodeAppearance, RunGraph, reason};
use crate::view::reason::reason_json;
use crate::view::summary::summary;
use crate::view::text::{LONG, SHORT};
use crate::view::tree::{fits, small};

/// Maximum number of activations in an answer. By default the last activations are shown.
const ACTIVATIONS: usize = 2_000;

/// Maximum number of runs that are named for an activation that waits for them.
const CHILDREN: usize = 20;

/// Maximum size in bytes of a schema for which the page shows a form.
const FORM: usize = 64 * 1024;

/// Answers `GET /api/v1/runs/{tenant}/{run}`.
pub(super) async fn show(call: ApiCall, Path(name): Path<(String, String)>) -> Result<Json<Value>, Problem> {
    let params = call.params(&["at", "end", "visit"])?;
    let run = call.run(&name)?;
    let at = place(params.one("at")?)?;
    let part = HistoryPart { end: params.parsed("end")?, visit: params.one("visit")?.map(str::to_owned) };
    let head = call.head(&run).await?;
    let shown = match at {
        Position::Latest => current_view(&call, &head, &part).await?,
        at => past_view(&call, &head, at, &part).await?.into(),
    };
    let mut answer = json!({
        "now": call.app.now(),
        "head": summary(&head, &call.viewer),
        "stalled": stalled(&call, &head),
        "run": shown,
        "queues": [],
        "why": [],
        "asked_below": [],
    });
    // The current status belongs to the newest position only, not to an older one.
    if params.one("at")?.is_none_or(|at| at == "latest") {
        let mut explained = call.runtime().explain(&head, &call.app.reasons).await?;
        let standings = queues::of_run(&call, &head, &shown["questions"]).await?;
        explain_memberships(&mut explained.reasons, &standings.all(), |one| standings.status(one));
        let hides = &call.app.redaction;
        answer["why"] = explained.reasons.iter().map(|reason| reason_json(reason, hides)).collect();
        answer["asked_below"] = explained.questions.iter().map(|one| question(one, hides)).collect();
        answer["queues"] = standings.to_json(&call);
    }
    Ok(Json(answer))
}

/// The part of the ended activations that one answer contains. A run may have too many activations for one answer.
#[derive(Debug, Default)]
struct HistoryPart {
    /// The part ends before this index.
    end: Option<usize>,
    /// The part contains this visit.
    visit: Option<String>,
}

impl HistoryPart {
    fn of(&self, history: &[PastActivation]) -> Range<usize> {
        let end = match (&self.visit, self.end) {
            (Some(visit), _) => {
                let is_it = |past: &PastActivation| *visit == format!("{}@{}", past.node, past.visit);
                history.iter().rposition(is_it).map(|at| at + ACTIVATIONS / 2)
            }
            (None, end) => end,
        };
        let end = end.map_or(history.len(), |end| end.min(history.len()));
        end.saturating_sub(ACTIVATIONS)..end
    }
}

/// Shows a run as of its newest record. The result is cached for the head, until the time or the end of its owner changes the result.
async fn current_view(call: &ApiCall, head: &RunHead, part: &HistoryPart) -> Result<Arc<Value>, Problem> {
    let alive = if head.owner_alive { "living" } else { "dead" };
    let what = match (&part.visit, part.end) {
        (None, None) => format!("run of the {alive}"),
        (visit, end) => format!("run of the {alive}, {visit:?} {end:?}"),
    };
    let about = CacheKey { run: head.run.clone(), head: head.id, what: what.into() };
    let time = call.app.now();
    let holds = |shown: &Value| shown["changes_at"].as_i64().is_none_or(|at| time.unix_ms() < at);
    if let Some(known) = call.app.cache.get(&about).filter(|known| holds(known)) {
        return Ok(known);
    }
    let (checkpoint, told) =
        call.runtime().checkpoint_and_graph(&head.run, Position::Record(head.id)).await?;
    call.app.reasons.insert(&checkpoint);
    let known = cache_graph(call, head, &checkpoint, &told);
    let phases: Vec<_> =
        checkpoint.next.iter().map(|one| checkpoint.phase(one, head.owner_alive, time)).collect();
    let mut shown = graph_view(call, head, &checkpoint, &phases, &known, part);
    let times = checkpoint.next.iter().flat_map(|one| one.timers.iter().chain(&one.retry_at));
    let changes = times.chain(&head.wake_at).filter(|at| **at > time).min();
    shown["changes_at"] = json!(changes);
    Ok(call.app.cache.put(about, shown))
}

/// Shows a run as of an older record.
async fn past_view(
    call: &ApiCall,
    head: &RunHead,
    at: Position,
    part: &HistoryPart,
) -> Result<Value, Problem> {
    let (then, _) = call.runtime().checkpoint_and_graph(&head.run, at).await?;
    // Use the nodes and edges of the newest record, so that the picture stays the same when the position changes.
    let known = newest_graph(call, head).await?;
    let phases: Vec<_> = then.next.iter().map(|one| then.phase(one, then.owner.is_some(), then.at)).collect();
    Ok(graph_view(call, head, &then, &phases, &known, part))
}

fn graph_view(
    call: &ApiCall,
    head: &RunHead,
    then: &Checkpoint,
    phases: &[ActivationPhase],
    known: &KnownGraph,
    part: &HistoryPart,
) -> Value {
    let (outline, hides) = (call.app.outlines.of(head), &call.app.redaction);
    let graph = RunGraph::of(then, phases, known, outline.as_deref(), hides);
    run_view(then, phases, &graph, &part.of(&then.history), hides)
}

fn graph_cache_key(head: &RunHead) -> CacheKey {
    CacheKey { run: head.run.clone(), head: head.id, what: "graph".into() }
}

/// Caches the graph of a run as of its newest record.
fn cache_graph(call: &ApiCall, head: &RunHead, now: &Checkpoint, told: &LoggedGraph) -> KnownGraph {
    let known = KnownGraph::of(now, told);
    call.app.cache.put(graph_cache_key(head), json!(known));
    known
}

/// Returns the graph of a run as of its newest record, with one read per head.
async fn newest_graph(call: &ApiCall, head: &RunHead) -> Result<KnownGraph, Problem> {
    let known = call.app.cache.get(&graph_cache_key(head));
    if let Some(known) = known.and_then(|known| serde_json::from_value((*known).clone()).ok()) {
        return Ok(known);
    }
    let (now, told) = call.runtime().checkpoint_and_graph(&head.run, Position::Record(head.id)).await?;
    Ok(cache_graph(call, head, &now, &told))
}

/// Reads a position in a log.
pub(super) fn place(text: Option<&str>) -> Result<Position, Problem> {
    Ok(text.map(Position::from_str).transpose()?.unwrap_or(Position::Latest))
}

/// Returns the reason why this process could not claim the run.
fn stalled(call: &ApiCall, head: &RunHead) -> Option<Value> {
    let all = call.runtime().stalled();
    let own = all.iter().find(|stalled| stalled.run == head.run)?;
    Some(
        json!({ "why": call.app.redaction.cut(&own.error.to_string(), LONG), "tries": own.tries, "next": own.next }),
    )
}

fn run_view(
    now: &Checkpoint,
    phases: &[ActivationPhase],
    graph: &RunGraph,
    part: &Range<usize>,
    hides: &Redaction,
) -> Value {
    json!({
        "at": { "seq": now.index, "kind": now.kind, "time": now.at, "status": now.status },
        "failure": now.failure.as_ref().map(|failure| hides.cut(&failure.to_string(), LONG)),
        "causes": now.failure.as_ref().map(|failure| failure.causes.iter().map(|cause| hides.cut(cause, SHORT)).collect::<Vec<_>>()),
        "paused": now.paused.as_ref().map(|reason| hides.cut(reason, LONG)),
        "cancelled": now.cancelled.as_ref().map(|reason| hides.cut(reason, LONG)),
        "graph": graph,
        "past": now.history[part.clone()].iter().map(|one| past(one, hides)).collect::<Vec<_>>(),
        // The number of ended activations before and after the displayed part, and the period of the earlier ones.
        "older": part.start,
        "newer": now.history.len() - part.end,
        "older_until": now.history[..part.start].last().and_then(|past| past.at),
        "open": open(now, phases, hides),
        "questions": now.questions.iter().map(|one| question(one, hides)).collect::<Vec<_>>(),
        "unread": now.unread,
        "replans": now.replans.iter().rev().take(100).map(|replan| json!({
            "from": format!("{}@{}", replan.from, replan.visit), "to": replan.to, "reason": hides.cut(&replan.reason, SHORT)
        })).collect::<Vec<_>>(),
        "attempts": now.diagnostics.iter().rev().take(ACTIVATIONS).map(|failed| json!({
            "at": failed.at, "node": failed.node, "visit": failed.visit, "attempt": failed.attempt,
            "why": hides.cut(&failed.failure.message, SHORT), "retry_at": failed.retry_at
        })).collect::<Vec<_>>(),
    })
}

fn past(past: &PastActivation, hides: &Redaction) -> Value {
    json!({
        "node": past.node, "visit": past.visit, "look": NodeAppearance::of(past), "attempts": past.attempts, "took_ms": past.took_ms,
        "at": past.at, "seq": past.index, "effect": past.effect, "led_to": past.led_to, "why": hides.cut(reason(past), SHORT),
        "outcome": past.verdict.as_ref().map(|verdict| hides.cut(&verdict.outcome, SHORT)),
    })
}

fn open(now: &Checkpoint, phases: &[ActivationPhase], hides: &Redaction) -> Vec<Value> {
    let one = |(pending, phase): (&PendingActivation, &ActivationPhase)| {
        let children = pending.children.iter().take(CHILDREN);
        json!({
            "node": pending.node, "visit": pending.visit, "look": NodeAppearance::of_phase(*phase), "phase": phase, "doing": phase.as_str(),
            "failed": pending.failed, "retry_at": pending.retry_at, "stopped": pending.stopped, "timers": pending.timers,
            "progress": pending.progress.as_ref().filter(|_| now.secret.is_empty()).map(|said| {
                let mut said = said.clone();
                hides.value(&mut said);
                small(&said)
            }),
            "steps": pending.steps.iter().take(200).collect::<Vec<_>>(),
            "children": children.map(|child| json!({ "name": child.name, "id": child.run })).collect::<Vec<_>>(),
            "children_count": pending.children.len(),
        })
    };
    now.next.iter().zip(phases).take(ACTIVATIONS).map(one).collect()
}

/// Writes a question as JSON: its text, and the shape of its answer.
pub(super) fn question(question: &Question, hides: &Redaction) -> Value {
    let mut schema = question.answer_schema();
    if let Value::Object(schema) = &mut schema {
        // The page shows both next to the question, shortened.
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
        // For a larger schema, the page asks for the answer as JSON.
        "expects": question.expects.as_ref().map(|shape| json!(shape)).filter(|shape| fits(shape, FORM)),
        "schema": Some(schema).filter(|schema| fits(schema, FORM)),
        "deadline": question.deadline,
        "default": question.default.as_ref().map(|default| hides.cut(default, SHORT)),
        "problem": question.problem.as_ref().map(|problem| hides.cut(problem, SHORT)),
        "failure": question.failure.as_ref().map(|failure| hides.cut(&failure.message, SHORT)),
    })
}
