//! Converts a declared graph to a plan, if the graph has no mistakes.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::{Arc, OnceLock};

use crate::graph::check::{by_name, check};
use crate::graph::edge::EdgeKind;
use crate::graph::fingerprint;
use crate::graph::issue::GraphError;
use crate::graph::join::Join;
use crate::graph::node_set::NodeIx;
use crate::graph::outline::GraphOutline;
use crate::graph::plan::{EdgeIx, EdgePlan, GraphPlan, NodePlan};
use crate::graph::topology::Topology;
use crate::id::{NodeName, WorkflowName};
use crate::record::effect::Effect;
use crate::record::node_data::{ByNode, Prints};

/// The reason that a checked name is valid.
const CHECKED: &str = "every name was checked";

/// The default limit of replans to a node. A plan that has failed three times rarely succeeds at the fourth time, and each round costs as much as the
/// first.
const MAX_REPLANS: u32 = 2;

/// Checks the outline (the unchecked declarations) of a graph.
pub fn check_outline(outline: &GraphOutline) -> Result<(), GraphError> {
    let issues = check(outline);
    if issues.is_empty() { Ok(()) } else { Err(GraphError::new(&outline.name, issues)) }
}

/// Creates the plan of a declared graph. Nodes and edges stay in the order of their declaration.
pub fn lower(outline: &GraphOutline) -> Result<GraphPlan, GraphError> {
    check_outline(outline)?;
    let names = by_name(outline);
    let find = |name: &str| NodeIx::from_usize(*names.get(name).expect(CHECKED));
    let edges: Box<[EdgePlan]> = outline
        .edges
        .iter()
        .map(|edge| EdgePlan { from: find(&edge.from), to: find(&edge.to), kind: edge.kind })
        .collect();
    let mut outgoing = vec![Vec::new(); outline.nodes.len()];
    for (at, edge) in edges.iter().enumerate() {
        outgoing[edge.from.as_usize()].push(EdgeIx::from_usize(at));
    }
    let mut routed = vec![false; outline.nodes.len()];
    for route in &outline.routes {
        routed[find(&route.from).as_usize()] = true;
    }
    let fingerprints = fingerprint::of_nodes(outline);
    let entry_name = outline.entries.first().expect("an entry was checked for");
    let entry = find(entry_name);
    let graph_fingerprint = fingerprint::of_graph(outline, entry_name, &fingerprints);
    let nodes: Box<[NodePlan]> = outline
        .nodes
        .iter()
        .zip(outgoing)
        .zip(routed)
        .zip(fingerprints)
        .map(|(((node, outgoing), routed), fingerprint)| NodePlan {
            name: NodeName::new(&node.name).expect(CHECKED),
            effect: node.effect,
            retry: node.retry,
            timeout: node.timeout,
            join: node.join,
            max_visits: node.max_visits.and_then(NonZeroU32::new),
            max_running: node.max_running.and_then(NonZeroU32::new),
            max_replans: node.max_replans.unwrap_or(MAX_REPLANS),
            goal_gate: node.goal_gate,
            returns: node.returns.iter().map(|name| find(name)).collect(),
            returns_first: node.returns_first,
            interrupt: node.interrupt,
            checkpoint: node.checkpoint,
            cleans_up: node.cleans_up,
            routed,
            sole: match *outgoing {
                [edge] if edges[edge.as_usize()].kind == EdgeKind::Plain => Some(edge),
                _ => None,
            },
            outgoing: outgoing.into(),
            fingerprint,
        })
        .collect();
    let prints = nodes.iter().map(|node| (node.name.clone(), node.fingerprint)).collect();
    let unusual = nodes.iter().filter(|node| node.effect != Effect::default());
    let effects = unusual.map(|node| (node.name.clone(), node.effect)).collect();
    // Sorted by name, for the same record whatever the declaration order.
    let mut targets: BTreeMap<NodeName, BTreeSet<NodeName>> = BTreeMap::new();
    for edge in &edges {
        let of = targets.entry(nodes[edge.from.as_usize()].name.clone()).or_default();
        of.insert(nodes[edge.to.as_usize()].name.clone());
    }
    let gates = nodes.iter().filter(|node| node.goal_gate).map(|node| node.name.clone()).collect();
    let pairs: Vec<(u32, u32)> = edges.iter().map(|edge| (edge.from.get(), edge.to.get())).collect();
    let topology = Topology::new(nodes.len(), entry, &pairs);
    Ok(GraphPlan {
        name: WorkflowName::new(&outline.name).expect(CHECKED),
        version: outline.version.clone(),
        schema: outline.schema.clone(),
        by_name: nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (node.name.clone(), NodeIx::from_usize(at)))
            .collect(),
        max_steps: max_steps(outline, &topology, &edges),
        topology,
        hurries: nodes.iter().any(|node| node.join != Join::All),
        nodes,
        edges,
        entry,
        max_replans_total: outline.max_replans_total,
        deadline: outline.deadline,
        concurrency: outline.concurrency.and_then(NonZeroU32::new),
        retry_target: outline.fallback.as_deref().map(find),
        fingerprint: graph_fingerprint,
        prints: Arc::new(Prints::of_graph(prints)),
        effects: Arc::new(ByNode::of_graph(effects)),
        targets: Arc::new(ByNode::of_graph(targets)),
        secrets: outline.schema.secrets(),
        gates: Arc::new(gates),
        blanks: OnceLock::new(),
    })
}

/// The default limit of activations of a graph with a loop. It exceeds most finite loops, and stops an endless loop before it fills a store.
const MAX_STEPS: NonZeroU64 = NonZeroU64::new(10_000).expect("it is not zero");

/// Returns the limit of activations. Only a graph with a loop has a default limit, because only a loop can continue forever. Retry targets have
/// limits of their own, and a conversation continues only while it receives messages.
fn max_steps(outline: &GraphOutline, topology: &Topology, edges: &[EdgePlan]) -> Option<NonZeroU64> {
    match outline.max_steps {
        _ if outline.unlimited => None,
        Some(most) => NonZeroU64::new(most),
        None => {
            let talks =
                |edge: &EdgePlan| edge.from == edge.to && outline.nodes[edge.from.as_usize()].converses;
            let loops = |edge: &EdgePlan| topology.is_back(edge.from, edge.to) && !talks(edge);
            edges.iter().any(loops).then_some(MAX_STEPS)
        }
    }
}
