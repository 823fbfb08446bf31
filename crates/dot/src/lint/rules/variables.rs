//! Rules about variables in texts: that they stand for something.

use crate::lint::{Diagnostic, Severity, View};
use crate::pipeline::Node;
use crate::suggest::shown;
use crate::value::Value;
use crate::variable::{VariableForm, VariableRef, template_statement, variables};

/// How many of one text are told.
const SHOWN: usize = 5;

/// The keys of the context that the engine sets, and what the keys begin with that it sets under names of nodes and the like.
const OF_ENGINE: [&str; 8] = [
    "outcome",
    "preferred_label",
    "failure_reason",
    "current_node",
    "last_stage",
    "last_response",
    "item",
    "item_index",
];
const PREFIXES: [&str; 7] = ["tool.", "human.", "parallel.", "stack.", "usage.", "artifact.", "item."];

/// The attributes of the graph in which other dialects list the inputs of a pipeline.
const DECLARED: [&str; 3] = ["inputs", "params", "vars"];

/// Tells whether a name stands for something in each run, or is an input that a run is refused without.
fn is_known(view: &View<'_>, name: &str) -> bool {
    let graph = &view.pipeline().attributes;
    let name = name.strip_prefix("context.").unwrap_or(name);
    let is_listed = |list: &str| {
        list.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|listed| listed == name)
    };
    name.starts_with("inputs.")
        || (name == "goal" || name == "graph.goal") && !view.pipeline().goal().trim().is_empty()
        || name.strip_prefix("graph.").is_some_and(|key| graph.get(key).is_some())
        || name.strip_prefix("response.").is_some_and(|node| view.pipeline().node(node).is_some())
        || OF_ENGINE.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || DECLARED.iter().any(|key| is_listed(&graph.text(key)))
}

/// Tells whether a variable stands for something, or the longest part of its name that may do so.
pub(super) fn resolves(view: &View<'_>, reference: &VariableRef<'_>) -> bool {
    let mut name = reference.name;
    loop {
        if is_known(view, name) {
            return true;
        }
        match name.rsplit_once('.') {
            Some((shorter, _)) if reference.form == VariableForm::Dollar => name = shorter,
            _ => return false,
        }
    }
}

/// Returns the text that a task is given, or a person asked: the prompt, or else the label.
fn task_text(node: &Node) -> (&'static str, std::borrow::Cow<'_, str>) {
    let prompt = node.attributes.text("prompt");
    if prompt.is_empty() { ("label", node.attributes.text("label")) } else { ("prompt", prompt) }
}

/// No prompt holds a variable that stands for nothing.
pub(super) fn unused_variables(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (_, node) in view.nodes() {
        let (key, text) = task_text(node);
        let mut names: Vec<&str> = Vec::new();
        for reference in variables(&text).filter(|reference| !resolves(view, reference)) {
            if names.len() == SHOWN || names.contains(&reference.name) {
                continue;
            }
            names.push(reference.name);
            let message = format!(
                "the {key} of `{}` holds `{}`, which stays as it is unless the context holds `{}`",
                node.id(),
                shown(&text[reference.start..reference.end]),
                shown(reference.name)
            );
            let diagnostic = Diagnostic::new("unused_variables", Severity::Warning, message).at_node(node);
            let fix = match reference.name {
                "goal" => "give the graph a `goal`, or the run by `--goal`".to_owned(),
                name => format!(
                    "give it to the run by `--var {name}=..`, or have a node set it; otherwise leave the sign away"
                ),
            };
            found.push(diagnostic.at_span(node.attributes.span_of(key)).fix(fix));
        }
    }
}

/// No text holds statements of a template language, which would be given to a model or a shell as they stand.
pub(super) fn template_statements(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (_, node) in view.nodes() {
        for key in ["prompt", "label", "tool_command", "script"] {
            let Some(text) = node.attributes.get(key).map(Value::text) else { continue };
            let Some(statement) = template_statement(&text) else { continue };
            let message =
                format!("the `{key}` of `{}` holds the statement `{}`", node.id(), shown(statement));
            let diagnostic = Diagnostic::new("template_statements", Severity::Error, message).at_node(node);
            let fix = "write out what it stands for, or have edges decide: there are variables, as `{{ goal }}`, and no statements";
            found.push(diagnostic.at_span(node.attributes.span_of(key)).fix(fix));
        }
    }
}
