//! Rules about what other dialects write: what is read all the same, and names that mean nothing here.

use super::near;
use crate::condition::Condition;
use crate::handler::MANAGER;
use crate::lint::{Diagnostic, Severity, View};
use crate::outcome::Status;
use crate::pipeline::{Attributes, SHAPES};
use crate::suggest::{closest, shown};

/// What the parser has read although the dialect has it not, each under a rule of its own.
pub(super) fn tolerated(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    found.extend(view.pipeline().tolerated().iter().map(|one| {
        let diagnostic = Diagnostic::new(one.rule, Severity::Warning, one.message.as_str());
        diagnostic.at_span(Some(one.span)).fix(one.fix.as_str())
    }));
}

/// Every outcome that a condition asks for is one that a node can come to.
pub(super) fn outcome_known(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    const NAMES: [&str; 5] = ["success", "partial_success", "retry", "fail", "skipped"];
    for edge in view.pipeline().edges() {
        // What cannot be read is told by `condition_syntax`.
        let Ok(condition) = Condition::parse(&edge.condition()) else { continue };
        for word in condition.outcomes() {
            let known = Status::of_word(word);
            let (message, fix) = match known {
                Some(status) if status.as_str() == word => continue,
                Some(status) => (
                    format!("the outcome `{}` is taken as `{status}`", shown(word)),
                    format!("write `{status}`"),
                ),
                None => {
                    let message = format!(
                        "no node comes to the outcome `{}` unless a task says so in its `status.json`",
                        shown(word)
                    );
                    let fix = match near(found, word, NAMES) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("the outcomes of the engine are `{}`", NAMES.join("`, `")),
                    };
                    (message, fix)
                }
            };
            let diagnostic = Diagnostic::new("outcome_known", Severity::Warning, message).at_edge(edge);
            found.push(diagnostic.at_span(edge.attributes.span_of("condition")).fix(fix));
        }
    }
}

/// Every shape stands for a type, unless the type is said.
pub(super) fn shape_known(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes() {
        let (shape, explicit) = (node.shape(), node.explicit_type());
        let ends = view.starts().contains(&at) || view.exits().contains(&at);
        let typed = view.known_types().iter().any(|known| *known == explicit);
        if ends || typed || SHAPES.iter().any(|(known, _)| *known == shape) {
            continue;
        }
        let message = format!(
            "the shape `{}` stands for no type; `{}` is a task for a model",
            shown(&shape),
            node.id()
        );
        let fix = match near(found, &shape, SHAPES.iter().map(|(shape, _)| *shape)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "write `shape=box` for a task, or give it a `type`".to_owned(),
        };
        let diagnostic = Diagnostic::new("shape_known", Severity::Warning, message).at_node(node);
        found.push(diagnostic.at_span(node.attributes.span_of("shape")).fix(fix));
    }
}

/// A gate has something to ask.
pub(super) fn gate_asks(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes().filter(|(at, _)| view.handler_type(*at) == "wait.human") {
        if view.outgoing(at).any(|edge| edge.condition().is_empty()) {
            continue;
        }
        let message =
            format!("`{}` has nothing to ask: a person chooses among edges without a condition", node.id());
        let fix = "take the conditions out of the edges that a person is to choose, and give them labels";
        found.push(Diagnostic::new("gate_asks", Severity::Warning, message).at_node(node).fix(fix));
    }
}

/// After a success some edge holds, as far as that can be told from the conditions alone.
pub(super) fn way_on(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes() {
        let parsed = view.outgoing(at).map(|edge| Condition::parse(&edge.condition()));
        let Ok(conditions) = parsed.collect::<Result<Vec<_>, _>>() else { continue };
        if conditions.is_empty() || !conditions.iter().all(Condition::is_of_outcome) {
            continue;
        }
        let nothing = |_: &str| None;
        let facts = crate::condition::Facts::new("success", "", &nothing);
        if conditions.iter().any(|condition| condition.holds(&facts)) {
            continue;
        }
        let message =
            format!("none of the edges of `{}` holds when it succeeds: the run fails there", node.id());
        let fix = "give it an edge without a condition, or one with `outcome=success`";
        found.push(Diagnostic::new("way_on", Severity::Warning, message).at_node(node).fix(fix));
    }
}

