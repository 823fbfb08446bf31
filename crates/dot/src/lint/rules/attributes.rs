//! Rules about values of attributes.

use super::near;
use super::routing::within;
use crate::lint::{Diagnostic, Severity, View};
use crate::pipeline::{Attributes, DEFAULT_TYPE};
use crate::suggest::{beginning_for_message, closest_name};
use crate::transform::Stylesheet;
use crate::value::Value;

/// The number of retries from which a warning is given, because so many retries hide a fault.
const MANY_RETRIES: i64 = 5;

/// Maximum number of findings for one text.
const SHOWN: usize = 20;

/// Checks that the stylesheet is valid.
pub(super) fn stylesheet_syntax(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let Some(attribute) = view.pipeline().attributes.find("model_stylesheet") else { return };
    let text = attribute.value.value.text();
    match Stylesheet::parse(&text) {
        Ok(stylesheet) => {
            let mut tell = |severity, at: usize, message: String, fix: String| {
                let diagnostic = Diagnostic::new("stylesheet_names", severity, message);
                found.push(diagnostic.at_span(Some(within(attribute.value.span, &text, at))).fix(fix));
            };
            for (at, alias, name) in stylesheet.aliases().iter().take(SHOWN) {
                tell(
                    Severity::Info,
                    *at,
                    format!("the property `{alias}` is read as `{name}`"),
                    format!("write `{name}`"),
                );
            }
            for (at, name) in stylesheet.unknown().iter().take(SHOWN) {
                let message =
                    format!("the property `{}` is unknown and has no effect", beginning_for_message(name));
                tell(
                    Severity::Warning,
                    *at,
                    message,
                    "remove it, or configure the backend by other means".to_owned(),
                );
            }
        }
        Err(error) => {
            let message = format!("the stylesheet is invalid: {}", error.message());
            let span = within(attribute.value.span, &text, error.offset());
            let diagnostic = Diagnostic::new("stylesheet_syntax", Severity::Error, message);
            found.push(diagnostic.at_span(Some(span)).fix(error.suggestion()));
        }
    }
}

/// Checks that every explicit type has a handler, so that an unknown type does not silently become another type.
pub(super) fn type_known(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes() {
        let explicit = node.explicit_type();
        if explicit.is_empty() || view.known_types().iter().any(|known| *known == explicit) {
            continue;
        }
        let message = format!("the type `{}` has no handler", beginning_for_message(&explicit));
        let fix = match near(found, &explicit, view.known_types().iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None if !node.attributes.is_own("shape") => {
                "remove the type, or write an existing one".to_owned()
            }
            None => format!(
                "remove the type, so that the shape makes the node a `{}`; or register a handler",
                view.handler_type(at)
            ),
        };
        let diagnostic = Diagnostic::new("type_known", Severity::Error, message).at_node(node);
        found.push(diagnostic.at_span(node.attributes.span_of("type")).fix(fix));
    }
}

/// Checks that every fidelity is one of the six.
pub(super) fn fidelity_valid(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    const MODES: [&str; 6] = ["full", "truncate", "compact", "summary:low", "summary:medium", "summary:high"];
    let check = |attributes: &Attributes, key: &str| {
        let mode = attributes.text(key);
        if mode.is_empty() || MODES.contains(&&*mode) {
            return None;
        }
        let message = format!("the fidelity `{}` does not exist", beginning_for_message(&mode));
        let fix = match closest_name(&mode, MODES) {
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

/// Checks that every node for a model has a task.
pub(super) fn prompt_on_llm_nodes(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes() {
        let silent = ["prompt", "label"].iter().all(|key| node.attributes.text(key).is_empty());
        let ends = view.starts().contains(&at) || view.exits().contains(&at);
        if silent && !ends && view.handler_type(at) == DEFAULT_TYPE {
            let message = format!("`{}` is a task for a model, but has no text for the model", node.id());
            let diagnostic = Diagnostic::new("prompt_on_llm_nodes", Severity::Warning, message).at_node(node);
            found.push(diagnostic.fix("add a `prompt`, or change the `shape`"));
        }
    }
}

/// Warns about a very high number of retries.
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
