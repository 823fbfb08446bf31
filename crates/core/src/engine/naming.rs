//! The machine's numbers for nodes, and what it knows of the graph that the run is driven with.

use std::sync::Arc;

use super::frontier::Local;
use super::machine::{Machine, NodeState};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::node_set::NodeIx;
use crate::graph::prints::Prints;
use crate::id::{Fingerprint, NodeName};

impl Machine {
    /// Returns the machine's number of a node, giving it one if the log names it for the first time.
    pub(crate) fn local(&mut self, name: &NodeName) -> Local {
        if let Some(local) = self.find(name.as_str()) {
            return local;
        }
        let local = Local::try_from(self.nodes.len()).expect("a run names fewer than 2^32 nodes");
        self.strangers.push(name.clone());
        self.strange.insert(name.clone(), local);
        self.nodes.push(NodeState::default());
        local
    }

    /// Finds the machine's number of a node.
    pub(crate) fn find(&self, name: &str) -> Option<Local> {
        let planned = self.plan.as_ref().and_then(|plan| plan.find(name)).map(NodeIx::get);
        planned.or_else(|| self.strange.get(name).copied())
    }

    /// As [`find`](Self::find), for a node that most likely is a target of `from`.
    pub(super) fn find_after(&self, from: Local, name: &NodeName) -> Option<Local> {
        match (&self.plan, self.index(from)) {
            (Some(plan), Some(from)) => {
                let planned = plan.find_after(from, name).map(NodeIx::get);
                planned.or_else(|| self.strange.get(name).copied())
            }
            _ => self.find(name.as_str()),
        }
    }

    /// Returns the names of all nodes, in the order of their numbers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &NodeName> + '_ {
        let planned = self.plan.iter().flat_map(|plan| &plan.nodes).map(|node| &node.name);
        planned.chain(&self.strangers)
    }

    /// Tells whether the run was last driven with the graph of the plan.
    pub(super) fn has_graph_of_plan(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| Arc::ptr_eq(&plan.prints, &self.graph))
    }

    /// Returns what a node was like in the graph that the run was last driven with.
    pub(crate) fn print(&self, node: Local) -> Option<Fingerprint> {
        match (&self.plan, self.index(node)) {
            (Some(plan), Some(index)) if self.has_graph_of_plan() => Some(plan.node(index).fingerprint),
            _ => self.graph.get(self.name(node)).copied(),
        }
    }

    /// Returns the name of a node.
    pub(crate) fn name(&self, node: Local) -> &NodeName {
        let planned = self.plan.as_ref().map_or(&[][..], |plan| &plan.nodes);
        match planned.get(node as usize) {
            Some(node) => &node.name,
            None => &self.strangers[node as usize - planned.len()],
        }
    }

    /// Returns the graph's index of a node, if the graph has it.
    pub(crate) fn index(&self, node: Local) -> Option<NodeIx> {
        self.plan.as_ref().filter(|plan| (node as usize) < plan.nodes.len()).map(|_| NodeIx::new(node))
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

    /// Names the nodes of the frontier that the plan lacks or has in another form, each with what differs.
    pub(crate) fn misfits(&self) -> Vec<(NodeName, &'static str)> {
        let Some(plan) = &self.plan else { return Vec::new() };
        let stopped = self.stopped_at.iter().map(|((node, _), _)| *node);
        let mut frontier: Vec<Local> = self.in_flight.keys().map(|key| key.0).chain(stopped).collect();
        frontier.extend(self.tokens.keys());
        frontier.sort_unstable();
        frontier.dedup();
        let misfit = |node: Local| match self.index(node) {
            None => Some("is not in the graph any more"),
            Some(index) if Some(plan.node(index).fingerprint) != self.print(node) => {
                Some("differs in effect, join, outgoing edges or revision")
            }
            Some(_) => None,
        };
        frontier
            .into_iter()
            .filter_map(|node| misfit(node).map(|why| (self.name(node).clone(), why)))
            .collect()
    }

    /// Returns what each node of the plan is like, if the run was last driven with another.
    pub(crate) fn changed_graph(&self) -> Option<Arc<Prints>> {
        let plan = self.plan.as_ref()?;
        (self.graph != plan.prints).then(|| Arc::clone(&plan.prints))
    }

    pub(super) fn known(&self, name: &NodeName) -> Result<Local> {
        self.find(name.as_str()).ok_or_else(|| never_reached(name))
    }
}

pub(super) fn never_reached(name: &NodeName) -> Error {
    Error::new(ErrorKind::Corrupt, "the log names a node that was never reached").with_node(name)
}
