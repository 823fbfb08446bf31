//! The outline of a graph: the unchecked declarations of a builder, without the user's types and functions. Nodes are identified by name.

use std::time::Duration;

use crate::graph::cache::CachePolicy;
use crate::graph::edge::EdgeKind;
use crate::graph::issue::GraphIssue;
use crate::graph::join::Join;
use crate::graph::policy::{Interrupt, NodeCheckpoint};
use crate::graph::retry::RetryPolicy;
use crate::record::effect::Effect;
use crate::state::Schema;

/// A graph as it was declared.
#[derive(Clone, Debug)]
// Large: the data of a graph without its functions, as a run records it.
pub struct GraphOutline {
    pub name: String,
    pub version: String,
    pub schema: Schema,
    pub nodes: Vec<NodeOutline>,
    /// The edges, in the order of declaration. The edges of a route are at the position of the route's declaration.
    pub edges: Vec<EdgeOutline>,
    pub routes: Vec<RouteOutline>,
    /// The declared entries. A valid graph has exactly one.
    pub entries: Vec<String>,
    pub max_steps: Option<u64>,
    /// Whether a run may have any number of activations.
    pub unlimited: bool,
    pub max_replans_total: Option<u32>,
    pub deadline: Option<Duration>,
    pub concurrency: Option<u32>,
    pub fallback: Option<String>,
    /// The inlined subgraphs. For each of them, the list has the path, and the name and version of its graph.
    pub subgraphs: Vec<(String, String, String)>,
    /// The mistakes that single calls of the builder found.
    pub issues: Vec<GraphIssue>,
}

/// A node as it was declared.
#[derive(Clone, Debug, Default)]
// Large: the data of a node without its function, as a graph records it.
pub struct NodeOutline {
    pub name: String,
    pub effect: Effect,
    pub retry: RetryPolicy,
    pub timeout: Option<Duration>,
    pub join: Join,
    pub max_visits: Option<u32>,
    pub max_running: Option<u32>,
    pub max_replans: Option<u32>,
    pub goal_gate: bool,
    /// The retry targets of the node and of its enclosing graphs, the innermost first.
    pub returns: Vec<String>,
    /// The number of retry targets that are tried before the `OnFailure` edges of the node. It is more than zero if these edges belong to an
    /// enclosing graph.
    pub returns_first: usize,
    /// Whether the route of the node always fires an edge. If the routing function chooses none, the edge that leaves the subgraph fires.
    pub leads_on: bool,
    /// Whether the node is part of a subgraph and has a path as its name.
    pub inner: bool,
    /// Whether each activation of the node waits for an answer, a message or a child.
    pub waits: bool,
    /// Whether the node is a conversation. Its edge to itself does not count as an endless loop, because each activation waits for a message.
    pub converses: bool,
    /// Whether activations of the node run once more (a cleanup) if the run is cancelled.
    pub cleans_up: bool,
    /// The cache policy of the node's results, if they are cached.
    pub cached: Option<CachePolicy>,
    pub interrupt: Interrupt,
    pub checkpoint: NodeCheckpoint,
    pub revision: Option<String>,
}

/// An edge as it was declared.
#[derive(Clone, Debug)]
pub struct EdgeOutline {
    pub from: String,
    pub to: String,
    pub kind: EdgeKind,
    /// The number of the builder call that declared the edge. A mistake in one call is reported once.
    pub call: usize,
}

/// A route as it was declared. Its edges are in the list of all edges.
#[derive(Clone, Debug)]
pub struct RouteOutline {
    pub from: String,
    pub targets: usize,
}

impl GraphOutline {
    /// Creates an outline without declarations.
    pub fn new(name: String, schema: Schema) -> Self {
        Self {
            name,
            version: "1".into(),
            schema,
            nodes: Vec::new(),
            edges: Vec::new(),
            routes: Vec::new(),
            entries: Vec::new(),
            max_steps: None,
            unlimited: false,
            max_replans_total: None,
            deadline: None,
            concurrency: None,
            fallback: None,
            subgraphs: Vec::new(),
            issues: Vec::new(),
        }
    }
}
