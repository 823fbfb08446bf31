//! The edges of a graph as two flat lists, which contain the successors and the predecessors of each node in the order of declaration.

use crate::graph::node_set::NodeIx;

/// The neighbors of each node in one direction, in one allocation.
#[derive(Debug)]
pub(crate) struct Adjacency {
    /// The index at which each node's list starts, with an extra entry at the end.
    starts: Box<[u32]>,
    neighbours: Box<[NodeIx]>,
}

impl Adjacency {
    /// Collects the successors of each node.
    pub(crate) fn successors(nodes: usize, edges: &[(u32, u32)]) -> Self {
        Self::collect(nodes, edges.iter().map(|&(from, to)| (from, to)))
    }

    /// Collects the predecessors of each node.
    pub(crate) fn predecessors(nodes: usize, edges: &[(u32, u32)]) -> Self {
        Self::collect(nodes, edges.iter().map(|&(from, to)| (to, from)))
    }

    /// Returns the neighbors of a node in the order of the edges.
    pub(crate) fn of(&self, node: NodeIx) -> &[NodeIx] {
        let at = node.as_usize();
        &self.neighbours[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// Sorts the pairs by their first node in linear time. The sort is stable.
    fn collect(nodes: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut starts = vec![0_u32; nodes + 1];
        for (node, _) in pairs.clone() {
            starts[node as usize + 1] += 1;
        }
        for at in 0..nodes {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut neighbours = vec![NodeIx::new(0); starts[nodes] as usize];
        for (node, neighbour) in pairs {
            let place = &mut next[node as usize];
            neighbours[*place as usize] = NodeIx::new(neighbour);
            *place += 1;
        }
        Self { starts: starts.into(), neighbours: neighbours.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_come_in_the_order_of_the_edges() {
        let edges = [(2, 1), (0, 2), (2, 0), (0, 1), (2, 2)];
        let list = |a: &Adjacency, node| a.of(NodeIx::new(node)).iter().map(|n| n.get()).collect::<Vec<_>>();
        let after = Adjacency::successors(4, &edges);
        assert_eq!([list(&after, 0), list(&after, 1), list(&after, 2)], [vec![2, 1], vec![], vec![1, 0, 2]]);
        let before = Adjacency::predecessors(4, &edges);
        assert_eq!([list(&before, 0), list(&before, 1), list(&before, 3)], [vec![2], vec![2, 0], vec![]]);
    }
}
