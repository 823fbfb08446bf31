//! The weak topological order of a graph (Bourdoncle 1993): an order of its nodes with nested loops.
//!
//! A loop is a strongly connected part of the graph. Its head is the member that a search from the entry visits first. Without the head, the
//! remaining nodes of the loop split into smaller parts, which are ordered in the same way. In the order, a loop is a contiguous range that starts
//! with its head. Every edge leads forward or to the head of an enclosing loop. Nodes that no edge orders are in the declaration order of their
//! incoming edges.
//!
//! The algorithm does not recurse, because a chain of 100,000 nodes must not overflow the stack. Building takes time proportional to the number of
//! edges times the nesting depth of the loops.

use crate::graph::adjacency::Adjacency;
use crate::graph::node_set::NodeIx;

/// The index of a loop, in the order of the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoopIx(u32);

/// A loop: a range of the order that starts with its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoopRange {
    /// The position of the head, the first member.
    pub(crate) first: u32,
    /// The position of the last member.
    pub(crate) last: u32,
    /// The loop that directly encloses this loop, if there is one.
    pub(crate) parent: Option<LoopIx>,
}

/// The order of a graph's nodes and the loops in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WeakOrder {
    order: Box<[NodeIx]>,
    positions: Box<[u32]>,
    loops: Vec<LoopRange>,
    innermost: Box<[Option<LoopIx>]>,
}

impl WeakOrder {
    /// Computes the order. Unreachable nodes come after the nodes that the entry can reach, ordered by index.
    pub(crate) fn new(nodes: usize, entry: NodeIx, successors: &Adjacency) -> Self {
        Builder::new(nodes, entry, successors).build()
    }

    /// Returns the nodes in order.
    pub(crate) fn order(&self) -> &[NodeIx] {
        &self.order
    }

    /// Returns the position of a node in the order.
    pub(crate) fn position(&self, node: NodeIx) -> u32 {
        self.positions[node.as_usize()]
    }

    /// Returns the smallest loop with the node. For a head, this is the loop that it heads.
    pub(crate) fn innermost(&self, node: NodeIx) -> Option<LoopIx> {
        self.innermost[node.as_usize()]
    }

    /// Returns the loop with an index.
    pub(crate) fn loop_at(&self, index: LoopIx) -> LoopRange {
        self.loops[index.0 as usize]
    }

    /// Returns the loop that the node heads. A node heads at most one loop, because a loop without its head splits into others.
    pub(crate) fn headed_by(&self, node: NodeIx) -> Option<LoopRange> {
        self.innermost(node).map(|l| self.loop_at(l)).filter(|l| l.first == self.position(node))
    }

    /// Returns whether the node is in the loop.
    pub(crate) fn is_in(&self, node: NodeIx, within: LoopRange) -> bool {
        (within.first..=within.last).contains(&self.position(node))
    }
}

/// A range of the order that is strongly connected or a single node, still to be split.
#[derive(Clone, Copy)]
struct OrderPart {
    lo: usize,
    hi: usize,
    parent: Option<LoopIx>,
}

/// The number of an unvisited node.
const UNSEEN: u32 = u32::MAX;

struct Builder<'a> {
    successors: &'a Adjacency,
    entry: NodeIx,
    /// The visit order of a search from the entry, with children in the order of the edges.
    met: Vec<u32>,
    order: Vec<NodeIx>,
    loops: Vec<LoopRange>,
    innermost: Vec<Option<LoopIx>>,
    /// The part of each node: the number of the split that processes it.
    scope: Vec<u32>,
    splits: u32,
    /// Tarjan's numbers of the current split: the visit order of a node, and the earliest node known to be reachable from it.
    number: Vec<u32>,
    low: Vec<u32>,
    /// Tarjan's stack: visited nodes of incomplete parts.
    open: Vec<NodeIx>,
    /// The search stack: a node and the number of its unvisited children.
    path: Vec<(NodeIx, usize)>,
}

impl<'a> Builder<'a> {
    fn new(nodes: usize, entry: NodeIx, successors: &'a Adjacency) -> Self {
        Self {
            successors,
            entry,
            met: order_met(nodes, entry, successors),
            order: (0..nodes).map(NodeIx::from_usize).collect(),
            loops: Vec::new(),
            innermost: vec![None; nodes],
            scope: vec![0; nodes],
            splits: 0,
            number: vec![UNSEEN; nodes],
            low: vec![0; nodes],
            open: Vec::new(),
            path: Vec::new(),
        }
    }

