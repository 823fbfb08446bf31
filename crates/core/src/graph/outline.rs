//! The unchecked declarations of a builder by name, without the user's types and functions.

use std::time::Duration;

use crate::graph::cached::CachePolicy;
use crate::graph::edge::EdgeKind;
use crate::graph::issue::GraphIssue;
use crate::graph::join::Join;
use crate::graph::policy::{Interrupt, NodeCheckpoint};
use crate::graph::retry::RetryPolicy;
use crate::record::effect::Effect;
use crate::state::Schema;

/// A graph as it was declared.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) schema: Schema,
    pub(crate) nodes: Vec<NodeOutline>,
    /// Routed edges are at the position of their route.
    pub(crate) edges: Vec<EdgeOutline>,
    pub(crate) routes: Vec<RouteOutline>,
    /// The declared entries. A valid graph has exactly one.
    pub(crate) entries: Vec<String>,
    pub(crate) max_steps: Option<u64>,
    /// Whether a run may have any number of activations.
    pub(crate) unlimited: bool,
    pub(crate) max_replans_total: Option<u32>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) concurrency: Option<u32>,
    pub(crate) fallback: Option<String>,
    /// The inlined subgraphs: path, and name and version of the graph.
    pub(crate) subgraphs: Vec<(String, String, String)>,
    /// Mistakes of single calls.
    pub(crate) issues: Vec<GraphIssue>,
}

/// A node as it was declared.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeOutline {
    pub(crate) name: String,
    pub(crate) effect: Effect,
    pub(crate) retry: RetryPolicy,
    pub(crate) timeout: Option<Duration>,
    pub(crate) join: Join,
    pub(crate) max_visits: Option<u32>,
    pub(crate) max_running: Option<u32>,
    pub(crate) max_replans: Option<u32>,
    pub(crate) goal_gate: bool,
    /// The retry targets of the node and of its enclosing graphs, the innermost first.
    pub(crate) returns: Vec<String>,
    /// The number of retry targets before its `OnFailure` edges, because those edges belong to an enclosing graph.
    pub(crate) returns_first: usize,
    /// Whether its route always fires an edge: by default the one that leaves the subgraph.
    pub(crate) leads_on: bool,
    /// Whether it is part of a subgraph, with a path as its name.
    pub(crate) inner: bool,
    /// Whether it always waits: for an answer, a message, or a child.
    pub(crate) waits: bool,
    /// Whether it is a conversation: its loop to itself waits for a message each time.
    pub(crate) converses: bool,
    /// Whether its activations run once more if the run is cancelled.
    pub(crate) cleans_up: bool,
    /// The cache policy of its results.
    pub(crate) cached: Option<CachePolicy>,
    pub(crate) interrupt: Interrupt,
    pub(crate) checkpoint: NodeCheckpoint,
    pub(crate) revision: Option<String>,
}

/// An edge as it was declared.
#[derive(Clone, Debug)]
pub(crate) struct EdgeOutline {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) kind: EdgeKind,
    /// The builder call that declared the edge. A mistake in one call is reported once.
    pub(crate) call: usize,
}

/// A route as it was declared. Its edges are among the others.
#[derive(Clone, Debug)]
pub(crate) struct RouteOutline {
    pub(crate) from: String,
    pub(crate) targets: usize,
}

impl Outline {
    /// Creates an outline without declarations.
    pub(crate) fn new(name: String, schema: Schema) -> Self {
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
