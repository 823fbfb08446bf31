//! Checks a declared graph for nodes that no edge can reach, and for joins that can never succeed.

use std::collections::HashSet;

use crate::graph::adjacency::Adjacency;
use crate::graph::edge::EdgeKind;
use crate::graph::issue::GraphIssue;
use crate::graph::join::Join;
use crate::graph::node_set::{NodeIx, NodeSet};
use crate::graph::outline::GraphOutline;
use crate::graph::weak_order::WeakOrder;

/// Adds mistakes such as unreachable nodes to `issues`.
///
/// An end of an edge is `None` if its name is unknown and no similar name exists. `jumps` are the retry targets and the fallback, whose source is
/// `None`.
pub(crate) fn check(
    outline: &GraphOutline,
    entry: Option<usize>,
    edges: &[(Option<usize>, Option<usize>)],
    jumps: &[(Option<usize>, usize)],
    issues: &mut Vec<GraphIssue>,
) {
    let nodes = outline.nodes.len();
    let pair = |from, to| (NodeIx::from_usize(from).get(), NodeIx::from_usize(to).get());
    let known: Vec<(u32, u32)> = edges.iter().filter_map(|&(from, to)| Some(pair(from?, to?))).collect();
    if let Some(entry) = entry {
        let paths = known.iter().copied().chain(jumps.iter().filter_map(|&(from, to)| Some(pair(from?, to))));
        let after = Adjacency::successors(nodes, &paths.collect::<Vec<_>>());
        // Targets of a misnamed node are not at fault.
        let roots = edges.iter().filter(|edge| edge.0.is_none()).filter_map(|edge| edge.1);
        let roots =
            roots.chain(jumps.iter().filter(|jump| jump.0.is_none()).map(|jump| jump.1)).chain([entry]);
        let reached = closure(nodes, roots.map(NodeIx::from_usize), &after);
        let mut seen = HashSet::new();
        for (at, node) in outline.nodes.iter().enumerate() {
            // A duplicate name is a separate mistake, and edges lead to the first node.
            if seen.insert(&node.name) && !reached.contains(NodeIx::from_usize(at)) {
                let message = format!(
                    "cannot be reached from the entry `{}`; add an edge that leads to it, or remove it",
                    outline.nodes[entry].name
                );
                issues.push(GraphIssue::node(&node.name, message));
            }
        }
    }
    // An edge with an unknown end may lead anywhere, so the number of tokens is uncertain.
    let counted = |join| matches!(join, Join::AtLeast(_));
    if known.len() == edges.len() && outline.nodes.iter().any(|node| counted(node.join)) {
        check_counts(outline, entry, &known, jumps, issues);
    }
}

/// Finds nodes that wait for more tokens than can ever arrive.
fn check_counts(
    outline: &GraphOutline,
    entry: Option<usize>,
    edges: &[(u32, u32)],
    jumps: &[(Option<usize>, usize)],
    issues: &mut Vec<GraphIssue>,
) {
    let nodes = outline.nodes.len();
    let (before, after) = (Adjacency::predecessors(nodes, edges), Adjacency::successors(nodes, edges));
    let order = WeakOrder::new(nodes, NodeIx::from_usize(entry.unwrap_or(0)), &after);
    // Nodes that may run or receive a token more than once.
    let mut repeats = NodeSet::new(nodes);
    for (at, node) in outline.nodes.iter().enumerate() {
        let at = NodeIx::from_usize(at);
        if node.join == Join::Any || order.innermost(at).is_some() {
            repeats.insert(at);
        }
    }
    for (edge, ends) in outline.edges.iter().zip(edges) {
        if edge.kind == EdgeKind::Routed {
            repeats.insert(NodeIx::new(ends.1));
        }
    }
    for jump in jumps {
        repeats.insert(NodeIx::from_usize(jump.1));
    }
    for (at, node) in outline.nodes.iter().enumerate() {
        let Join::AtLeast(wanted) = node.join else { continue };
        if entry.is_some() && order.headed_by(NodeIx::from_usize(at)).is_some() {
            // It would run during its round, and a late token would look like one of the next round.
            let message = format!(
                "joins at least {}, but is the head of a loop, where rounds would mix; join the branches in another node that leads to it",
                tokens(wanted as usize)
            );
            issues.push(GraphIssue::node(&node.name, message));
            continue;
        }
        if closure(nodes, [NodeIx::from_usize(at)].into_iter(), &before).intersects(&repeats) {
            continue;
        }
        // Each edge fires at most once, and the start of the run sends one token to the entry.
        let most = before.of(NodeIx::from_usize(at)).len() + usize::from(entry == Some(at));
        if most > 0 && most < wanted as usize {
            let (wanted, can_come) = (tokens(wanted as usize), tokens(most));
            let message =
                format!("joins at least {wanted}, but can receive only {can_come}; use at most {most}");
            issues.push(GraphIssue::node(&node.name, message));
        }
    }
}

fn tokens(count: usize) -> String {
    if count == 1 { "1 token".into() } else { format!("{count} tokens") }
}

/// Returns `from` and all its transitive neighbors in the direction of `next`.
fn closure(nodes: usize, from: impl Iterator<Item = NodeIx>, next: &Adjacency) -> NodeSet {
    let mut set = NodeSet::new(nodes);
    let mut found: Vec<NodeIx> = from.filter(|&node| set.insert(node)).collect();
    while let Some(node) = found.pop() {
        found.extend(next.of(node).iter().filter(|&&node| set.insert(node)));
    }
    set
}
