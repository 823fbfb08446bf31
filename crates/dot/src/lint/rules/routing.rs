//! Rules about where a run goes: conditions of edges, goal gates and the nodes to jump to.

use super::near;
use crate::condition::Condition;
use crate::lint::view::JUMPS;
use crate::lint::{Diagnostic, Severity, View};
use crate::source::Span;
use crate::suggest::shown;

/// Every condition can be read.
pub(super) fn condition_syntax(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for edge in view.pipeline().edges() {
        let Some(attribute) = edge.attributes.find("condition") else { continue };
        let text = attribute.value.value.text();
        if let Err(error) = Condition::parse(&text) {
            let message = format!("the condition `{}` cannot be read: {}", shown(&text), error.message());
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

/// Narrows the span of a string to a place in its text, if no escape has moved it.
pub(super) fn within(span: Span, text: &str, offset: usize) -> Span {
    if span.end.saturating_sub(span.start) != text.len() + 2 {
        return span;
    }
    let start = (span.start + 1 + offset).min(span.end - 1);
    Span::new(start, start + 1)
}

/// Every node to jump to is declared.
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
        let message = |target: &str| format!("`{key}` names `{}`, which is not declared", shown(target));
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

/// Every goal gate says where to go when its goal is not met.
pub(super) fn goal_gate_has_retry(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let has =
        |attributes: &crate::pipeline::Attributes| JUMPS.iter().any(|key| !attributes.text(key).is_empty());
    if has(&view.pipeline().attributes) {
        return;
    }
    for (_, node) in view.nodes().filter(|(_, node)| node.is_goal_gate() && !has(&node.attributes)) {
        let message = format!("the goal gate `{}` says nowhere to go if its goal is not met", node.id());
        let fix = "give it a `retry_target`: without one the run fails";
        let diagnostic = Diagnostic::new("goal_gate_has_retry", Severity::Warning, message).at_node(node);
        found.push(diagnostic.at_span(node.attributes.span_of("goal_gate")).fix(fix));
    }
}
