//! Rules about the routes of a run: the conditions of edges, goal gates and jump targets.

use super::near;
use crate::condition::Condition;
use crate::lint::view::JUMPS;
use crate::lint::{Diagnostic, Severity, View};
use crate::source::Span;
use crate::suggest::beginning_for_message;

/// Checks that every condition is valid.
pub(super) fn condition_syntax(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for edge in view.pipeline().edges() {
        let Some(attribute) = edge.attributes.find("condition") else { continue };
        let text = attribute.value.value.text();
        if let Err(error) = Condition::parse(&text) {
            let message =
                format!("the condition `{}` is invalid: {}", beginning_for_message(&text), error.message());
            let span = within(attribute.value.span, &text, error.offset());
            found.push(
                Diagnostic::new("condition_syntax", Severity::Error, message)
                    .at_edge(edge)
                    .at_span(Some(span))
                    .fix(error.suggestion()),
            );
        }
    }
}

/// Keys that the engines of other dialects set for conditions, and what to use instead.
const FOREIGN_KEYS: [(&str, &str); 3] = [
    (
        "failure_class",
        "let a task set it in `context_updates` of its `status.json`; the engine itself sets only `failure_reason`",
    ),
    (
        "internal.node_visit_count",
        "limit visits with `max_visits` of the node; a command reads its visit number from `FERRATA_VISIT`",
    ),
    (
        "internal.retry_count",
        "limit retries with `max_retries` of the node; a command reads its attempt number from `FERRATA_ATTEMPT`",
    ),
];

/// The private keys of the engine that conditions may read.
const INTERNAL: [&str; 5] =
    ["internal.restarts", "internal.waits", "internal.fidelity", "internal.stage.", "internal.gate."];

/// Returns the reason why nothing sets a key, and how to correct it. Returns `None` if a node, the engine or the input may set the key.
fn unset(view: &View<'_>, key: &str) -> Option<(String, String)> {
    let key = key.strip_prefix("context.").unwrap_or(key);
    if let Some((_, fix)) = FOREIGN_KEYS.iter().find(|(foreign, _)| *foreign == key) {
        return Some((
            format!("this engine does not set `{key}`, which is a key of another engine"),
            (*fix).to_owned(),
        ));
    }
    let of_engine = |known: &str| if known.ends_with('.') { key.starts_with(known) } else { key == known };
    if key.starts_with("internal.") && !INTERNAL.into_iter().any(of_engine) {
        let message = format!(
            "nothing sets `{}`: nodes cannot set keys that begin with `internal.`",
            beginning_for_message(key)
        );
        return Some((
            message,
            "test a key that a node sets in `context_updates` of its `status.json`".to_owned(),
        ));
    }
    if let Some(name) =
        key.strip_prefix("graph.").filter(|name| view.pipeline().attributes.get(name).is_none())
    {
        let message = format!(
            "nothing sets `{}`: the graph has no attribute `{}`",
            beginning_for_message(key),
            beginning_for_message(name)
        );
        return Some((
            message,
            format!("set it in the graph, or pass `--input {}=..`", beginning_for_message(key)),
        ));
    }
    if let Some(node) = key.strip_prefix("response.").filter(|node| view.pipeline().node(node).is_none()) {
        let message = format!(
            "nothing sets `{}`: there is no node `{}`",
            beginning_for_message(key),
            beginning_for_message(node)
        );
        return Some((message, "name a node that answers".to_owned()));
    }
    None
}

/// Checks that every key in a condition may be set. If nothing sets a key, the condition never holds, and the edge is never followed.
pub(super) fn condition_keys(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for edge in view.pipeline().edges() {
        // `condition_syntax` reports invalid conditions.
        let Ok(condition) = Condition::parse(&edge.condition()) else { continue };
        if let Some((message, fix)) = condition.keys().into_iter().find_map(|key| unset(view, key)) {
            let diagnostic = Diagnostic::new("condition_keys", Severity::Warning, message).at_edge(edge);
            found.push(diagnostic.at_span(edge.attributes.span_of("condition")).fix(fix));
        }
    }
}

/// Returns the span of a part of a string's text. If the string contains escapes, returns the span of the whole string.
pub(super) fn within(span: Span, text: &str, offset: usize) -> Span {
    if span.end.saturating_sub(span.start) != text.len() + 2 {
        return span;
    }
    let start = (span.start + 1 + offset).min(span.end - 1);
    Span::new(start, start + 1)
}

/// Checks that every jump target is declared.
pub(super) fn retry_target_exists(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let missing = |found: &[Diagnostic], target: &str| {
        if target.is_empty() || view.pipeline().node(target).is_some() {
            return None;
        }
        let names = view.pipeline().nodes().iter().map(|node| node.id());
        let fix = match near(found, target, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "name a declared node".to_owned(),
        };
        Some(fix)
    };
    for key in JUMPS.into_iter().chain(["budget_target"]) {
        let rule = "retry_target_exists";
        let message = |target: &str| {
            format!("`{key}` names `{}`, which is not declared", beginning_for_message(target))
        };
        let target = view.pipeline().attributes.text(key);
        if let Some(fix) = missing(found, &target) {
            let span = view.pipeline().attributes.span_of(key);
            found.push(Diagnostic::new(rule, Severity::Warning, message(&target)).at_span(span).fix(fix));
        }
        for (_, node) in view.nodes() {
            let target = node.attributes.text(key);
            if let Some(fix) = missing(found, &target) {
                let span = node.attributes.span_of(key);
                let diagnostic = Diagnostic::new(rule, Severity::Warning, message(&target)).at_node(node);
                found.push(diagnostic.at_span(span).fix(fix));
            }
        }
    }
}

/// Checks that every goal gate has a target for a run whose goal is not met.
pub(super) fn goal_gate_has_retry(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let has =
        |attributes: &crate::pipeline::Attributes| JUMPS.iter().any(|key| !attributes.text(key).is_empty());
    if has(&view.pipeline().attributes) {
        return;
    }
    for (_, node) in view.nodes().filter(|(_, node)| node.is_goal_gate() && !has(&node.attributes)) {
        let message = format!("the goal gate `{}` has no retry target for a missed goal", node.id());
        let fix = "set `retry_target`; without it a missed goal fails the run";
        let diagnostic = Diagnostic::new("goal_gate_has_retry", Severity::Warning, message).at_node(node);
        found.push(diagnostic.at_span(node.attributes.span_of("goal_gate")).fix(fix));
    }
}
