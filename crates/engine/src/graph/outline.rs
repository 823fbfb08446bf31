//! The unchecked declarations of a builder by name, without the user's types and functions.

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
pub struct GraphOutline {
    pub name: String,
    pub version: String,
    pub schema: Schema,
    pub nodes: Vec<NodeOutline>,
    /// Routed edges are at the position of their route.
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
    /// The inlined subgraphs: path, and name and version of the graph.
    pub subgraphs: Vec<(String, String, String)>,
    /// Mistakes of single calls.
    pub issues: Vec<GraphIssue>,
}

/// A node as it was declared.
#[derive(Clone, Debug, Default)]
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
    /// The number of retry targets before its `OnFailure` edges, because those edges belong to an enclosing graph.
    pub returns_first: usize,
    /// Whether its route always fires an edge: by default the one that leaves the subgraph.
    pub leads_on: bool,
    /// Whether it is part of a subgraph, with a path as its name.
    pub inner: bool,
    /// Whether it always waits: for an answer, a message, or a child.
    pub waits: bool,
    /// Whether it is a conversation: its loop to itself waits for a message each time.
    pub converses: bool,
    /// Whether its activations run once more if the run is cancelled.
    pub cleans_up: bool,
    /// The cache policy of its results.
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
    /// The builder call that declared the edge. A mistake in one call is reported once.
    pub call: usize,
}

/// A route as it was declared. Its edges are among the others.
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
