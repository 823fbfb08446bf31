//! The branches of parallel nodes: where each begins, where all of them meet, and which nodes are part of them.

use std::collections::{HashMap, HashSet};

use ferrata_core::{Error, ErrorKind};

use crate::pipeline::Pipeline;

/// The type of nodes that fan out, and of those where branches meet.
pub(super) const PARALLEL: &str = "parallel";
pub(super) const FAN_IN: &str = "parallel.fan_in";

/// How deep parallel nodes may nest: more is a mistake of the edges.
const MAX_DEPTH: usize = 16;

/// The branches of one parallel node.
#[derive(Debug)]
pub(super) struct Region {
    /// The parallel node, by its place.
    pub(super) fork: usize,
    /// Where its branches meet.
    pub(super) fan_in: usize,
    /// What is between the two.
    pub(super) nodes: HashSet<usize>,
}

impl Region {
    /// Tells whether a way leads from one node of the region to another without leaving it.
    fn reaches(&self, next: &[Vec<usize>], from: usize, to: usize) -> bool {
        let (mut seen, mut open) = (HashSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            if self.nodes.contains(&at) && seen.insert(at) {
                open.extend(&next[at]);
            }
        }
        false
    }
}

/// What is known of all regions.
#[derive(Debug, Default)]
pub(super) struct Regions {
    pub(super) all: Vec<Region>,
}

impl Regions {
    /// Finds the regions of a pipeline, given the type of each node and the places of the exits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] naming the parallel node whose branches do not begin, stay apart from the rest and meet as they
    /// must.
    pub(super) fn find(pipeline: &Pipeline, types: &[&str], exits: &[usize]) -> Result<Self, Error> {
        let next = steps(pipeline);
        let mut regions = Self::default();
        for fork in (0..types.len()).filter(|&at| types[at] == PARALLEL) {
            regions.all.push(region(pipeline, types, &next, fork, exits)?);
        }
        let id = |at: usize| pipeline.nodes()[at].id();
        for lone in (0..types.len()).filter(|&at| types[at] == FAN_IN) {
            if !regions.all.iter().any(|region| region.fan_in == lone) {
                return Err(wrong(id(lone), "no branches of a parallel node meet here; lead them to it"));
            }
        }
        for (from, ways) in next.iter().enumerate() {
            for region in &regions.all {
                let inside = from == region.fork || region.nodes.contains(&from);
                let enters = |to: &&usize| region.nodes.contains(*to) || **to == region.fan_in;
                if let Some(to) = ways.iter().find(enters).filter(|_| !inside) {
                    let message = format!(
                        "`{}` leads into the branches of `{}` from outside; lead it to `{}` itself",
                        id(from),
                        id(region.fork),
                        id(region.fork)
                    );
                    return Err(wrong(id(*to), &message));
                }
            }
        }
        for outer in &regions.all {
            for inner in regions.all.iter().filter(|inner| outer.nodes.contains(&inner.fork)) {
                // Branches that come to one inner fork could not be told apart where its branches meet.
                let begin = next[outer.fork].iter().filter(|&&first| outer.reaches(&next, first, inner.fork));
                if begin.count() > 1 {
                    let message = format!(
                        "it is in several branches of `{}`; give each one of its own",
                        id(outer.fork)
                    );
                    return Err(wrong(id(inner.fork), &message));
                }
            }
        }
        Ok(regions)
    }

    /// Returns the innermost region that a node is part of.
    pub(super) fn around(&self, node: usize) -> Option<&Region> {
        let around = self.all.iter().filter(|region| region.nodes.contains(&node));
        around.min_by_key(|region| region.nodes.len())
    }

    /// Returns the region whose branches meet at a node.
    pub(super) fn meeting_at(&self, node: usize) -> Option<&Region> {
        self.all.iter().find(|region| region.fan_in == node)
    }
}

/// Returns where each node leads, along edges and by jumps.
pub(super) fn steps(pipeline: &Pipeline) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); pipeline.nodes().len()];
    for edge in pipeline.edges() {
        if let (Some(from), Some(to)) = (pipeline.position(&edge.from), pipeline.position(&edge.to)) {
            next[from].push(to);
        }
    }
    for (at, node) in pipeline.nodes().iter().enumerate() {
        let jumps = ["retry_target", "fallback_retry_target"].iter();
        next[at].extend(jumps.filter_map(|key| pipeline.position(&node.attributes.text(key))));
    }
    next
}

fn region(
    pipeline: &Pipeline,
    types: &[&str],
    next: &[Vec<usize>],
    fork: usize,
    exits: &[usize],
) -> Result<Region, Error> {
    let id = |at: usize| pipeline.nodes()[at].id();
    let fail = |message: &str| Err(wrong(id(fork), message));
    let edges = pipeline.edges().iter().filter(|edge| *edge.from == *id(fork));
    let mut targets = HashSet::new();
    for edge in edges {
        if !edge.condition().is_empty() {
            return fail(&format!(
                "the edge to `{}` has a condition; each edge of a parallel node is a branch",
                edge.to
            ));
        }
        if !targets.insert(&edge.to) {
            return fail(&format!(
                "two branches begin at `{}`; let each begin at a node of its own",
                edge.to
            ));
        }
    }
    let mut depths: HashMap<usize, usize> = HashMap::new();
    let mut meets: Option<usize> = None;
    let mut open: Vec<(usize, usize)> =
        targets.iter().filter_map(|to| Some((pipeline.position(to)?, 0))).collect();
    if open.is_empty() {
        return fail("there are no branches; lead an edge to each");
    }
    if let Some((to, _)) = open.iter().find(|(to, _)| types[*to] == FAN_IN) {
        return fail(&format!("a branch leads straight to `{}`; put a node into it", id(*to)));
    }
    while let Some((at, depth)) = open.pop() {
        if at == fork || exits.contains(&at) {
            let message =
                format!("a branch leads to `{}` before the branches meet; lead it to a fan-in", id(at));
            return fail(&message);
        }
        if types[at] == FAN_IN && depth == 0 {
            if meets.is_some_and(|other| other != at) {
                return fail("the branches meet at different nodes; lead all of them to one fan-in");
            }
            meets = Some(at);
            continue;
        }
        match depths.insert(at, depth) {
            Some(before) if before == depth => continue,
            Some(_) => {
                return fail(&format!("`{}` is part of it and of another parallel node's branches", id(at)));
            }
            None => {}
        }
        let after = match types[at] {
            PARALLEL if depth == MAX_DEPTH => return fail("parallel nodes nest too deep"),
            PARALLEL => depth + 1,
            FAN_IN => depth - 1,
            _ => depth,
        };
        open.extend(next[at].iter().map(|&to| (to, after)));
    }
    match meets {
        Some(fan_in) => Ok(Region { fork, fan_in, nodes: depths.into_keys().collect() }),
        None => fail("its branches meet nowhere; lead them to a node of type `parallel.fan_in`"),
    }
}

fn wrong(node: &str, message: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("node {node}: {message}")).with_operation("dot.compile")
}