/// The attributes that mean something, of the graph, of nodes and of edges.
const GRAPH: &[&str] = &[
    "goal",
    "model_stylesheet",
    "default_max_retries",
    "default_max_retry",
    "retry_target",
    "fallback_retry_target",
    "max_node_visits",
    "max_steps",
    "max_replans",
    "max_cost",
    "max_total_tokens",
    "max_time",
    "budget_target",
    "default_fidelity",
    "default_thread",
    "stall_timeout",
    "loop_restart_signature_limit",
    "tool_hooks.pre",
    "tool_hooks.post",
    "backend",
    "label",
    "rankdir",
    "stack.child_dotfile",
    "stack.child_workdir",
    "stack.child_autostart",
    "manager.poll_interval",
    "manager.max_cycles",
    "manager.stop_condition",
    "manager.actions",
    "llm_model",
    "llm_provider",
    "reasoning_effort",
];
const NODE: &[&str] = &[
    "label",
    "shape",
    "type",
    "class",
    "prompt",
    "max_retries",
    "retry_policy",
    "retry_on",
    "timeout",
    "goal_gate",
    "retry_target",
    "fallback_retry_target",
    "allow_partial",
    "auto_status",
    "max_visits",
    "llm_model",
    "llm_provider",
    "reasoning_effort",
    "fidelity",
    "thread_id",
    "selection",
    "tool_hooks.pre",
    "tool_hooks.post",
    "effect",
    "tool_command",
    "script",
    "working_dir",
    "human.default_choice",
    "duration",
    "join_policy",
    "k",
    "error_policy",
    "max_parallel",
    "stack.child_dotfile",
    "stack.child_workdir",
    "stack.child_autostart",
    "manager.poll_interval",
    "manager.max_cycles",
    "manager.stop_condition",
    "manager.actions",
];
const EDGE: &[&str] = &[
    "label",
    "condition",
    "weight",
    "loop_restart",
    "fidelity",
    "thread_id",
    "freeform",
    "for_each",
    "replan",
];

/// What other dialects call attributes that mean something here.
const ALIASES: &[(&str, &str)] = &[
    ("stack.child_workflow", "stack.child_dotfile"),
    ("max_cost_usd", "max_cost"),
    ("max_budget_usd", "max_cost"),
    ("max_cost_cents", "max_cost"),
];

/// Attributes of Graphviz that look like slips for ours.
const DRAWING: &[&str] = &[
    "labels",
    "labelloc",
    "labeljust",
    "xlabel",
    "height",
    "width",
    "color",
    "style",
    "group",
    "rank",
    "tooltip",
];

/// No attribute looks like a slip for one that means something: it would silently be a free one.
pub(super) fn attribute_known(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let slips = |found: &[Diagnostic], attributes: &Attributes, known: &[&'static str]| -> Vec<Diagnostic> {
        let mut slips = Vec::new();
        for attribute in attributes.iter().filter(|attribute| attribute.key.span != Default::default()) {
            let key = &*attribute.key.value;
            if let Some((_, name)) =
                ALIASES.iter().find(|(alias, name)| *alias == key && known.contains(name))
            {
                let message = format!("`{key}` is taken as `{name}`");
                let diagnostic = Diagnostic::new("attribute_alias", Severity::Warning, message);
                slips.push(diagnostic.at_span(Some(attribute.key.span)).fix(format!("write `{name}`")));
                continue;
            }
            if known.contains(&key)
                || DRAWING.contains(&key)
                || found.len() + slips.len() > super::SUGGESTIONS
            {
                continue;
            }
            // Hyphens and underscores are what people leave out.
            let joined = |name: &str| name.replace('_', "");
            let same = known.iter().copied().find(|name| joined(name) == joined(key));
            if let Some(near) = same.or_else(|| closest(key, known.iter().copied())) {
                let message = format!("`{}` is no attribute that means something", shown(key));
                let diagnostic = Diagnostic::new("attribute_known", Severity::Warning, message);
                slips.push(
                    diagnostic.at_span(Some(attribute.key.span)).fix(format!("did you mean `{near}`?")),
                );
            }
        }
        slips
    };
    let of_graph = slips(found, &view.pipeline().attributes, GRAPH);
    found.extend(of_graph);
    for (_, node) in view.nodes() {
        for one in slips(found, &node.attributes, NODE) {
            let span = one.span;
            found.push(one.at_node(node).at_span(Some(span)));
        }
    }
    for edge in view.pipeline().edges() {
        for one in slips(found, &edge.attributes, EDGE) {
            let span = one.span;
            found.push(one.at_edge(edge).at_span(Some(span)));
        }
    }
}

/// Retries that can act: a failure is not one that is tried again.
pub(super) fn retries_act(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    const SILENT: [&str; 7] =
        ["start", "exit", "conditional", "parallel", "wait", MANAGER, "parallel.fan_in"];
    for (at, node) in view.nodes().filter(|(_, node)| node.attributes.is_own("max_retries")) {
        let kind = view.handler_type(at);
        let some =
            node.attributes.get("max_retries").and_then(crate::value::Value::as_integer).unwrap_or(0) > 0;
        if !some || !SILENT.contains(&kind) {
            continue;
        }
        let message = format!(
            "`max_retries` of `{}` does nothing: a node of type `{kind}` is not tried again",
            node.id()
        );
        let fix = "give it to the node that does the work";
        let diagnostic = Diagnostic::new("retries_act", Severity::Warning, message).at_node(node);
        found.push(diagnostic.at_span(node.attributes.span_of("max_retries")).fix(fix));
    }
}
