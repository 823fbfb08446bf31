//! Rules about what attributes say.

use super::near;
use super::routing::within;
use crate::lint::{Diagnostic, Severity, View};
use crate::pipeline::{Attributes, DEFAULT_TYPE};
use crate::suggest::{closest, shown};
use crate::transform::Stylesheet;
use crate::value::Value;

/// The retries from which a pipeline hides a fault rather than rides over it.
const MANY_RETRIES: i64 = 5;

/// How many of the same kind are shown of one text.
const SHOWN: usize = 20;

/// The stylesheet can be read.
pub(super) fn stylesheet_syntax(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let Some(attribute) = view.pipeline().attributes.find("model_stylesheet") else { return };
    let text = attribute.value.value.text();
    match Stylesheet::parse(&text) {
        Ok(stylesheet) => {
            let mut tell = |at: usize, message: String, fix: String| {
                let diagnostic = Diagnostic::new("stylesheet_names", Severity::Warning, message);
                found.push(diagnostic.at_span(Some(within(attribute.value.span, &text, at))).fix(fix));
            };
            for (at, alias, name) in stylesheet.aliases().iter().take(SHOWN) {
                tell(*at, format!("the property `{alias}` is taken as `{name}`"), format!("write `{name}`"));
            }
            for (at, name) in stylesheet.unknown().iter().take(SHOWN) {
                let message = format!("the property `{}` means nothing here", shown(name));
                tell(*at, message, "take it out, or give it to the backend in another way".to_owned());
            }
        }
        Err(error) => {
            let message = format!("the stylesheet cannot be read: {}", error.message());
            let span = within(attribute.value.span, &text, error.offset());
            let diagnostic = Diagnostic::new("stylesheet_syntax", Severity::Error, message);
            found.push(diagnostic.at_span(Some(span)).fix(error.suggestion()));
        }
    }
}

/// There is a handler for every explicit type.
pub(super) fn type_known(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes() {
        let explicit = node.explicit_type();
        if explicit.is_empty() || view.known_types().iter().any(|known| *known == explicit) {
            continue;
        }
        let message = format!("there is no handler for the type `{}`", shown(&explicit));
        let fix = match near(found, &explicit, view.known_types().iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("register one; until then the node is of type `{}`", view.handler_type(at)),
        };
        let diagnostic = Diagnostic::new("type_known", Severity::Warning, message).at_node(node);
        found.push(diagnostic.at_span(node.attributes.span_of("type")).fix(fix));
    }
}

/// Every fidelity is one of the six.
pub(super) fn fidelity_valid(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    const MODES: [&str; 6] = ["full", "truncate", "compact", "summary:low", "summary:medium", "summary:high"];
    let check = |attributes: &Attributes, key: &str| {
        let mode = attributes.text(key);
        if mode.is_empty() || MODES.contains(&&*mode) {
            return None;
        }
        let message = format!("there is no fidelity `{}`", shown(&mode));
        let fix = match closest(&mode, MODES) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("use one of `{}`", MODES.join("`, `")),
        };
        let diagnostic = Diagnostic::new("fidelity_valid", Severity::Warning, message);
        Some(diagnostic.fix(fix).at_span(attributes.span_of(key)))
    };
    found.extend(check(&view.pipeline().attributes, "default_fidelity"));
    for (_, node) in view.nodes() {
        let span = node.attributes.span_of("fidelity");
        found.extend(check(&node.attributes, "fidelity").map(|it| it.at_node(node).at_span(span)));
    }
    for edge in view.pipeline().edges() {
        let span = edge.attributes.span_of("fidelity");
        found.extend(check(&edge.attributes, "fidelity").map(|it| it.at_edge(edge).at_span(span)));
    }
}

/// Every node that a model works on says what to do.
pub(super) fn prompt_on_llm_nodes(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes() {
        let silent = ["prompt", "label"].iter().all(|key| node.attributes.text(key).is_empty());
        let ends = view.starts().contains(&at) || view.exits().contains(&at);
        if silent && !ends && view.handler_type(at) == DEFAULT_TYPE {
            let message = format!("`{}` is a task for a model, but does not say which", node.id());
            let diagnostic = Diagnostic::new("prompt_on_llm_nodes", Severity::Warning, message).at_node(node);
            found.push(diagnostic.fix("give it a `prompt`, or another `shape`"));
        }
    }
}

/// A node is tried a sensible number of times.
pub(super) fn high_retry_count(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (_, node) in view.nodes() {
        let retries = node.attributes.get("max_retries").and_then(Value::as_integer).unwrap_or(0);
        if retries > MANY_RETRIES {
            let message = format!("`{}` is retried {retries} times", node.id());
            let diagnostic = Diagnostic::new("high_retry_count", Severity::Info, message).at_node(node);
            let fix = format!(
                "more than {MANY_RETRIES} retries hide a fault and delay its report; lower `max_retries`"
            );
            found.push(diagnostic.at_span(node.attributes.span_of("max_retries")).fix(fix));
        }
    }
}

/// What an attribute's value has to be.
#[derive(Clone, Copy)]
enum Kind {
    /// A whole number of at least this.
    Count(i64),
    Integer,
    Boolean,
    /// A boolean, or a text that other dialects have there.
    Goal,
    Duration,
    /// A number of at least 0.
    Amount,
    OneOf(&'static [&'static str]),
}

