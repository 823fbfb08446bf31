//! The branches of parallel nodes: the first node of each branch, the node where the branches meet, and the nodes between them.

mod open;
mod routes;

use std::collections::{HashMap, HashSet};

use ferrata_core::{Error, ErrorKind};

use crate::pipeline::Pipeline;

/// The handler types of nodes that fan out, and of nodes where branches meet.
pub(super) const PARALLEL: &str = "parallel";
pub(super) const FAN_IN: &str = "parallel.fan_in";

/// Maximum nesting of parallel nodes. A deeper nesting is a mistake in the edges.
const MAX_DEPTH: usize = 16;

/// The branches of one parallel node.
#[derive(Debug)]
pub(super) struct ForkRegion {
    /// The index of the parallel node.
    pub(super) fork: usize,
    /// The index of the node where its branches meet.
    pub(super) fan_in: usize,
    /// Whether the node where the branches meet is not a fan-in and does its own work.
    pub(super) implicit: bool,
    /// The nodes of the branches: all nodes between the parallel node and the node where the branches meet.
    pub(super) nodes: HashSet<usize>,
}

impl ForkRegion {
    /// Returns whether a path connects two nodes of the region without leaving it.
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

/// All regions of a pipeline.
#[derive(Debug, Default)]
pub(super) struct ForkRegions {
    pub(super) all: Vec<ForkRegion>,
    /// The targets of each node, by edges and by jumps.
    next: Vec<Vec<usize>>,
    /// For each region, the targets of routes that leave its branches, except the node where the branches meet.
    leaves: Vec<Vec<usize>>,
}

/// The reason why the simple walk along the branches of a parallel node found no region.
enum RegionError {
    /// The parallel node itself is invalid.
    Fork(Error),
    /// The branches are not separate from the other nodes until a fan-in. The branches may meet at another node.
    Shape,
}

impl ForkRegions {
    /// Finds the regions of a pipeline. `types` has the handler type of each node. `start` and `exits` are indices of nodes.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the branches of a parallel node begin or meet in an invalid way. The error names the parallel node.
    pub(super) fn find(
        pipeline: &Pipeline,
        types: &[&str],
        start: usize,
        exits: &[usize],
    ) -> Result<Self, Error> {
        let next = with_gates(pipeline, exits);
        let mut found = Vec::new();
        let mut open = Vec::new();
        for fork in (0..types.len()).filter(|&at| types[at] == PARALLEL) {
            match region(pipeline, types, &next, fork, exits) {
                Ok(region) => found.push(region),
                Err(RegionError::Shape) => open.push(fork),
                Err(RegionError::Fork(error)) => return Err(error),
            }
        }
        let taken: HashSet<usize> = found.iter().map(|region: &ForkRegion| region.fan_in).collect();
        let graph = open::OpenRegion { pipeline, types, next: &next, start, exits, taken: &taken };
        for fork in &open {
            found.push(graph.region(*fork)?);
        }
        let mut regions = Self { all: found, next, leaves: Vec::new() };
        regions.check(pipeline, types)?;
        if !open.is_empty() {
            regions.check_apart(pipeline)?;
        }
        regions.leaves = regions.outside_targets();
        Ok(regions)
    }

