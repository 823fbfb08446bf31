//! The input of lint rules: a pipeline, its edges by node, and the types of its nodes. The input is computed once for all rules.

use std::borrow::Cow;

use crate::handler::{MANAGER, PROMPT};
use crate::pipeline::{DEFAULT_TYPE, Edge, Node, Pipeline, SHAPES};

/// A pipeline in the form that lint rules read.
#[derive(Debug)]
pub struct View<'a> {
    pipeline: &'a Pipeline,
    types: Vec<Cow<'a, str>>,
    known: &'a [String],
    /// The built-in types whose handler was replaced by a custom one.
    own: &'a [String],
    /// For each node, the indices of the edges that begin there.
    outgoing: Vec<Vec<usize>>,
    /// For each edge, the indices of its source and target node; `None` for a node that is not declared.
    ends: Vec<[Option<usize>; 2]>,
    starts: Vec<usize>,
    exits: Vec<usize>,
}

impl<'a> View<'a> {
    pub(super) fn new(pipeline: &'a Pipeline, known: &'a [String], own: &'a [String]) -> Self {
        let place = |id: &str| pipeline.position(id);
        let ends: Vec<_> = pipeline.edges().iter().map(|edge| [place(&edge.from), place(&edge.to)]).collect();
        let mut outgoing = vec![Vec::new(); pipeline.nodes().len()];
        for (at, [from, _]) in ends.iter().enumerate() {
            if let Some(from) = from {
                outgoing[*from].push(at);
            }
        }
        let is_known = |name: &str| known.iter().any(|known| known == name);
        let types = pipeline.nodes().iter().map(|node| node.handler_type(is_known)).collect();
        let (starts, exits) = (pipeline.starts(), pipeline.exits());
        Self { pipeline, types, known, own, outgoing, ends, starts, exits }
    }

    /// Returns the pipeline.
    pub fn pipeline(&self) -> &'a Pipeline {
        self.pipeline
    }

    /// Returns the nodes, each with its index.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, &'a Node)> {
        self.pipeline.nodes().iter().enumerate()
    }

    /// Returns the handler type of the node at an index.
    pub fn handler_type(&self, node: usize) -> &str {
        &self.types[node]
    }

    /// Returns the type under which the table of attributes has the node at an index. The type is `None` for a custom handler, which may read any
    /// attribute. Custom handlers for tools and tasks are exceptions: they treat attributes like the built-in handlers.
    pub(super) fn table_type(&self, node: usize) -> Option<&str> {
        const ALWAYS: [&str; 4] = ["tool", DEFAULT_TYPE, PROMPT, MANAGER];
        let kind = match node {
            at if self.starts.contains(&at) => "start",
            at if self.exits.contains(&at) => "exit",
            at => self.handler_type(at),
        };
        let is_own = self.own.iter().any(|own| own == kind) && !ALWAYS.contains(&kind);
        (SHAPES.iter().any(|(_, known)| *known == kind) && !is_own).then_some(kind)
    }

    /// Returns the types that have handlers.
    pub fn known_types(&self) -> &'a [String] {
        self.known
    }

    /// Returns the edges that begin at the node with this index.
    pub fn outgoing(&self, node: usize) -> impl Iterator<Item = &'a Edge> {
        self.outgoing[node].iter().map(|&at| &self.pipeline.edges()[at])
    }

    /// Returns the edges, each with the indices of its source and target node; `None` for a node that is not declared.
    pub(super) fn edges(&self) -> impl Iterator<Item = (&'a Edge, [Option<usize>; 2])> {
        self.pipeline.edges().iter().zip(self.ends.iter().copied())
    }

    /// Returns the indices of the start nodes. A valid pipeline has exactly one.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// Returns the indices of the exit nodes. The dialect allows one; lint warns about more.
    pub fn exits(&self) -> &[usize] {
        &self.exits
    }

    /// Returns the indices of the nodes that may follow the node at an index, by edges and by a jump after a failure.
    pub(super) fn next(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let edges = self.outgoing[node].iter().filter_map(|&at| self.ends[at][1]);
        let attributes = &self.pipeline.nodes()[node].attributes;
        let named = JUMPS.iter().filter_map(|key| attributes.get(key));
        let jumps = named.filter_map(|target| self.pipeline.position(&target.text()));
        edges.chain(jumps)
    }

    /// Returns the indices of the jump targets that the graph itself sets.
    pub(super) fn graph_jumps(&self) -> impl Iterator<Item = usize> + '_ {
        let keys = JUMPS.iter().chain(&["budget_target"]);
        keys.filter_map(|key| self.pipeline.position(&self.pipeline.attributes.text(key)))
    }
}

/// The attributes that name jump targets.
pub(super) const JUMPS: [&str; 2] = ["retry_target", "fallback_retry_target"];