impl Kind {
    fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Count(least) => value.as_integer().is_some_and(|number| number >= least),
            Self::Integer => value.as_integer().is_some(),
            Self::Boolean => value.as_bool().is_some(),
            Self::Goal => {
                value.as_bool().is_some() || value.as_str().is_some_and(|goal| !goal.trim().is_empty())
            }
            Self::Duration => value.as_duration().is_some(),
            Self::Amount => value.as_amount().is_some(),
            Self::OneOf(names) => names.contains(&&*value.text()),
        }
    }

    /// Says how a value of another dialect is taken that it accepts: the rule, the message and what to write.
    fn tolerates(self, key: &str, value: &Value) -> Option<(&'static str, String, String)> {
        match (self, value) {
            (Self::Count(_) | Self::Integer, Value::Float(_)) => {
                let number = value.as_integer()?;
                let message = format!("`{key}` is {value}, and is taken as {number}");
                Some(("number_form", message, format!("write `{number}`")))
            }
            (Self::Duration, Value::Integer(_) | Value::String(_)) => {
                let count: i64 = value.as_integer()?;
                let message = format!("`{key}` is {value} and has no unit; it is taken as {count} seconds");
                Some(("duration_unit", message, format!("write `{count}s`")))
            }
            (Self::Goal, value) if value.as_bool().is_none() => {
                let message =
                    format!("`{key}` is a text, which the engine does not judge: it is taken as `true`");
                Some((
                    "goal_gate_text",
                    message,
                    "write `goal_gate=true`, and have the node fail if its goal is not met".to_owned(),
                ))
            }
            _ => None,
        }
    }

    fn wanted(self) -> String {
        match self {
            Self::Count(least) => format!("a whole number of at least {least}"),
            Self::Integer => "a whole number".to_owned(),
            Self::Boolean | Self::Goal => "`true` or `false`".to_owned(),
            Self::Duration => "a duration as `30s` or `15m`".to_owned(),
            Self::Amount => "a number of at least 0".to_owned(),
            Self::OneOf(names) => format!("one of `{}`", names.join("`, `")),
        }
    }
}

const PRESETS: &[&str] = &["none", "standard", "aggressive", "linear", "patient"];

/// What the attributes of the graph have to be, where that matters; of nodes and edges below. Matched and not looked up,
/// because every attribute of a pipeline comes by here.
fn of_graph(key: &str) -> Option<Kind> {
    Some(match key {
        "default_max_retries" => Kind::Count(0),
        "default_max_retry" => Kind::Count(0),
        "max_node_visits" => Kind::Count(0),
        "max_steps" => Kind::Count(0),
        "max_replans" => Kind::Count(0),
        "stall_timeout" => Kind::Duration,
        "max_cost" | "max_cost_usd" | "max_budget_usd" | "max_cost_cents" | "max_total_tokens" => {
            Kind::Amount
        }
        "max_time" => Kind::Duration,
        "loop_restart_signature_limit" => Kind::Count(1),
        _ => return None,
    })
}

fn of_node(key: &str) -> Option<Kind> {
    Some(match key {
        "max_retries" => Kind::Count(0),
        "max_visits" => Kind::Count(0),
        "retry_policy" => Kind::OneOf(PRESETS),
        "retry_on" => Kind::OneOf(&["fail", "retry"]),
        "goal_gate" => Kind::Goal,
        "auto_status" => Kind::Boolean,
        "allow_partial" => Kind::Boolean,
        "timeout" => Kind::Duration,
        "duration" => Kind::Duration,
        "selection" => Kind::OneOf(&["deterministic", "random"]),
        "reasoning_effort" => Kind::OneOf(&["low", "medium", "high"]),
        "max_parallel" => Kind::Count(1),
        "join_policy" => Kind::OneOf(&["wait_all", "first_success", "k_of_n", "quorum"]),
        "error_policy" => Kind::OneOf(&["fail_fast", "continue", "ignore"]),
        "manager.poll_interval" => Kind::Duration,
        "manager.max_cycles" => Kind::Count(1),
        "stack.child_autostart" => Kind::Boolean,
        _ => return None,
    })
}

fn of_edge(key: &str) -> Option<Kind> {
    Some(match key {
        "weight" => Kind::Integer,
        "loop_restart" => Kind::Boolean,
        "freeform" => Kind::Boolean,
        "replan" => Kind::Boolean,
        _ => return None,
    })
}

/// Every attribute that has a type has a value of it: one that could not be read would silently be the default.
pub(super) fn attribute_type(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let wrong = |attributes: &Attributes, table: fn(&str) -> Option<Kind>| -> Vec<Diagnostic> {
        let mut wrong = Vec::new();
        for attribute in attributes.iter() {
            let (key, value) = (&*attribute.key.value, &attribute.value.value);
            let Some(kind) = table(key) else { continue };
            if kind.accepts(value)
                && let Some((rule, message, fix)) = kind.tolerates(key, value)
            {
                let diagnostic = Diagnostic::new(rule, Severity::Warning, message);
                wrong.push(diagnostic.at_span(Some(attribute.value.span)).fix(fix));
            }
            if !kind.accepts(value) {
                let (text, wanted) = (value.to_string(), kind.wanted());
                let message = format!("`{key}` is {}, which is not {wanted}", shown(&text));
                let diagnostic = Diagnostic::new("attribute_type", Severity::Error, message);
                wrong.push(
                    diagnostic.at_span(Some(attribute.value.span)).fix(format!("give it {}", kind.wanted())),
                );
            }
        }
        wrong
    };
    found.extend(wrong(&view.pipeline().attributes, of_graph));
    for (_, node) in view.nodes() {
        for diagnostic in wrong(&node.attributes, of_node) {
            let span = diagnostic.span;
            found.push(diagnostic.at_node(node).at_span(Some(span)));
        }
    }
    for edge in view.pipeline().edges() {
        for diagnostic in wrong(&edge.attributes, of_edge) {
            let span = diagnostic.span;
            found.push(diagnostic.at_edge(edge).at_span(Some(span)));
        }
    }
}
