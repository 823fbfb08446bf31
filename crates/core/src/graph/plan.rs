//! A graph as the engine needs it: by index, without the user's types and functions.

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
use crate::record::prints::{ByNode, EdgeTargets, Prints};
use crate::state::{Schema, Secrets};

/// How many edges are looked through for a target before it is looked up.
const NEAR: usize = 4;

/// The index of an edge in its graph: dense, in the order of declaration, which is the order of joined inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EdgeIx(u32);

impl EdgeIx {
    /// Wraps a position in a list of edges.
    ///
    /// # Panics
    ///
    /// Panics if the index does not fit: no graph of four billion edges fits into memory.
    pub(crate) fn from_usize(index: usize) -> Self {
        Self(u32::try_from(index).expect("a graph has fewer than 2^32 edges"))
    }

    /// Returns the index for use with a slice.
    pub(crate) const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// A validated graph.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: WorkflowName,
    pub(crate) version: String,
    pub(crate) schema: Schema,
    pub(crate) nodes: Box<[NodePlan]>,
    pub(crate) edges: Box<[EdgePlan]>,
    pub(crate) by_name: HashMap<NodeName, NodeIx>,
    pub(crate) entry: NodeIx,
    pub(crate) topology: Topology,
    /// Whether some node starts before all of its tokens have come.
    pub(crate) hurries: bool,
    /// How many activations a run may have; no limit if `None`.
    pub(crate) max_steps: Option<NonZeroU64>,
    /// How often a run may go back to any node on purpose; no limit if `None`.
    pub(crate) max_replans_total: Option<u32>,
    /// How long a run may take in all.
    pub(crate) deadline: Option<Duration>,
    /// How many activations may be in flight at once.
    pub(crate) concurrency: Option<NonZeroU32>,
    /// Where a run goes when a goal gate or a failed node names no target of its own.
    pub(crate) retry_target: Option<NodeIx>,
    pub(crate) fingerprint: Fingerprint,
    /// What each node is like; the runs of the graph share it.
    pub(crate) prints: Arc<Prints>,
    /// What repeating each node means, where that is not the usual.
    pub(crate) effects: Arc<ByNode<Effect>>,
    /// Where the edges of each node lead, as the first record of a run holds it.
    pub(crate) targets: Arc<EdgeTargets>,
    /// How the base of a run holds each node that has not run yet, encoded when it is first needed.
    pub(crate) blanks: OnceLock<Box<[Box<RawValue>]>>,
    /// The channels whose values no view shows.
    pub(crate) secrets: Secrets,
    /// The nodes whose goal must be met for a run to end.
    pub(crate) gates: Arc<BTreeSet<NodeName>>,
}

/// One node of a plan.
#[derive(Debug)]
pub(crate) struct NodePlan {
    pub(crate) name: NodeName,
    pub(crate) effect: Effect,
    pub(crate) retry: RetryPolicy,
    /// How long one attempt may take.
    pub(crate) timeout: Option<Duration>,
    pub(crate) join: Join,
    /// How often a run may activate the node.
    pub(crate) max_visits: Option<NonZeroU32>,
    /// How many activations of the node may be at work or wait at once.
    pub(crate) max_running: Option<NonZeroU32>,
    /// How often a run may go back to the node on purpose.
    pub(crate) max_replans: u32,
    /// Whether the run may end only if the node's goal is met.
    pub(crate) goal_gate: bool,
    /// Where the run goes when the goal is not met, or the node fails and no edge takes the failure: the first that may be visited
    /// once more.
    pub(crate) returns: Box<[NodeIx]>,
    /// How many of them come before the edges that take a failure.
    pub(crate) returns_first: usize,
    /// Where a signaller must agree to go on.
    pub(crate) interrupt: Interrupt,
    pub(crate) checkpoint: NodeCheckpoint,
    /// Whether a routing function chooses among the routed edges.
    pub(crate) routed: bool,
    /// The edges that leave the node, in the order of declaration.
    pub(crate) outgoing: Box<[EdgeIx]>,
    /// The edge that leaves the node, if there is but one and it always fires.
    pub(crate) sole: Option<EdgeIx>,
    pub(crate) fingerprint: Fingerprint,
}

/// One edge of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EdgePlan {
    pub(crate) from: NodeIx,
    pub(crate) to: NodeIx,
    pub(crate) kind: EdgeKind,
}

impl Plan {
    /// Returns a node.
    pub(crate) fn node(&self, node: NodeIx) -> &NodePlan {
        &self.nodes[node.as_usize()]
    }

    /// Returns how many activations of a node may be at work or wait at once; no limit if `None`.
    pub(crate) fn most_running(&self, node: u32) -> Option<NonZeroU32> {
        self.nodes.get(node as usize)?.max_running
    }

    /// Returns an edge.
    pub(crate) fn edge(&self, edge: EdgeIx) -> EdgePlan {
        self.edges[edge.as_usize()]
    }

    /// Finds a node by its name.
    pub(crate) fn find(&self, name: &str) -> Option<NodeIx> {
        self.by_name.get(name).copied()
    }

    /// Finds a node that most likely is a target of `from`: that is seen at once where few edges leave it, and where it is the target
    /// of the edge at `place` or soon behind, as of edges that fired in order.
    pub(crate) fn find_after(&self, from: NodeIx, name: &NodeName, place: usize) -> Option<NodeIx> {
        let near = self.node(from).outgoing.iter().skip(place).take(NEAR).map(|&edge| self.edge(edge).to);
        near.into_iter().find(|&to| self.node(to).name == *name).or_else(|| self.find(name.as_str()))
    }

    /// Finds an edge by its ends and its kind; there is at most one.
    pub(crate) fn find_edge(&self, from: NodeIx, to: NodeIx, kind: EdgeKind) -> Option<EdgeIx> {
        self.outgoing(from, kind).find(|&edge| self.edge(edge).to == to)
    }

    /// Returns the edges of one kind that leave a node, in the order of declaration.
    pub(crate) fn outgoing(&self, from: NodeIx, kind: EdgeKind) -> impl Iterator<Item = EdgeIx> + '_ {
        self.node(from).outgoing.iter().copied().filter(move |&edge| self.edge(edge).kind == kind)
    }
}
