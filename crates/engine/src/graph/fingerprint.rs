//! Fingerprints of nodes and graphs, which detect a changed definition.

use serde::Serialize;

use crate::graph::join::Join;
use crate::graph::outline::{GraphOutline, NodeOutline};
use crate::id::Fingerprint;
use crate::record::effect::Effect;

/// The input of a node's fingerprint. Fields are in the order of their names, for a canonical text.
///
/// If one of these fields changes, the fingerprint changes. The fingerprint does not depend on retries, timeout, visits, replans, checkpoints, the
/// retry target, or the order of edge declarations. It also does not depend on the code of the node. If the code changes, change the revision.
#[derive(Serialize)]
struct NodeText<'a> {
    /// Kind and target of each edge that leaves the node, sorted.
    edges: Vec<(&'static str, &'a str)>,
    effect: Effect,
    goal_gate: bool,
    join: Join,
    name: &'a str,
    revision: Option<&'a str>,
}

/// The input of a graph's fingerprint. Fields are in the order of their names.
#[derive(Serialize)]
struct GraphText<'a> {
    entry: &'a str,
    /// Name and fingerprint of each node, sorted by name.
    nodes: Vec<(&'a str, Fingerprint)>,
    schema: String,
    /// Path of each subgraph, and name and version of its graph.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    subgraphs: &'a [(String, String, String)],
    version: &'a str,
}

/// Returns the fingerprint of every node, in the order of declaration.
pub(crate) fn of_nodes(outline: &GraphOutline) -> Vec<Fingerprint> {
    let mut edges: Vec<_> =
        outline.edges.iter().map(|edge| (&*edge.from, edge.kind.as_str(), &*edge.to)).collect();
    edges.sort_unstable();
    let of_node = |node: &NodeOutline| {
        let first = edges.partition_point(|edge| edge.0 < &*node.name);
        let own = edges[first..].iter().take_while(|edge| edge.0 == node.name);
        take(&NodeText {
            edges: own.map(|&(_, kind, to)| (kind, to)).collect(),
            effect: node.effect,
            goal_gate: node.goal_gate,
            join: node.join,
            name: &node.name,
            revision: node.revision.as_deref(),
        })
    };
    outline.nodes.iter().map(of_node).collect()
}

/// Returns the fingerprint of the graph. `nodes` are the fingerprints of its nodes, in the order of declaration.
pub(crate) fn of_graph(outline: &GraphOutline, entry: &str, nodes: &[Fingerprint]) -> Fingerprint {
    let mut nodes: Vec<_> = outline.nodes.iter().map(|node| &*node.name).zip(nodes.iter().copied()).collect();
    nodes.sort_unstable();
    take(&GraphText {
        entry,
        nodes,
        schema: outline.schema.fingerprint_input(),
        subgraphs: &outline.subgraphs,
        version: &outline.version,
    })
}

fn take(text: &impl Serialize) -> Fingerprint {
    Fingerprint::of(&serde_json::to_vec(text).expect("names, numbers and lists can be written as JSON"))
}
