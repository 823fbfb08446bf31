//! The nodes of a run, with their numbers, their counts, and their fingerprints in the graph that drives the run.

use std::collections::HashMap;
use std::sync::Arc;

use super::frontier::{LiveEdge, Local};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::liveness::Liveness;
use crate::graph::node_set::NodeIx;
use crate::graph::plan::GraphPlan;
use crate::id::{Fingerprint, NodeName};
use crate::record::node_data::Prints;

/// The machine's data on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// The number of activations of the node that were created.
    pub visits: u32,
    /// Whether the last ended activation succeeded.
    pub succeeded: Option<bool>,
    /// Whether the node can no longer run.
    pub skipped: bool,
    /// Whether a node with `Join::AtLeast` has run in the current round of its loop, so that further tokens of this round are dropped.
    pub spent: bool,
    /// How often the run returned to the node as a retry target.
    pub returned: u32,
    /// How often the run returned to the node by a replan.
    pub replans: u32,
    /// The number of visits of a conversation node without a message: visits that ended the conversation, and visits that had taken no message when
    /// the run was moved to other nodes.
    pub left: u32,
}

/// The nodes of a run. Nodes of the plan have the numbers of the plan. Nodes that only the log knows have the numbers after them.
#[derive(Clone, Debug)]
pub(crate) struct NodeTable {
    plan: Option<Arc<GraphPlan>>,
    /// The nodes that only the log knows, if there are any.
    strangers: Option<Box<UnknownNodes>>,
    /// The fingerprint of each node in the graph that last drove the run.
    graph: Arc<Prints>,
    states: Vec<NodeState>,
    /// Whether any node with `Join::AtLeast` has ever run. If not, such nodes need no check.
    counts: bool,
}

/// The nodes that only the log knows.
#[derive(Clone, Debug, Default)]
struct UnknownNodes {
    /// The names of the nodes, in the order of their numbers.
    names: Vec<NodeName>,
    locals: HashMap<NodeName, Local>,
}

impl NodeTable {
    pub(super) fn new(plan: Option<Arc<GraphPlan>>) -> Self {
        let states = vec![NodeState::default(); plan.as_ref().map_or(0, |plan| plan.nodes.len())];
        Self { plan, strangers: None, graph: Arc::default(), states, counts: false }
    }

    pub(super) fn plan(&self) -> Option<&Arc<GraphPlan>> {
        self.plan.as_ref()
    }

    pub(super) fn states(&self) -> &[NodeState] {
        &self.states
    }

    pub(super) fn state_mut(&mut self, node: Local) -> &mut NodeState {
        &mut self.states[node as usize]
    }

    /// Replaces the data on a node with the data of a base.
    pub(super) fn restore(&mut self, node: Local, state: NodeState) {
        self.counts |= state.spent;
        self.states[node as usize] = state;
    }

    /// Sets whether a node with `Join::AtLeast` has run in the current round of its loop.
    pub(super) fn set_spent(&mut self, node: Local, spent: bool) {
        self.counts |= spent;
        self.states[node as usize].spent = spent;
    }

