//! The topology of a graph: its loops, which nodes can reach which, and the join rule.
//!
//! **The join rule.** A node that has tokens (edges to it have fired) waits for every branch that can still reach it in the current round of their
//! common loop. Precisely, `v` waits for a live `u` if a path leads from `u` to `v` that does not pass through `v`, and that takes no back edge of
//! the smallest loop with both or of an enclosing loop. Two additions apply. A head with tokens from back edges only also waits along the back edges
//! into it, because it waits for its round to end. Such tokens belong to the next round, so nodes inside that loop do not wait for them.
//!
//! **Invariant:** the first waiting node in the order waits for no other waiting node. For this rule, a node that has only tokens from back edges
//! counts at the position of the end of its loop. So the nodes cannot wait for each other in a circle, whatever tokens exist.

use std::sync::{Arc, OnceLock};

use crate::graph::adjacency::Adjacency;
use crate::graph::liveness::Liveness;
use crate::graph::node_set::{NodeIx, NodeSet};
use crate::graph::weak_order::{LoopRange, WeakOrder};

/// The shape of a graph.
///
/// Sets of nodes are computed at their first use. A run without parallel branches needs no such set.
#[derive(Debug)]
pub struct Topology {
    successors: Adjacency,
    predecessors: Adjacency,
    order: Arc<WeakOrder>,
    /// For each node, the nodes for which it waits if at least one of its tokens belongs to the current round.
    forward: Box<[OnceLock<NodeSet>]>,
    /// For each head of a loop, the nodes for which it waits if all its tokens arrived on back edges.
    returning: Box<[OnceLock<NodeSet>]>,
    reach: Box<[OnceLock<NodeSet>]>,
}

impl Topology {
    /// Computes the order of a graph of `nodes` nodes. Edges between the same nodes may repeat.
    ///
    /// # Panics
    ///
    /// Panics if the entry or an edge has an unknown node.
    pub(crate) fn new(nodes: usize, entry: NodeIx, edges: &[(u32, u32)]) -> Self {
        let successors = Adjacency::successors(nodes, edges);
        let order = Arc::new(WeakOrder::new(nodes, entry, &successors));
        let lazy = || (0..nodes).map(|_| OnceLock::new()).collect();
        Self {
            predecessors: Adjacency::predecessors(nodes, edges),
            successors,
            order,
            forward: lazy(),
            returning: lazy(),
            reach: lazy(),
        }
    }

