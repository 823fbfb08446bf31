//! Plans, which are validated graphs for the engine. They use indexes instead of names, and contain no types or functions of the user.

use std::collections::{BTreeSet, HashMap};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;

use crate::graph::edge::EdgeKind;
use crate::graph::join::Join;
use crate::graph::node_set::NodeIx;
use crate::graph::policy::{Interrupt, NodeCheckpoint};
use crate::graph::retry::RetryPolicy;
use crate::graph::topology::Topology;
use crate::id::{Fingerprint, NodeName, WorkflowName};
use crate::record::effect::Effect;
use crate::record::node_data::{ByNode, EdgeTargets, Prints};
use crate::state::{Schema, Secrets};

/// The maximum number of edges for a linear search of a target.
const NEAR: usize = 4;

/// The index of an edge in its graph. Edges are numbered from 0 in the order of declaration, which is also the order of joined inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeIx(u32);

impl EdgeIx {
    /// Creates the index of the edge at a position in a list of edges.
    ///
    /// # Panics
    ///
    /// Panics if the position is too large. This cannot happen, because a graph of four billion edges does not fit into memory.
    pub(crate) fn from_usize(index: usize) -> Self {
        Self(u32::try_from(index).expect("a graph has fewer than 2^32 edges"))
    }

    /// Returns the index for use with a slice.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// A validated graph.
#[derive(Debug)]
pub struct GraphPlan {
    pub name: WorkflowName,
    pub version: String,
    pub schema: Schema,
    pub nodes: Box<[NodePlan]>,
    pub edges: Box<[EdgePlan]>,
    pub by_name: HashMap<NodeName, NodeIx>,
    pub entry: NodeIx,
    pub topology: Topology,
    /// Whether any node starts before all of its tokens have arrived.
    pub hurries: bool,
    /// The maximum number of activations of a run, or `None` for no limit.
    pub max_steps: Option<NonZeroU64>,
    /// The maximum number of deliberate returns to any node, or `None` for no limit.
    pub max_replans_total: Option<u32>,
    /// The maximum total time of a run.
    pub deadline: Option<Duration>,
    /// The maximum number of concurrent activations.
    pub concurrency: Option<NonZeroU32>,
    /// The node at which the run continues if a goal gate or a failed node has no retry target of its own.
    pub retry_target: Option<NodeIx>,
    pub fingerprint: Fingerprint,
    /// The fingerprint data of each node, shared by the runs of the graph.
    pub prints: Arc<Prints>,
    /// The effect of each node with a non-default effect.
    pub effects: Arc<ByNode<Effect>>,
    /// The edge targets of each node, as in the first record of a run.
    pub targets: Arc<EdgeTargets>,
    /// The encoded entry, for a record with the full state, of each node that has not run yet. The entries are encoded at the first use.
    pub blanks: OnceLock<Box<[Box<RawValue>]>>,
    /// The secret channels.
    pub secrets: Secrets,
    /// The goal gates.
    pub gates: Arc<BTreeSet<NodeName>>,
}

/// One node of a plan.
#[derive(Debug)]
pub struct NodePlan {
    pub name: NodeName,
    pub effect: Effect,
    pub retry: RetryPolicy,
    /// The timeout of one attempt.
    pub timeout: Option<Duration>,
    pub join: Join,
    /// The maximum number of activations of the node in a run.
    pub max_visits: Option<NonZeroU32>,
    /// The maximum number of activations of the node that run or wait concurrently.
    pub max_running: Option<NonZeroU32>,
    /// The maximum number of deliberate returns to the node in a run.
    pub max_replans: u32,
    /// Whether the node is a goal gate.
    pub goal_gate: bool,
    /// The retry targets, at which the run continues if the goal is not met, or if the node fails and no edge handles the failure. The run uses the
    /// first target that may still be visited.
    pub returns: Box<[NodeIx]>,
    /// The number of retry targets that are tried before the edges that handle a failure.
    pub returns_first: usize,
    /// The points at which the run asks for confirmation.
    pub interrupt: Interrupt,
    pub checkpoint: NodeCheckpoint,
    /// Whether activations of the node run once more (a cleanup) if the run is cancelled.
    pub cleans_up: bool,
    /// Whether a routing function chooses among the routed edges.
    pub routed: bool,
    /// The edges that leave the node, in the order of declaration.
    pub outgoing: Box<[EdgeIx]>,
    /// The edge that leaves the node, if it is the only one and always fires.
    pub sole: Option<EdgeIx>,
    pub fingerprint: Fingerprint,
}

/// One edge of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgePlan {
    pub from: NodeIx,
    pub to: NodeIx,
    pub kind: EdgeKind,
}

impl GraphPlan {
    /// Returns a node.
    pub fn node(&self, node: NodeIx) -> &NodePlan {
        &self.nodes[node.as_usize()]
    }

    /// Returns the maximum number of activations of a node that run or wait concurrently, or `None` for no limit.
    pub fn most_running(&self, node: u32) -> Option<NonZeroU32> {
        self.nodes.get(node as usize)?.max_running
    }

    /// Returns an edge.
    pub fn edge(&self, edge: EdgeIx) -> EdgePlan {
        self.edges[edge.as_usize()]
    }

    /// Finds a node by its name.
    pub fn find(&self, name: &str) -> Option<NodeIx> {
        self.by_name.get(name).copied()
    }

    /// Finds a node that is probably a target of `from`. The search is fast if few edges leave `from`, or if the target's edge is at `place` or
    /// shortly after it, as for edges that fired in order.
    pub(crate) fn find_after(&self, from: NodeIx, name: &NodeName, place: usize) -> Option<NodeIx> {
        let near = self.node(from).outgoing.iter().skip(place).take(NEAR).map(|&edge| self.edge(edge).to);
        near.into_iter().find(|&to| self.node(to).name == *name).or_else(|| self.find(name.as_str()))
    }

    /// Finds an edge by its ends and its kind. At most one exists.
    pub fn find_edge(&self, from: NodeIx, to: NodeIx, kind: EdgeKind) -> Option<EdgeIx> {
        self.outgoing(from, kind).find(|&edge| self.edge(edge).to == to)
    }

    /// Returns the edges of one kind that leave a node, in the order of declaration.
    pub fn outgoing(&self, from: NodeIx, kind: EdgeKind) -> impl Iterator<Item = EdgeIx> + '_ {
        self.node(from).outgoing.iter().copied().filter(move |&edge| self.edge(edge).kind == kind)
    }
}
