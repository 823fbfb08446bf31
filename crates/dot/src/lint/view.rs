//! What rules look at: a pipeline with its edges by node and its nodes' types worked out once.

use std::borrow::Cow;

use crate::handler::{MANAGER, PROMPT};
use crate::pipeline::{DEFAULT_TYPE, Edge, Node, Pipeline, SHAPES};

/// A pipeline as rules see it.
#[derive(Debug)]
pub struct View<'a> {
    pipeline: &'a Pipeline,
    types: Vec<Cow<'a, str>>,
    known: &'a [String],
    /// The built-in types that have a handler of one's own.
    own: &'a [String],
    /// By place of the node, the places of its edges.
    outgoing: Vec<Vec<usize>>,
    /// By place of the edge, the places of the nodes at its ends, if they are declared.
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

    /// Returns the nodes with their places.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, &'a Node)> {
        self.pipeline.nodes().iter().enumerate()
    }

    /// Returns the type of handler of the node at a place.
    pub fn handler_type(&self, node: usize) -> &str {
        &self.types[node]
    }

    /// Returns the type by which the table of attributes knows the node at a place; `None` if its handler is one of one's own, which may read
    /// any attribute. Those of tools and tasks do what the built-in ones do, in another way.
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

    /// Returns the types that there are handlers for.
    pub fn known_types(&self) -> &'a [String] {
        self.known
    }

    /// Returns the edges that begin at the node at a place.
    pub fn outgoing(&self, node: usize) -> impl Iterator<Item = &'a Edge> {
        self.outgoing[node].iter().map(|&at| &self.pipeline.edges()[at])
    }

    /// Returns the edges, each with the places of the nodes that it begins at and leads to; none for one that is not declared.
    pub(super) fn edges(&self) -> impl Iterator<Item = (&'a Edge, [Option<usize>; 2])> {
        self.pipeline.edges().iter().zip(self.ends.iter().copied())
    }

    /// Returns the places of the nodes where the pipeline starts: one, if it is as it should be.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// Returns the places of the nodes where the pipeline ends: one, if it is as it should be.
    pub fn exits(&self) -> &[usize] {
        &self.exits
    }

    /// Returns the places that a run can go to from the node at a place: along edges, and by a jump after a failure.
    pub(super) fn next(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let edges = self.outgoing[node].iter().filter_map(|&at| self.ends[at][1]);
        let attributes = &self.pipeline.nodes()[node].attributes;
        let named = JUMPS.iter().filter_map(|key| attributes.get(key));
        let jumps = named.filter_map(|target| self.pipeline.position(&target.text()));
        edges.chain(jumps)
    }

    /// Returns the places that the graph itself names to jump to.
    pub(super) fn graph_jumps(&self) -> impl Iterator<Item = usize> + '_ {
        let keys = JUMPS.iter().chain(&["budget_target"]);
        keys.filter_map(|key| self.pipeline.position(&self.pipeline.attributes.text(key)))
    }
}

/// The attributes that name a node to jump to.
pub(super) const JUMPS: [&str; 2] = ["retry_target", "fallback_retry_target"];