    /// Returns the number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.order().len()
    }

    /// Returns a liveness without live nodes.
    pub(crate) fn liveness(&self) -> Liveness {
        Liveness::new(Arc::clone(&self.order))
    }

    /// Returns the nodes in weak topological order.
    pub(crate) fn order(&self) -> &[NodeIx] {
        self.order.order()
    }

    /// Returns the position of a node in the weak topological order.
    pub fn position(&self, node: NodeIx) -> u32 {
        self.order.position(node)
    }

    /// Returns whether an edge between these nodes leads from inside a loop to its head.
    pub fn is_back(&self, from: NodeIx, to: NodeIx) -> bool {
        self.heads_loop_with(to, from)
    }

    /// Returns whether `head` is the head of a loop with `member`, which may be the head itself.
    pub(crate) fn heads_loop_with(&self, head: NodeIx, member: NodeIx) -> bool {
        self.order.headed_by(head).is_some_and(|within| self.order.is_in(member, within))
    }

    /// Returns every node that the node can reach. The node itself is included only if it is on a cycle.
    pub fn reach(&self, node: NodeIx) -> &NodeSet {
        self.reach[node.as_usize()].get_or_init(|| {
            let mut set = NodeSet::new(self.nodes());
            let mut found = vec![node];
            while let Some(node) = found.pop() {
                found.extend(self.successors.of(node).iter().filter(|&&next| set.insert(next)));
            }
            set
        })
    }

    /// Returns the nodes for which `node` waits while they are live. Pass `all_back` if all its tokens arrived on back edges.
    ///
    /// The set never includes the node itself. See the [module](self) for the rule. The rule has one exception, which depends on the tokens of the
    /// other node. [`Topology::ready`] applies this exception.
    pub fn waits_for(&self, node: NodeIx, all_back: bool) -> &NodeSet {
        match self.order.headed_by(node).filter(|_| all_back) {
            None => self.forward[node.as_usize()].get_or_init(|| self.before(node)),
            Some(round) => self.returning[node.as_usize()].get_or_init(|| {
                // Every member of a loop reaches its head, so the round ends when all members end.
                let mut set = self.waits_for(node, false).clone();
                for &member in &self.order()[round.first as usize + 1..=round.last as usize] {
                    set.insert(member);
                }
                set
            }),
        }
    }

    /// Returns whether a node with tokens may run. Pass `all_back` if all its tokens arrived on back edges.
    pub(crate) fn ready(&self, node: NodeIx, all_back: bool, live: &Liveness) -> bool {
        // A node waits only for nodes before it, or in the loop that it heads. A run without branches always returns at this point.
        let position = self.position(node);
        let last = match self.order.headed_by(node).filter(|_| all_back) {
            Some(round) => round.last,
            None => position,
        };
        if !live.any_up_to(last, position) {
            return true;
        }
        let waits_for = self.waits_for(node, all_back);
        !waits_for.intersects(live.blocking())
            && waits_for.intersection(live.returning()).all(|head| self.heads_loop_with(head, node))
    }

    /// Returns the first node in weak topological order that has tokens and may run.
    pub(crate) fn next_ready(&self, live: &Liveness) -> Option<NodeIx> {
        live.waiting_in_order()
            .find(|&(node, tokens)| self.ready(node, tokens.all_back(), live))
            .map(|(node, _)| node)
    }

    /// Collects the nodes that lead to `node` in the current round of the smallest loop holding both.
    ///
    /// One search backwards, from the innermost loop around the node outwards. At each level, every node found inside the level's loop belongs to the
    /// answer. The search stops at the loop's head, because every edge into it from inside is a back edge. The next level starts from all members of
    /// the loop, which can each reach the node.
    fn before(&self, node: NodeIx) -> NodeSet {
        let mut answer = NodeSet::new(self.nodes());
        let mut seen = NodeSet::new(self.nodes());
        seen.insert(node);
        let mut level = self.order.innermost(node);
        // Already visited, but outside of the loop of the current level.
        let mut outside = Vec::new();
        // A range of the order that is fully searched.
        let position = self.position(node);
        let mut done = LoopRange { first: position, last: position, parent: None };
        let mut found = Vec::new();
        if self.order.headed_by(node).is_none() {
            found.push(node);
        }
        loop {
            let within = level.map(|index| self.order.loop_at(index));
            let inside = |node: NodeIx| within.is_none_or(|within| self.order.is_in(node, within));
            let is_head = |node: NodeIx| within.is_some_and(|within| within.first == self.position(node));
            outside.retain(|&candidate| {
                let keep = !inside(candidate);
                if !keep && seen.insert(candidate) {
                    answer.insert(candidate);
                    if !is_head(candidate) {
                        found.push(candidate);
                    }
                }
                keep
            });
            while let Some(next) = found.pop() {
                for &before in self.predecessors.of(next) {
                    if !inside(before) {
                        outside.push(before);
                    } else if seen.insert(before) {
                        answer.insert(before);
                        if !is_head(before) {
                            found.push(before);
                        }
                    }
                }
            }
            let Some(within) = within else { return answer };
            let order = self.order();
            let rest = (within.first..done.first).chain(done.last + 1..=within.last);
            for member in rest.map(|at| order[at as usize]) {
                // The nodes in the answer are already searched, except the head.
                if seen.insert(member) || is_head(member) {
                    outside.extend(self.predecessors.of(member).iter().filter(|&&before| !inside(before)));
                }
            }
            if within.first == position {
                // The node heads this loop, so it is not searched yet.
                outside.extend(self.predecessors.of(node).iter().filter(|&&before| !inside(before)));
            }
            done = within;
            level = within.parent;
        }
    }
}

#[cfg(test)]
mod tests;
