//! The events of a run's log, as lines of JSON.
//!
//! | Prefix | Types |
//! |---|---|
//! | `run.` | `started`, `resumed`, `released`, `waiting`, `completed`, `failed`, `cancelling`, `cancelled`, `paused`, `unpaused`, `retried` |
//! | `node.` | `started` (of the last attempt), `finished`, `failed`, `retrying`, `in_doubt`, `noted`, `intended` |
//! | `edge.` | `selected` (`from`, `to`, `reason`, `label`, `condition`) |
//! | `parallel.` | `started`, `branch_finished`, `finished` |
//! | `question.` | `asked`, `answered`, `timed_out` |
//! | none | `message.sent`, `state.edited`, `checkpoint.saved`, `signal` |

use ferrata_core::Timestamp;
use ferrata_core::record::{RecordHeader, RunStatus};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::log::StageEnd;
use crate::pipeline::Pipeline;

/// Returns the events of an ended activation, except its end itself: its start, and the chosen edge or the branches that began.
pub(super) fn around_end(
    pipeline: &Pipeline,
    done: &StageEnd,
    route: &ChosenRoute<'_>,
) -> Vec<(&'static str, Json)> {
    let (node, visit) = (&done.node, done.visit);
    if route.is_fork {
        return vec![(
            "parallel.started",
            json!({"node": node, "visit": visit, "branches": done.branches()}),
        )];
    }
    let mut events = Vec::new();
    if let Some(results) = route.results {
        for result in results {
            let part = |key: &str| result.get(key).filter(|value| value.as_str() != Some("")).cloned();
            let branch = json!({"node": node, "visit": visit, "branch": part("id"), "outcome": part("outcome"),
                                "reason": part("failure_reason")});
            events.push(("parallel.branch_finished", branch));
        }
        events.push(("parallel.finished", json!({"node": node, "visit": visit, "branches": results.len()})));
    }
    if let (Some(to), Some(why)) = (done.led_to().first(), route.why) {
        let mut edges = pipeline.edges().iter().filter(|edge| *edge.from == **node);
        let edge = route.edge.and_then(|place| edges.nth(place));
        let text = |text: std::borrow::Cow<'_, str>| (!text.is_empty()).then(|| text.into_owned());
        let chosen = json!({"from": node, "visit": visit, "to": edge.map_or(*to, |edge| &*edge.to), "reason": why,
            "label": edge.and_then(|edge| text(edge.label())), "condition": edge.and_then(|edge| text(edge.condition()))});
        events.push(("edge.selected", chosen));
    }
    events
}

/// The route that a node chose.
pub(super) struct ChosenRoute<'a> {
    pub(super) is_fork: bool,
    pub(super) edge: Option<usize>,
    pub(super) why: Option<&'a str>,
    /// The results of the branches that met at the node.
    pub(super) results: Option<&'a [Json]>,
}

/// Returns the name of a status or a signal.
pub(super) fn event_name(
    header: &RecordHeader,
    word: &str,
    more: &Json,
    at: impl Fn(i64) -> String,
) -> (&'static str, Json) {
    let text = |key: &str| more.get(key).cloned().unwrap_or_default();
    let question = || {
        let part = |key: &str| match more.get(key) {
            Some(Json::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        format!("{}@{}:{}", part("node"), part("visit"), part("name"))
    };
    match word {
        "asked" => {
            let ask = more.get("ask").cloned().unwrap_or_default();
            let deadline = ask.get("deadline").and_then(Json::as_i64).map(at);
            let asked = ask.get("question").cloned().unwrap_or_default();
            ("question.asked", json!({"question": question(), "text": asked, "deadline": deadline}))
        }
        "expired" => ("question.timed_out", json!({"question": question()})),
        "answer" => ("question.answered", json!({"question": text("question"), "answer": text("answer")})),
        "respond" => {
            ("question.answered", json!({"question": text("question"), "answer": text("resolution")}))
        }
        "rested" | "interrupted" => ("run.waiting", json!({"status": header.status.as_str()})),
        "failed" => ("run.failed", json!({"reason": text("message")})),
        "cancelled" => ("run.cancelled", json!({})),
        "cancel" if header.status == RunStatus::Cancelled => {
            ("run.cancelled", json!({"reason": text("reason")}))
        }
        "cancel" => ("run.cancelling", json!({"reason": text("reason")})),
        "retry" => ("run.retried", json!({})),
        "pause" => ("run.paused", json!({"reason": text("reason")})),
        "unpause" => ("run.unpaused", json!({})),
        "message" => ("message.sent", json!({})),
        _ => ("signal", json!({"signal": word})),
    }
}

/// An event in the form of its line.
#[derive(Serialize)]
struct EventLine<'a> {
    v: u32,
    seq: u64,
    ts: String,
    run: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(flatten)]
    more: Map<String, Json>,
}

/// Writes the event of a record as a line.
pub(super) fn line(header: &RecordHeader, run: &str, kind: &str, more: Json) -> String {
    line_at(header, header.at, run, kind, more)
}

/// Writes the event of a record as a line, for an event that happened at another time than the record.
pub(super) fn line_at(header: &RecordHeader, at: Timestamp, run: &str, kind: &str, more: Json) -> String {
    let more = match more {
        Json::Object(more) => more.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    };
    let line = EventLine { v: 1, seq: header.seq.get(), ts: at.to_string(), run, kind, more };
    // Texts and JSON values can always be written as JSON.
    let mut line = serde_json::to_string(&line).unwrap_or_default();
    line.push('\n');
    line
}