    /// Rejects fan-ins without branches, paths to a fan-in from outside of its branches, and inner parallel nodes that belong to several branches.
    fn check(&self, pipeline: &Pipeline, types: &[&str]) -> Result<(), Error> {
        let id = |at: usize| pipeline.nodes()[at].id();
        for lone in (0..types.len()).filter(|&at| types[at] == FAN_IN) {
            if !self.all.iter().any(|region| region.fan_in == lone) {
                return Err(wrong(
                    id(lone),
                    "this fan-in joins no branches; lead the branches of a parallel node to it",
                ));
            }
        }
        for (from, ways) in self.next.iter().enumerate() {
            for region in self.all.iter().filter(|region| !region.implicit) {
                let inside = from == region.fork || region.nodes.contains(&from);
                if !inside && ways.contains(&region.fan_in) {
                    let message = format!(
                        "`{}` leads from outside to the node where the branches of `{}` join; lead the edge to `{}` instead",
                        id(from),
                        id(region.fork),
                        id(region.fork)
                    );
                    return Err(wrong(id(region.fan_in), &message));
                }
            }
        }
        for outer in &self.all {
            for inner in self.all.iter().filter(|inner| outer.nodes.contains(&inner.fork)) {
                // If several branches arrived at the same inner parallel node, or where its branches meet, they could not be distinguished there.
                for at in [inner.fork, inner.fan_in] {
                    let begin =
                        self.next[outer.fork].iter().filter(|&&first| outer.reaches(&self.next, first, at));
                    // An edge with one branch for each item begins several branches.
                    let several = |first: &usize| {
                        pipeline.edges().iter().any(|edge| {
                            *edge.from == *id(outer.fork)
                                && *edge.to == *id(*first)
                                && !pipeline.for_each(edge).is_empty()
                        })
                    };
                    if begin.map(|first| if several(first) { 2 } else { 1 }).sum::<usize>() > 1 {
                        let message = format!(
                            "the node is in several branches of `{}`; use a separate node in each branch",
                            id(outer.fork)
                        );
                        return Err(wrong(id(at), &message));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the innermost region around a node.
    pub(super) fn around(&self, node: usize) -> Option<&ForkRegion> {
        let around = self.all.iter().filter(|region| region.nodes.contains(&node));
        around.min_by_key(|region| region.nodes.len())
    }

    /// Returns the region whose branches meet at a node.
    pub(super) fn meeting_at(&self, node: usize) -> Option<&ForkRegion> {
        self.all.iter().find(|region| region.fan_in == node)
    }
}

/// Returns the targets of each node, including the targets of an exit whose goal gates are not met.
fn with_gates(pipeline: &Pipeline, exits: &[usize]) -> Vec<Vec<usize>> {
    let mut next = steps(pipeline);
    let gates = pipeline.nodes().iter().filter(|node| node.is_goal_gate()).map(|node| &node.attributes);
    let targets: Vec<usize> = gates
        .chain([&pipeline.attributes])
        .flat_map(|attributes| ["retry_target", "fallback_retry_target"].map(|key| attributes.text(key)))
        .filter_map(|target| pipeline.position(&target))
        .collect();
    exits.iter().for_each(|&exit| next[exit].extend(&targets));
    next
}

/// Returns the targets of each node, by edges and by jumps.
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

/// Returns the first nodes of the branches of a parallel node.
fn firsts(pipeline: &Pipeline, types: &[&str], fork: usize) -> Result<Vec<usize>, Error> {
    let id = |at: usize| pipeline.nodes()[at].id();
    let fail = |message: &str| Err(wrong(id(fork), message));
    let edges = pipeline.edges().iter().filter(|edge| *edge.from == *id(fork));
    let mut firsts = Vec::new();
    for edge in edges {
        if !edge.condition().is_empty() {
            return fail(&format!(
                "the edge to `{}` has a condition, and a parallel node follows all of its edges; remove the condition",
                edge.to
            ));
        }
        let Some(to) = pipeline.position(&edge.to) else { continue };
        if firsts.contains(&to) {
            return fail(&format!(
                "two branches start at `{}`; start each branch at a separate node",
                edge.to
            ));
        }
        if to == fork {
            return fail(
                "an edge of the fork leads back to the fork; lead the edge to the first node of the branch",
            );
        }
        firsts.push(to);
    }
    if firsts.is_empty() {
        return fail("the fork has no branches; add an edge to the first node of each branch");
    }
    if let Some(to) = firsts.iter().find(|&&to| types[to] == FAN_IN) {
        return fail(&format!(
            "a branch leads straight to `{}`; put at least one node into the branch",
            id(*to)
        ));
    }
    Ok(firsts)
}

/// Walks along the branches of a parallel node to the fan-in. Counts the parallel nodes and fan-ins on the way to find the matching one.
fn region(
    pipeline: &Pipeline,
    types: &[&str],
    next: &[Vec<usize>],
    fork: usize,
    exits: &[usize],
) -> Result<ForkRegion, RegionError> {
    let id = |at: usize| pipeline.nodes()[at].id();
    let fork_is = |message: &str| Err(RegionError::Fork(wrong(id(fork), message)));
    let mut depths: HashMap<usize, usize> = HashMap::new();
    let mut meets: Option<usize> = None;
    let firsts = firsts(pipeline, types, fork).map_err(RegionError::Fork)?;
    let mut open: Vec<(usize, usize)> = firsts.into_iter().map(|to| (to, 0)).collect();
    while let Some((at, depth)) = open.pop() {
        if at == fork || exits.contains(&at) {
            return Err(RegionError::Shape);
        }
        if types[at] == FAN_IN && depth == 0 {
            if meets.is_some_and(|other| other != at) {
                return fork_is("the branches join at different nodes; lead all of them to one fan-in");
            }
            meets = Some(at);
            continue;
        }
        match depths.insert(at, depth) {
            Some(before) if before == depth => continue,
            // The node belongs to these branches and also to branches of another parallel node.
            Some(_) => return Err(RegionError::Shape),
            None => {}
        }
        let after = match types[at] {
            PARALLEL if depth == MAX_DEPTH => return fork_is("parallel nodes nest too deep"),
            PARALLEL => depth + 1,
            FAN_IN => depth - 1,
            _ => depth,
        };
        open.extend(next[at].iter().map(|&to| (to, after)));
    }
    match meets {
        Some(fan_in) => Ok(ForkRegion { fork, fan_in, implicit: false, nodes: depths.into_keys().collect() }),
        None => Err(RegionError::Shape),
    }
}

fn wrong(node: &str, message: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("node {node}: {message}")).with_operation("dot.compile")
}
