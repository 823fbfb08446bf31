//! Rules about variables in texts: each variable must have a value.

use crate::handler::{MANAGER, PROMPT, is_inherited_by_tools};
use crate::lint::{Diagnostic, Severity, View};
use crate::pipeline::Node;
use crate::shell::{self, ShellQuote, is_looked_up, is_of_shells, lookup_name};
use crate::suggest::beginning_for_message;
use crate::value::Value;
use crate::variable::{VariableForm, VariableRef, template_statement, variables};

/// Maximum number of findings for one text.
const SHOWN: usize = 5;

/// The context keys that the engine sets, and the prefixes of its keys, for example those with the name of a node.
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

/// Returns whether a name has a value in every run, or is a required input.
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

/// Returns whether a variable has a value. For a name with dots, a leading part of the name is enough.
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

/// Returns the text that a node gives to a task or a person, and the name of its attribute: the prompt, or the label.
fn task_text<'a>(node: &'a Node, kind: &str) -> Option<(&'static str, std::borrow::Cow<'a, str>)> {
    let prompt = || Some(("prompt", node.attributes.text("prompt"))).filter(|(_, prompt)| !prompt.is_empty());
    let label = || Some(("label", node.attributes.text("label")));
    match kind {
        "wait.human" if !node.attributes.is_own("prompt") => label(),
        "codergen" | PROMPT | "wait.human" => prompt().or_else(label),
        "parallel.fan_in" | MANAGER => prompt(),
        _ => None,
    }
}

/// Checks that no prompt has a variable without a value.
pub(super) fn unused_variables(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (at, node) in view.nodes() {
        let Some((key, text)) = task_text(node, view.handler_type(at)) else { continue };
        let mut names: Vec<&str> = Vec::new();
        for reference in variables(&text).filter(|reference| !resolves(view, reference)) {
            if names.len() == SHOWN || names.contains(&reference.name) {
                continue;
            }
            names.push(reference.name);
            let message = format!(
                "the {key} of `{}` contains `{}`, which is not expanded unless the context has `{}`",
                node.id(),
                beginning_for_message(&text[reference.start..reference.end]),
                beginning_for_message(reference.name)
            );
            let diagnostic = Diagnostic::new("unused_variables", Severity::Warning, message).at_node(node);
            let fix = match reference.name {
                "goal" => "set `goal` in the graph, or pass `--goal`".to_owned(),
                name => format!(
                    "pass `--var {name}=..`, or let a node set it; for literal text, remove the variable syntax"
                ),
            };
            found.push(diagnostic.at_span(node.attributes.span_of(key)).fix(fix));
        }
    }
}

/// Checks that no command has a variable without a known source. The shell would insert an empty text.
pub(super) fn command_variables(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (_, node) in view.nodes().filter(|(at, _)| view.handler_type(*at) == "tool") {
        let text = node.attributes.text("tool_command");
        if node.attributes.text("language").starts_with("python") {
            found.extend(variables(&text).find(|one| one.form == VariableForm::Template).map(|one| {
                let message = format!(
                    "the command of `{}` contains `{}`, which is not valid Python",
                    node.id(),
                    beginning_for_message(&text[one.start..one.end])
                );
                let fix = "read it from the environment: `os.environ[\"FERRATA_CONTEXT_name\"]`";
                let diagnostic = Diagnostic::new("unused_variables", Severity::Error, message).at_node(node);
                diagnostic.at_span(node.attributes.span_of("tool_command")).fix(fix)
            }));
            continue;
        }
        let read = shell::read(&text);
        let mut names: Vec<&str> = Vec::new();
        for one in &read.found {
            let is_template = one.variable.form == VariableForm::Template && one.quote != ShellQuote::Comment;
            let name = if is_template { one.variable.name } else { lookup_name(one) };
            let is_set = |name: &str| {
                name.starts_with("FERRATA_")
                    || is_of_shells(name)
                    || is_inherited_by_tools(name)
                    || read.may_set(name)
                    || node.attributes.get(&format!("env.{name}")).is_some()
            };
            if !(is_template || is_looked_up(one) && !is_set(name))
                || resolves(view, &one.variable)
                || names.len() == SHOWN
                || names.contains(&name)
            {
                continue;
            }
            names.push(name);
            let message = format!(
                "the command of `{}` uses `{}`, which has no value unless the run sets it",
                node.id(),
                beginning_for_message(&text[one.variable.start..one.variable.end])
            );
            let fix = match name {
                "goal" => "set `goal` in the graph, or pass `--goal`".to_owned(),
                name if name.contains(|c: char| c.is_ascii_uppercase()) => {
                    format!(
                        "pass `--env {name}` so that tools inherit it, or set `env.{name}` of the node or `--var`"
                    )
                }
                name => format!(
                    "pass `--var {name}=..`, or let a node set it; if it may be empty, write `${{{name}:-}}`"
                ),
            };
            let diagnostic = Diagnostic::new("unused_variables", Severity::Warning, message).at_node(node);
            found.push(diagnostic.at_span(node.attributes.span_of("tool_command")).fix(fix));
        }
    }
}

/// Checks that no text has statements of a template language. A model or a shell would receive them verbatim.
pub(super) fn template_statements(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (_, node) in view.nodes() {
        for key in ["prompt", "label", "tool_command"] {
            let Some(text) = node.attributes.get(key).map(Value::text) else { continue };
            let Some(statement) = template_statement(&text) else { continue };
            let message = format!(
                "the `{key}` of `{}` contains the template statement `{}`",
                node.id(),
                beginning_for_message(statement)
            );
            let diagnostic = Diagnostic::new("template_statements", Severity::Error, message).at_node(node);
            let fix = "write plain text, or use conditions of edges; templates have variables, such as `{{ goal }}`, but no statements";
            found.push(diagnostic.at_span(node.attributes.span_of(key)).fix(fix));
        }
    }
}