    fn build(mut self) -> WeakOrder {
        let mut parts = Vec::new();
        self.split(OrderPart { lo: 0, hi: self.order.len(), parent: None }, self.entry, None, &mut parts);
        while let Some(part) = parts.pop() {
            let members = &self.order[part.lo..part.hi];
            let Some(&head) = members.iter().min_by_key(|node| self.met[node.as_usize()]) else { continue };
            if members.len() == 1 && !self.successors.of(head).contains(&head) {
                self.innermost[head.as_usize()] = part.parent;
                continue;
            }
            let index = LoopIx(NodeIx::from_usize(self.loops.len()).get());
            self.loops.push(LoopRange {
                first: NodeIx::from_usize(part.lo).get(),
                last: NodeIx::from_usize(part.hi - 1).get(),
                parent: part.parent,
            });
            let body = OrderPart { parent: Some(index), ..part };
            self.split(body, head, Some(head), &mut parts);
            // The head reaches every member and no edge leads back to it, so it is the first part, alone.
            let alone = parts.pop();
            debug_assert!(alone.is_some_and(|p| p.lo == part.lo && p.hi == part.lo + 1));
            debug_assert_eq!(self.order[part.lo], head);
            self.innermost[head.as_usize()] = Some(index);
        }
        let mut positions = vec![0; self.order.len()];
        for (position, node) in self.order.iter().enumerate() {
            positions[node.as_usize()] = NodeIx::from_usize(position).get();
        }
        WeakOrder {
            order: self.order.into(),
            positions: positions.into(),
            loops: self.loops,
            innermost: self.innermost.into(),
        }
    }

    /// Rearranges a range of the order into its strongly connected parts in topological order, ignoring edges into `without`. Pushes the parts with
    /// the first on top.
    ///
    /// This is Tarjan's algorithm. It completes parts last to first, so the range is filled from its end. Children are visited last to first, for
    /// siblings in the order of their edges.
    fn split(&mut self, part: OrderPart, root: NodeIx, without: Option<NodeIx>, parts: &mut Vec<OrderPart>) {
        self.splits += 1;
        let members = self.order[part.lo..part.hi].to_vec();
        for node in &members {
            self.scope[node.as_usize()] = self.splits;
            self.number[node.as_usize()] = UNSEEN;
        }
        let mut met = 0;
        let mut end = part.hi;
        for root in std::iter::once(root).filter(|_| !members.is_empty()).chain(members.iter().copied()) {
            if self.number[root.as_usize()] == UNSEEN {
                self.enter(root, &mut met);
            }
            while let Some((node, left)) = self.path.last_mut() {
                let node = *node;
                if *left > 0 {
                    *left -= 1;
                    let child = self.successors.of(node)[*left];
                    if self.scope[child.as_usize()] != self.splits || Some(child) == without {
                        continue;
                    }
                    match self.number[child.as_usize()] {
                        UNSEEN => self.enter(child, &mut met),
                        number => self.lower(node, number),
                    }
                    continue;
                }
                self.path.pop();
                let low = self.low[node.as_usize()];
                if let Some(&(above, _)) = self.path.last() {
                    self.lower(above, low);
                }
                if low == self.number[node.as_usize()] {
                    let hi = end;
                    while let Some(member) = self.open.pop() {
                        end -= 1;
                        self.order[end] = member;
                        // Out of scope: an edge to a complete part gives no information about this one.
                        self.scope[member.as_usize()] = 0;
                        if member == node {
                            break;
                        }
                    }
                    parts.push(OrderPart { lo: end, hi, parent: part.parent });
                }
            }
        }
    }

    fn enter(&mut self, node: NodeIx, met: &mut u32) {
        self.number[node.as_usize()] = *met;
        self.low[node.as_usize()] = *met;
        *met += 1;
        self.open.push(node);
        self.path.push((node, self.successors.of(node).len()));
    }

    fn lower(&mut self, node: NodeIx, number: u32) {
        let low = &mut self.low[node.as_usize()];
        *low = number.min(*low);
    }
}

/// Numbers the nodes in the order of a depth-first search from the entry. Unreachable nodes follow by index.
fn order_met(nodes: usize, entry: NodeIx, successors: &Adjacency) -> Vec<u32> {
    let mut met = vec![UNSEEN; nodes];
    let mut next = 0;
    let mut path: Vec<(NodeIx, usize)> = Vec::new();
    let roots = std::iter::once(entry).filter(|_| nodes > 0).chain((0..nodes).map(NodeIx::from_usize));
    for root in roots {
        let mut found = Some(root);
        loop {
            if let Some(node) = found.take().filter(|node| met[node.as_usize()] == UNSEEN) {
                met[node.as_usize()] = next;
                next += 1;
                path.push((node, 0));
            }
            let Some((node, child)) = path.last_mut() else { break };
            found = successors.of(*node).get(*child).copied();
            *child += 1;
            if found.is_none() {
                path.pop();
            }
        }
    }
    met
}
