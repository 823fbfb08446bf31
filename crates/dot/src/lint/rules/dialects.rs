//! Rules about other dialects: constructs that the parser tolerates, and names without a meaning in this dialect.

use super::near;
use crate::condition::Condition;
use crate::handler::MANAGER;
use crate::lint::{Diagnostic, Severity, View};
use crate::outcome::Status;
use crate::pipeline::SHAPES;
use crate::suggest::beginning_for_message;

/// Reports the constructs outside of the dialect that the parser tolerated. Each kind of construct has its own rule id.
pub(super) fn tolerated(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    found.extend(view.pipeline().tolerated().iter().map(|one| {
        // A name that occurs only in edges may be a typing mistake, so it is a warning. The other constructs mean the same in each dialect.
        let severity = if one.rule == "declared_by_edge" { Severity::Warning } else { Severity::Info };
        let diagnostic = Diagnostic::new(one.rule, severity, one.message.as_str());
        diagnostic.at_span(Some(one.span)).fix(one.fix.as_str())
    }));
}

/// Checks that every outcome in a condition is an outcome that a node can have.
pub(super) fn outcome_known(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    const NAMES: [&str; 5] = ["success", "partial_success", "retry", "fail", "skipped"];
    for edge in view.pipeline().edges() {
        // `condition_syntax` reports invalid conditions.
        let Ok(condition) = Condition::parse(&edge.condition()) else { continue };
        for word in condition.outcomes() {
            let known = Status::of_word(word);
            let (severity, message, fix) = match known {
                Some(status) if status.as_str() == word => continue,
                Some(status) => (
                    Severity::Info,
                    format!("the outcome `{}` is read as `{status}`", beginning_for_message(word)),
                    format!("write `{status}`"),
                ),
                None => {
                    let message = format!(
                        "no node ends with the outcome `{}`, unless a task writes it to `status.json`",
                        beginning_for_message(word)
                    );
                    let fix = match near(found, word, NAMES) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("the outcomes of the engine are `{}`", NAMES.join("`, `")),
                    };
                    (Severity::Warning, message, fix)
                }
            };
            let diagnostic = Diagnostic::new("outcome_known", severity, message).at_edge(edge);
            found.push(diagnostic.at_span(edge.attributes.span_of("condition")).fix(fix));
        }
    }
}

/// Checks that every shape implies a type. Nodes with an explicit type are not checked.
pub(super) fn shape_known(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes() {
        let (shape, explicit) = (node.shape(), node.explicit_type());
        let ends = view.starts().contains(&at) || view.exits().contains(&at);
        let typed = view.known_types().iter().any(|known| *known == explicit);
        if ends || typed || SHAPES.iter().any(|(known, _)| *known == shape) {
            continue;
        }
        let message = format!(
            "the shape `{}` has no type; `{}` is a task for a model",
            beginning_for_message(&shape),
            node.id()
        );
        let fix = match near(found, &shape, SHAPES.iter().map(|(shape, _)| *shape)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "write `shape=box` for a task, or set `type`".to_owned(),
        };
        let diagnostic = Diagnostic::new("shape_known", Severity::Warning, message).at_node(node);
        found.push(diagnostic.at_span(node.attributes.span_of("shape")).fix(fix));
    }
}

/// Checks that a gate has a question.
pub(super) fn gate_asks(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes().filter(|(at, _)| view.handler_type(*at) == "wait.human") {
        if view.outgoing(at).any(|edge| edge.condition().is_empty()) {
            continue;
        }
        let message =
            format!("`{}` offers no choices: a person chooses among edges without a condition", node.id());
        let fix = "remove the conditions from the edges that a person can choose, and label these edges";
        found.push(Diagnostic::new("gate_asks", Severity::Warning, message).at_node(node).fix(fix));
    }
}

/// Checks that an edge can be followed after a success, as far as the conditions show it.
pub(super) fn way_on(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes() {
        let parsed = view.outgoing(at).map(|edge| Condition::parse(&edge.condition()));
        let Ok(conditions) = parsed.collect::<Result<Vec<_>, _>>() else { continue };
        if conditions.is_empty() || !conditions.iter().all(Condition::is_of_outcome) {
            continue;
        }
        let nothing = |_: &str| None;
        let facts = crate::condition::ConditionFacts::new("success", "", &nothing);
        if conditions.iter().any(|condition| condition.holds(&facts)) {
            continue;
        }
        let message = format!("no edge of `{}` applies after a success, so the run fails", node.id());
        let fix = "add an edge without a condition, or with `outcome=success`";
        found.push(Diagnostic::new("way_on", Severity::Warning, message).at_node(node).fix(fix));
    }
}

/// Checks that retries have an effect. A node with a manager retries only if it also retries failures.
pub(super) fn retries_act(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let retried = ["max_retries", "retry_policy"];
    for (at, node) in view.nodes() {
        let own = retried.iter().find(|key| node.attributes.is_own(key));
        let (Some(key), Some(kind)) = (own, view.table_type(at)) else { continue };
        let why = match kind {
            MANAGER if node.attributes.text("retry_on") != "fail" => {
                "a failed child is a failure, so set `retry_on=fail`"
            }
            "parallel.fan_in" if !node.attributes.is_own("prompt") => {
                "a fan-in only joins the outcomes of its branches; set retries on the nodes of the branches"
            }
            "wait.human" if node.attributes.get("timeout").is_none() => {
                "a question is only retried after its `timeout`, so set one"
            }
            _ => continue,
        };
        let message = format!("`{key}` of `{}` has no effect", node.id());
        let diagnostic = Diagnostic::new("retries_act", Severity::Warning, message).at_node(node);
        found.push(diagnostic.at_span(node.attributes.span_of(key)).fix(why));
    }
}
