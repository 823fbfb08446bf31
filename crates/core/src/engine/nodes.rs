//! The nodes of a run: their numbers, what happened to each, and what each was like in the graph that the run is driven with.

use std::collections::HashMap;
use std::sync::Arc;

use super::frontier::{LiveEdge, Local};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::liveness::Liveness;
use crate::graph::node_set::NodeIx;
use crate::graph::plan::Plan;
use crate::id::{Fingerprint, NodeName};
use crate::record::prints::Prints;

/// What the machine knows of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeState {
    /// How many activations were made.
    pub(crate) visits: u32,
    /// How the last one that ended did.
    pub(crate) succeeded: Option<bool>,
    /// Whether it will never run.
    pub(crate) skipped: bool,
    /// Whether it ran with as many tokens as it counts, and its round goes on.
    pub(crate) spent: bool,
    /// How often the run returned to it as a retry target.
    pub(crate) returned: u32,
    /// How often the run went back to it on purpose.
    pub(crate) replans: u32,
    /// How many of its visits ended a conversation without a message, or had taken none when the run was moved elsewhere.
    pub(crate) left: u32,
}

/// The nodes of a run. Those of the plan have its numbers; nodes that only the log knows are numbered after them.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    plan: Option<Arc<Plan>>,
    /// The nodes that only the log knows; absent if there is none.
    strangers: Option<Box<UnknownNodes>>,
    /// What each node was like in the graph that the run was last driven with.
    graph: Arc<Prints>,
    states: Vec<NodeState>,
    /// Whether any was ever spent: otherwise none has a round that goes on, however many they are.
    counts: bool,
}

/// The nodes that only the log knows.
#[derive(Clone, Debug, Default)]
struct UnknownNodes {
    /// In the order of their numbers.
    names: Vec<NodeName>,
    locals: HashMap<NodeName, Local>,
}

impl Nodes {
    pub(super) fn new(plan: Option<Arc<Plan>>) -> Self {
        let states = vec![NodeState::default(); plan.as_ref().map_or(0, |plan| plan.nodes.len())];
        Self { plan, strangers: None, graph: Arc::default(), states, counts: false }
    }

    pub(super) fn plan(&self) -> Option<&Arc<Plan>> {
        self.plan.as_ref()
    }

    pub(super) fn states(&self) -> &[NodeState] {
        &self.states
    }

    pub(super) fn state_mut(&mut self, node: Local) -> &mut NodeState {
        &mut self.states[node as usize]
    }

    /// Puts what a base says of a node in the place of what is known of it.
    pub(super) fn restore(&mut self, node: Local, state: NodeState) {
        self.counts |= state.spent;
        self.states[node as usize] = state;
    }

    /// Says whether a node ran with as many tokens as it counts, and its round goes on.
    pub(super) fn set_spent(&mut self, node: Local, spent: bool) {
        self.counts |= spent;
        self.states[node as usize].spent = spent;
    }

    /// Returns the nodes of the plan that ran with as many tokens as they count and whose round goes on.
    pub(super) fn spent(&self) -> impl Iterator<Item = NodeIx> + '_ {
        let planned = self.plan.as_ref().map_or(0, |plan| plan.nodes.len());
        let looked_at = if self.counts { planned } else { 0 };
        let spent = self.states.iter().take(looked_at).enumerate().filter(|(_, state)| state.spent);
        spent.map(|(at, _)| NodeIx::from_usize(at))
    }

    pub(super) fn states_mut(&mut self) -> impl Iterator<Item = &mut NodeState> + '_ {
        self.states.iter_mut()
    }

    /// Returns the number of a node, giving it one if the log names it for the first time.
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
        planned.or_else(|| self.stranger(name))
    }

    fn stranger(&self, name: &str) -> Option<Local> {
        self.strangers.as_ref()?.locals.get(name).copied()
    }

    /// As [`find`](Self::find), for a node that most likely is a target of `from`, by the edge at `place` or soon behind.
    pub(super) fn find_after(&self, from: Local, name: &NodeName, place: usize) -> Option<Local> {
        match (&self.plan, self.index(from)) {
            (Some(plan), Some(from)) => {
                let planned = plan.find_after(from, name, place).map(NodeIx::get);
                planned.or_else(|| self.stranger(name.as_str()))
            }
            _ => self.find(name.as_str()),
        }
    }

    /// As [`find`](Self::find), for a node that the log must have named before.
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
    pub(super) fn way(&self, from: Local, to: Local) -> Option<LiveEdge> {
        let (from, to) = (self.index(from)?, self.index(to)?);
        let back = self.plan.as_ref().is_some_and(|plan| plan.topology.is_back(from, to));
        Some(LiveEdge { to, back })
    }

    /// Returns the liveness of a run in which nothing is live; `None` without a plan.
    pub(super) fn idle(&self) -> Option<Liveness> {
        self.plan.as_ref().map(|plan| plan.topology.liveness())
    }

    /// Tells whether the run was last driven with the graph of the plan.
    pub(super) fn has_graph_of_plan(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| Arc::ptr_eq(&plan.prints, &self.graph))
    }

    /// Returns what a node was like in the graph that the run was last driven with.
    pub(super) fn print(&self, node: Local) -> Option<Fingerprint> {
        match (&self.plan, self.index(node)) {
            (Some(plan), Some(index)) if self.has_graph_of_plan() => Some(plan.node(index).fingerprint),
            _ => self.graph.get(self.name(node)).copied(),
        }
    }

    /// Notes what the graph is like that the run is driven with.
    pub(super) fn note_graph(&mut self, graph: &Arc<Prints>) {
        if let Some(plan) = self.plan.as_ref().filter(|plan| plan.prints == *graph) {
            self.graph = Arc::clone(&plan.prints);
            return;
        }
        for name in graph.keys() {
            self.local(name);
        }
        self.graph = Arc::clone(graph);
    }

    /// Returns what each node of the plan is like, if the run was last driven with another graph.
    pub(super) fn changed_graph(&self) -> Option<Arc<Prints>> {
        let plan = self.plan.as_ref()?;
        (self.graph != plan.prints).then(|| Arc::clone(&plan.prints))
    }

    /// Tells how a node differs from the node of the plan, if it does.
    pub(super) fn misfit(&self, node: Local) -> Option<&'static str> {
        let plan = self.plan.as_ref()?;
        match self.index(node) {
            None => Some("is not in the graph any more"),
            Some(index) if Some(plan.node(index).fingerprint) != self.print(node) => {
                Some("differs in effect, join, outgoing edges or revision")
            }
            Some(_) => None,
        }
    }
}

pub(super) fn never_reached(name: &NodeName) -> Error {
    Error::new(ErrorKind::Corrupt, "the log names a node that was never reached").with_node(name)
}
