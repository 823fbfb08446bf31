//! Branches without a fan-in: finds the node where they meet.

use std::collections::{HashSet, VecDeque};

use ferrata_core::Error;

use super::{FAN_IN, ForkRegion, PARALLEL, firsts, wrong};
use crate::pipeline::Pipeline;

/// Maximum number of the nearest nodes that are checked as meeting points.
const NEAREST: usize = 32;

/// The data of a pipeline for the search of a parallel node's branches.
pub(super) struct OpenRegion<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) types: &'a [&'a str],
    pub(super) next: &'a [Vec<usize>],
    pub(super) start: usize,
    pub(super) exits: &'a [usize],
    /// The fan-ins that belong to other parallel nodes.
    pub(super) taken: &'a HashSet<usize>,
}

/// A possible meeting point.
struct MeetingCandidate {
    node: usize,
    far: usize,
}

impl OpenRegion<'_> {
    /// Finds the region of a parallel node whose branches may end before they meet, or have routes that leave them.
    ///
    /// The branches meet at the fan-in that all of them reach, or else at the nearest node that all of them reach. Branches that end without meeting
    /// count as meeting at the exit. A route leaves its branch if its target does not come after the parallel node, or if the run reaches the target
    /// from the meeting point.
    ///
    /// # Errors
    ///
    /// Returns an error if the branches lead to different exits.
    pub(super) fn region(&self, fork: usize) -> Result<ForkRegion, Error> {
        let firsts = firsts(self.pipeline, self.types, fork)?;
        let not_in = |_: usize, to: usize| to != fork && !firsts.contains(&to);
        // Nodes that the run can reach without the parallel node. They belong to none of its branches.
        let outside = self.reach(&[self.start], |from, to| from != fork && not_in(from, to));
        let within = |from: usize| !outside[from] && !self.exits.contains(&from);
        let fan_in = self.meeting(fork, &firsts, &outside)?;
        let after = self.reach(&[fan_in], |from, to| from != fork && not_in(from, to));
        let leads_there = self.leads_to(fan_in, fork);
        let is_in = |at: usize| {
            at != fork
                && at != fan_in
                && within(at)
                && (firsts.contains(&at) || !after[at] || leads_there[at])
        };
        let reached = self.reach(&firsts, |from, to| is_in(from) && is_in(to));
        let nodes = (0..self.next.len()).filter(|&at| reached[at] && is_in(at)).collect();
        Ok(ForkRegion { fork, fan_in, implicit: self.types[fan_in] != FAN_IN, nodes })
    }

    /// Finds the node where the branches meet.
    fn meeting(&self, fork: usize, firsts: &[usize], outside: &[bool]) -> Result<usize, Error> {
        let on = |from: usize, to: usize| {
            to != fork && (!outside[from] || firsts.contains(&from)) && !self.exits.contains(&from)
        };
        let (mut far, mut by) = (vec![0; self.next.len()], vec![0; self.next.len()]);
        for &first in firsts {
            for (node, distance) in self.distances(first, on) {
                far[node] = far[node].max(distance);
                by[node] += 1;
            }
        }
        let common = (0..self.next.len()).filter(|&at| by[at] == firsts.len() && !firsts.contains(&at));
        let mut candidates: Vec<MeetingCandidate> =
            common.map(|node| MeetingCandidate { node, far: far[node] }).collect();
        candidates.sort_by_key(|candidate| (candidate.far, candidate.node));
        let forks: Vec<usize> = candidates
            .iter()
            .map(|candidate| candidate.node)
            .filter(|&node| self.types[node] == PARALLEL)
            .collect();
        // If all branches of a later parallel node reach a fan-in, the fan-in belongs to that parallel node.
        let is_ours = |at: usize| {
            self.types[at] == FAN_IN
                && !self.taken.contains(&at)
                && !forks.iter().any(|&other| self.is_before(other, at))
        };
        if let Some(fan_in) = candidates.iter().find(|candidate| is_ours(candidate.node)) {
            return Ok(fan_in.node);
        }
        let passed = |at: usize| {
            let around = self.reach(firsts, |from, to| on(from, to) && from != at && to != at);
            !self.exits.iter().any(|&exit| around[exit])
        };
        let plain = candidates
            .iter()
            .filter(|candidate| self.types[candidate.node] != FAN_IN)
            .filter(|candidate| !outside[candidate.node] || !self.is_before(candidate.node, fork))
            .take(NEAREST)
            .min_by_key(|candidate| {
                (outside[candidate.node], !passed(candidate.node), candidate.far, candidate.node)
            });
        if let Some(plain) = plain {
            return Ok(plain.node);
        }
        let ends = self.reach(firsts, on);
        let mut led_to = self.exits.iter().filter(|&&exit| ends[exit]);
        match (led_to.next(), led_to.next(), self.exits) {
            (Some(exit), None, _) | (None, None, [exit, ..]) => Ok(*exit),
            _ => Err(wrong(
                self.pipeline.nodes()[fork].id(),
                "the branches lead to different exits; lead all of them to one exit",
            )),
        }
    }

    /// Returns whether every path to `at` leads through `node`.
    fn is_before(&self, node: usize, at: usize) -> bool {
        node != at && !self.reach(&[self.start], |from, to| from != node && to != node)[at]
    }

    /// Returns for each node whether it leads to `to` without passing the parallel node.
    fn leads_to(&self, to: usize, fork: usize) -> Vec<bool> {
        let mut before = vec![Vec::new(); self.next.len()];
        for (from, ways) in self.next.iter().enumerate().filter(|(from, _)| *from != fork) {
            ways.iter().filter(|&&way| way != fork).for_each(|&way| before[way].push(from));
        }
        reach(&before, &[to], |_, _| true)
    }

    fn reach(&self, from: &[usize], on: impl Fn(usize, usize) -> bool) -> Vec<bool> {
        reach(self.next, from, on)
    }

    /// Returns the nodes to which a node leads, with their distances.
    fn distances(&self, from: usize, on: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
        let mut seen = HashSet::from([from]);
        let mut open = VecDeque::from([(from, 0)]);
        let mut found = Vec::new();
        while let Some((at, far)) = open.pop_front() {
            found.push((at, far));
            for &to in self.next[at].iter().filter(|&&to| on(at, to)) {
                if seen.insert(to) {
                    open.push_back((to, far + 1));
                }
            }
        }
        found
    }
}

/// Returns for each node whether a path from one of `from` leads to it. A path uses only the steps that `on` accepts.
fn reach(next: &[Vec<usize>], from: &[usize], on: impl Fn(usize, usize) -> bool) -> Vec<bool> {
    let mut seen = vec![false; next.len()];
    from.iter().for_each(|&at| seen[at] = true);
    let mut open = from.to_vec();
    while let Some(at) = open.pop() {
        for &to in &next[at] {
            if !seen[to] && on(at, to) {
                seen[to] = true;
                open.push(to);
            }
        }
    }
    seen
}