    /// Returns the nodes of the plan with `Join::AtLeast` that have run in the current round of their loop.
    pub(super) fn spent(&self) -> impl Iterator<Item = NodeIx> + '_ {
        let planned = self.plan.as_ref().map_or(0, |plan| plan.nodes.len());
        let looked_at = if self.counts { planned } else { 0 };
        let spent = self.states.iter().take(looked_at).enumerate().filter(|(_, state)| state.spent);
        spent.map(|(at, _)| NodeIx::from_usize(at))
    }

    pub(super) fn states_mut(&mut self) -> impl Iterator<Item = &mut NodeState> + '_ {
        self.states.iter_mut()
    }

    /// Returns the number of a node. A new name in the log gets a new number.
    pub(super) fn local(&mut self, name: &NodeName) -> Local {
        if let Some(local) = self.find(name.as_str()) {
            return local;
        }
        let local = Local::try_from(self.states.len()).expect("a run names fewer than 2^32 nodes");
        let strangers = self.strangers.get_or_insert_default();
        strangers.names.push(name.clone());
        strangers.locals.insert(name.clone(), local);
        self.states.push(NodeState::default());
        local
    }

    pub(super) fn find(&self, name: &str) -> Option<Local> {
        let planned = self.plan.as_ref().and_then(|plan| plan.find(name)).map(NodeIx::get);
        planned.or_else(|| self.find_unplanned(name))
    }

    fn find_unplanned(&self, name: &str) -> Option<Local> {
        self.strangers.as_ref()?.locals.get(name).copied()
    }

    /// Finds a node like [`find`](Self::find). It first tries the targets of `from`, beginning with the edge at `place`, which is faster for edges
    /// that fired in order.
    pub(super) fn find_after(&self, from: Local, name: &NodeName, place: usize) -> Option<Local> {
        match (&self.plan, self.index(from)) {
            (Some(plan), Some(from)) => {
                let planned = plan.find_after(from, name, place).map(NodeIx::get);
                planned.or_else(|| self.find_unplanned(name.as_str()))
            }
            _ => self.find(name.as_str()),
        }
    }

    /// Finds a node like [`find`](Self::find), and returns an error if no earlier record has named it.
    pub(super) fn known(&self, name: &NodeName) -> Result<Local> {
        self.find(name.as_str()).ok_or_else(|| never_reached(name))
    }

    /// Returns the names of all nodes, in the order of their numbers.
    pub(super) fn names(&self) -> impl Iterator<Item = &NodeName> + '_ {
        let planned = self.plan.iter().flat_map(|plan| &plan.nodes).map(|node| &node.name);
        planned.chain(self.strangers.iter().flat_map(|strangers| &strangers.names))
    }

    pub(super) fn name(&self, node: Local) -> &NodeName {
        let planned = self.plan.as_ref().map_or(&[][..], |plan| &plan.nodes);
        match planned.get(node as usize) {
            Some(node) => &node.name,
            None => {
                let strangers =
                    self.strangers.as_ref().map_or(&[][..], |strangers| strangers.names.as_slice());
                &strangers[node as usize - planned.len()]
            }
        }
    }

    /// Returns the graph's index of a node, if the graph has it.
    pub(super) fn index(&self, node: Local) -> Option<NodeIx> {
        self.plan.as_ref().filter(|plan| (node as usize) < plan.nodes.len()).map(|_| NodeIx::new(node))
    }

    /// Returns the plan's edge between two nodes, if the plan has both.
    pub(super) fn edge_between(&self, from: Local, to: Local) -> Option<LiveEdge> {
        let (from, to) = (self.index(from)?, self.index(to)?);
        let back = self.plan.as_ref().is_some_and(|plan| plan.topology.is_back(from, to));
        Some(LiveEdge { to, back })
    }

    /// Returns the liveness of a run without live tokens, or `None` without a plan.
    pub(super) fn idle(&self) -> Option<Liveness> {
        self.plan.as_ref().map(|plan| plan.topology.liveness())
    }

    /// Returns whether the plan's graph last drove the run.
    pub(super) fn has_graph_of_plan(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| Arc::ptr_eq(&plan.prints, &self.graph))
    }

    /// Returns the fingerprint of a node in the graph that last drove the run.
    pub(super) fn print(&self, node: Local) -> Option<Fingerprint> {
        match (&self.plan, self.index(node)) {
            (Some(plan), Some(index)) if self.has_graph_of_plan() => Some(plan.node(index).fingerprint),
            _ => self.graph.get(self.name(node)).copied(),
        }
    }

    /// Records the graph that drives the run.
    pub(super) fn record_graph(&mut self, graph: &Arc<Prints>) {
        if let Some(plan) = self.plan.as_ref().filter(|plan| plan.prints == *graph) {
            self.graph = Arc::clone(&plan.prints);
            return;
        }
        for name in graph.keys() {
            self.local(name);
        }
        self.graph = Arc::clone(graph);
    }

    /// Returns the fingerprints of the plan's nodes, if another graph last drove the run.
    pub(super) fn changed_graph(&self) -> Option<Arc<Prints>> {
        let plan = self.plan.as_ref()?;
        (self.graph != plan.prints).then(|| Arc::clone(&plan.prints))
    }

    /// Returns how a node differs from the plan's node, if it does.
    pub(super) fn plan_difference(&self, node: Local) -> Option<&'static str> {
        let plan = self.plan.as_ref()?;
        match self.index(node) {
            None => Some("is no longer in the graph"),
            Some(index) if Some(plan.node(index).fingerprint) != self.print(node) => {
                Some("differs in effect, join, outgoing edges or revision")
            }
            Some(_) => None,
        }
    }
}

pub(super) fn never_reached(name: &NodeName) -> Error {
    Error::new(ErrorKind::Corrupt, "the log names a node that the run never reached").with_node(name)
}
