//! Rules about nodes and edges: the start, the exit, and which nodes can be reached.

use super::near;
use crate::lint::{Diagnostic, Severity, View};

/// Checks that there is exactly one start node.
pub(super) fn start_node(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    exactly_one(view, view.starts(), "start_node", "start", "Mdiamond", found);
}

/// Checks that there is an exit. The dialect allows one.
pub(super) fn terminal_node(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    exactly_one(view, view.exits(), "terminal_node", "exit", "Msquare", found);
}

fn exactly_one(
    view: &View<'_>,
    nodes: &[usize],
    rule: &'static str,
    what: &str,
    shape: &str,
    found: &mut Vec<Diagnostic>,
) {
    let Some((first, others)) = nodes.split_first() else {
        let message = format!("the pipeline has no {what} node");
        let fix = format!("add one: `{what} [shape={shape}]`");
        found.push(Diagnostic::new(rule, Severity::Error, message).fix(fix));
        return;
    };
    // Several exits are only a warning, because a run can end at any of them. It can begin at only one start node.
    let severity = if what == "exit" { Severity::Warning } else { Severity::Error };
    let first = view.pipeline().nodes()[*first].id();
    for other in others {
        let node = &view.pipeline().nodes()[*other];
        let message = format!("`{}` is a second {what} node, after `{first}`", node.id());
        let fix = format!("keep one of them with `shape={shape}`");
        found.push(Diagnostic::new(rule, severity, message).at_node(node).fix(fix));
    }
}

/// Checks that every node can be reached from the start. Without a single start this is unknown, and `start_node` has reported it.
pub(super) fn reachability(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let [start] = view.starts() else { return };
    let mut reached = vec![false; view.pipeline().nodes().len()];
    let mut open = vec![*start];
    open.extend(view.graph_jumps());
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            open.extend(view.next(node));
        }
    }
    for (at, node) in view.nodes().filter(|(at, _)| !reached[*at]) {
        let _ = at;
        let message = format!("`{}` cannot be reached from the start", node.id());
        let fix = "add an edge to the node, or remove the node";
        found.push(Diagnostic::new("reachability", Severity::Error, message).at_node(node).fix(fix));
    }
}

/// Checks that every edge begins and ends at a declared node.
pub(super) fn edge_target_exists(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (edge, ends) in view.edges() {
        for (id, verb, end) in [(&edge.from, "begins at", ends[0]), (&edge.to, "leads to", ends[1])] {
            if end.is_some() {
                continue;
            }
            let message = format!("the edge {verb} `{id}`, which is not declared");
            let mut fix = format!("declare it: `{id} [label=\"..\"]`");
            let names = view.pipeline().nodes().iter().map(|node| node.id());
            if let Some(near) = near(found, id, names) {
                fix = format!("did you mean `{near}`? Otherwise {fix}");
            }
            found
                .push(Diagnostic::new("edge_target_exists", Severity::Error, message).at_edge(edge).fix(fix));
        }
    }
}

/// Checks that no edge leads to the start.
pub(super) fn start_no_incoming(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    let start = |end: Option<usize>| end.is_some_and(|at| view.starts().contains(&at));
    for (edge, _) in view.edges().filter(|(_, ends)| start(ends[1])) {
        let message = format!("an edge leads to the start node `{}`", edge.to);
        let fix = "lead the edge to the first working node";
        found.push(Diagnostic::new("start_no_incoming", Severity::Error, message).at_edge(edge).fix(fix));
    }
}

/// Checks that no edge begins at the exit.
pub(super) fn exit_no_outgoing(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for edge in view.exits().iter().flat_map(|at| view.outgoing(*at)) {
        let message = format!("an edge leaves the exit node `{}`, where the run ends", edge.from);
        let fix = "start the edge at the node before the exit";
        found.push(Diagnostic::new("exit_no_outgoing", Severity::Error, message).at_edge(edge).fix(fix));
    }
}

/// Checks that every node leads to the exit. Otherwise a run may end without a check of its goal gates.
pub(super) fn exit_reachable(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    if view.exits().is_empty() {
        return;
    }
    let mut before = vec![Vec::new(); view.pipeline().nodes().len()];
    for (at, _) in view.nodes() {
        view.next(at).for_each(|next| before[next].push(at));
    }
    let mut leads = vec![false; before.len()];
    let mut open = view.exits().to_vec();
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut leads[node], true) {
            open.extend(&before[node]);
        }
    }
    for (_, node) in view.nodes().filter(|(at, _)| !leads[*at]) {
        let message = format!("no path leads from `{}` to the exit", node.id());
        let fix = "add a path to the exit: a run that ends elsewhere does not check goal gates";
        found.push(Diagnostic::new("exit_reachable", Severity::Warning, message).at_node(node).fix(fix));
    }
}

/// Checks that every node is declared only once.
pub(super) fn unique_names(view: &View<'_>, found: &mut Vec<Diagnostic>) {
    for (_, node) in view.nodes() {
        if let [_, second, ..] = node.declarations() {
            let message = format!("`{}` is declared {} times", node.id(), node.declarations().len());
            let fix = "declare it once, or rename one: later declarations override earlier ones";
            let found_here = Diagnostic::new("unique_names", Severity::Warning, message).at_node(node);
            found.push(found_here.at_span(Some(*second)).fix(fix));
        }
    }
}
