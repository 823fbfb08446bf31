//! Branches without a fan-in: the node where they meet, and the routes that lead out of them.

use std::collections::{HashSet, VecDeque};

use ferrata_core::Error;

use super::{FAN_IN, ForkRegion, PARALLEL, firsts, wrong};
use crate::pipeline::Pipeline;

/// How many of the nearest nodes are checked as meeting points.
const NEAREST: usize = 32;

/// A pipeline for the search of a fork's branches.
pub(super) struct OpenRegion<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) types: &'a [&'a str],
    pub(super) next: &'a [Vec<usize>],
    pub(super) start: usize,
    pub(super) exits: &'a [usize],
    /// The fan-ins of other forks.
    pub(super) taken: &'a HashSet<usize>,
}

/// A possible meeting point.
struct MeetingCandidate {
    node: usize,
    far: usize,
}

impl OpenRegion<'_> {
    /// Finds the branches of a fork with branches that end, or that have routes out of them.
    ///
    /// The branches meet at the fan-in that all of them reach, or at the nearest node that all reach. Branches that end without having met meet at
    /// the exit. A route leads out of the branch if its target is not after the fork, or if the run reaches the target from the meeting point.
    ///
    /// # Errors
    ///
    /// Returns an error if the branches lead to different exits.
    pub(super) fn region(&self, fork: usize) -> Result<ForkRegion, Error> {
        let firsts = firsts(self.pipeline, self.types, fork)?;
        let not_in = |_: usize, to: usize| to != fork && !firsts.contains(&to);
        // Nodes that the run can reach without the fork: no branch of it includes them.
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
        // A fan-in that all branches of a later fork reach belongs to that fork.
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

    /// Returns whether every path to `at` passes `node`.
    fn is_before(&self, node: usize, at: usize) -> bool {
        node != at && !self.reach(&[self.start], |from, to| from != node && to != node)[at]
    }

    /// Returns for each node whether it leads to `to` without the fork.
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

    /// Returns the nodes that a node leads to, with their distances.
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

/// Returns for each node whether a path leads to it, along the steps that `on` accepts.
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
