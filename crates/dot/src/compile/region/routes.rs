//! Routes that leave or enter a branch. Such routes lead through the node where the branches meet, or through the parallel node.

use std::collections::HashSet;

use ferrata_core::Error;

use super::{ForkRegion, ForkRegions, wrong};
use crate::pipeline::Pipeline;

impl ForkRegions {
    /// Rejects branches of two parallel nodes that overlap only partly.
    pub(super) fn check_apart(&self, pipeline: &Pipeline) -> Result<(), Error> {
        let id = |at: usize| pipeline.nodes()[at].id();
        for (at, one) in self.all.iter().enumerate() {
            for other in &self.all[at + 1..] {
                if one.fan_in == other.fan_in {
                    let message = format!(
                        "the branches of `{}` and of `{}` join here; use a separate fan-in for each fork",
                        id(one.fork),
                        id(other.fork)
                    );
                    return Err(wrong(id(one.fan_in), &message));
                }
                let holds = |outer: &ForkRegion, inner: &ForkRegion| {
                    [inner.fork, inner.fan_in].iter().all(|at| outer.nodes.contains(at))
                        && inner.nodes.is_subset(&outer.nodes)
                };
                let touch = |outer: &ForkRegion, inner: &ForkRegion| {
                    [inner.fork].iter().chain(&inner.nodes).any(|at| outer.nodes.contains(at))
                };
                let (touching, nested) =
                    (touch(one, other) || touch(other, one), holds(one, other) || holds(other, one));
                if touching && !nested {
                    let message = format!(
                        "the branches of this fork and of `{}` overlap, but neither fork contains the other; use a separate fan-in for each fork",
                        id(one.fork)
                    );
                    return Err(wrong(id(other.fork), &message));
                }
            }
        }
        Ok(())
    }

    /// Returns for each region the targets outside of its branches. Targets of inner branches count for the inner and for the outer region.
    pub(super) fn outside_targets(&self) -> Vec<Vec<usize>> {
        let mut ways = vec![Vec::new(); self.all.len()];
        let mut inner_first: Vec<usize> = (0..self.all.len()).collect();
        inner_first.sort_by_key(|&at| self.all[at].nodes.len());
        for at in inner_first {
            let region = &self.all[at];
            let inner = self.all.iter().zip(&ways).filter(|(inner, _)| region.nodes.contains(&inner.fan_in));
            let of_inner = inner.flat_map(|(_, ways)| ways.iter());
            let own = region.nodes.iter().flat_map(|&node| &self.next[node]);
            let out: HashSet<usize> = own
                .chain(of_inner)
                .copied()
                .filter(|to| !region.nodes.contains(to) && *to != region.fan_in)
                .collect();
            ways[at] = out.into_iter().collect();
            ways[at].sort_unstable();
        }
        ways
    }

    /// Returns the targets of a node where branches meet, other than the targets of its own edges.
    pub(in crate::compile) fn meeting_targets(&self, node: usize) -> &[usize] {
        let at = self.all.iter().position(|region| region.fan_in == node);
        at.map_or(&[], |at| &self.leaves[at])
    }

    /// Returns every route from one node to another, without repetitions.
    pub(in crate::compile) fn list_routes(&self) -> impl Iterator<Item = (usize, usize)> {
        self.next.iter().enumerate().flat_map(|(from, ways)| {
            let new = |at: &usize| !ways[..*at].contains(&ways[*at]);
            (0..ways.len()).filter(new).map(move |at| (from, ways[at]))
        })
    }

    /// Returns whether a route from a node leaves its branch.
    pub(in crate::compile) fn is_way_out(&self, from: usize, to: usize) -> bool {
        self.around(from).is_some_and(|region| !region.nodes.contains(&to) && region.fan_in != to)
    }

    /// Returns the parallel node through which a route enters a branch from outside.
    pub(in crate::compile) fn entered_fork(&self, from: usize, to: usize) -> Option<usize> {
        let crosses = |region: &&ForkRegion| {
            region.nodes.contains(&to) && !region.nodes.contains(&from) && region.fork != from
        };
        let entered = self.all.iter().filter(crosses);
        entered.max_by_key(|region| region.nodes.len()).map(|region| region.fork)
    }

    /// Returns the first node that a parallel node begins for a run whose target `to` is in one of its branches. This first node is the target, or
    /// the inner parallel node around it.
    pub(in crate::compile) fn first_towards(&self, fork: usize, to: usize) -> Option<usize> {
        let region = self.all.iter().find(|region| region.fork == fork)?;
        if !region.nodes.contains(&to) {
            return None;
        }
        let inner =
            self.all.iter().filter(|inner| region.nodes.contains(&inner.fork) && inner.nodes.contains(&to));
        Some(inner.max_by_key(|inner| inner.nodes.len()).map_or(to, |inner| inner.fork))
    }
}
