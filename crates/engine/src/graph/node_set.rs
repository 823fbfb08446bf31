//! Node indices and sets of nodes.

use std::fmt;

/// The index of a node in its graph. Nodes are numbered from 0, in the order in which they were added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIx(u32);

impl NodeIx {
    /// Creates a node index from a number.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Creates the index of the node at a position in a list of nodes.
    ///
    /// # Panics
    ///
    /// Panics if the position is too large. This cannot happen, because a graph of four billion nodes does not fit into memory.
    pub(crate) fn from_usize(index: usize) -> Self {
        Self(u32::try_from(index).expect("a graph has fewer than 2^32 nodes"))
    }

    /// Returns the index.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the index for use with a slice.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for NodeIx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A set of the nodes of one graph, with one bit per node.
///
/// Both sets of an operation must belong to the same graph. If one set is stored with fewer bits, its missing bits count as zero.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeSet {
    words: Box<[u64]>,
}

impl NodeSet {
    /// Creates an empty set for a graph of `nodes` nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { words: vec![0; nodes.div_ceil(64)].into_boxed_slice() }
    }

    /// Adds a node. Returns whether the node was missing.
    pub(crate) fn insert(&mut self, node: NodeIx) -> bool {
        let (word, bit) = Self::place(node);
        let missing = self.words[word] & bit == 0;
        self.words[word] |= bit;
        missing
    }

    /// Adds a node, or removes it.
    pub(crate) fn set(&mut self, node: NodeIx, is_in: bool) {
        let (word, bit) = Self::place(node);
        let word = &mut self.words[word];
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    /// Returns whether the node is in the set.
    pub fn contains(&self, node: NodeIx) -> bool {
        let (word, bit) = Self::place(node);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Removes every node.
    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Returns whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// Counts the nodes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns whether the sets have a common node.
    pub(crate) fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Adds every node of `other`.
    pub(crate) fn union_with(&mut self, other: &Self) {
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a |= b;
        }
    }

    /// Returns the nodes in the order of their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeIx> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| bits(at, word))
    }

    /// Returns the nodes that are in both sets, in the order of their indices.
    pub(crate) fn intersection<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = NodeIx> + 'a {
        self.words.iter().zip(&other.words).enumerate().flat_map(|(at, (a, b))| bits(at, a & b))
    }

    const fn place(node: NodeIx) -> (usize, u64) {
        (node.as_usize() / 64, 1 << (node.0 % 64))
    }
}

/// Returns the nodes whose bits are set in the word with index `at`.
fn bits(at: usize, mut word: u64) -> impl Iterator<Item = NodeIx> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(NodeIx::from_usize(at * 64 + bit))
    })
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(nodes: &[u32]) -> NodeSet {
        let mut set = NodeSet::new(200);
        for &node in nodes {
            set.insert(NodeIx::new(node));
        }
        set
    }

    fn list(nodes: impl Iterator<Item = NodeIx>) -> Vec<u32> {
        nodes.map(NodeIx::get).collect()
    }

    #[test]
    fn inserting_and_removing_tell_what_changed() {
        let mut set = NodeSet::new(65);
        assert!(set.is_empty());
        assert!(set.insert(NodeIx::new(64)));
        assert!(!set.insert(NodeIx::new(64)));
        assert!(set.contains(NodeIx::new(64)));
        set.set(NodeIx::new(64), false);
        assert!(set.is_empty());
        set.set(NodeIx::new(64), true);
        assert!(set.contains(NodeIx::new(64)));
    }

    #[test]
    fn a_set_of_no_nodes_holds_nothing() {
        let set = NodeSet::new(0);
        assert!(set.is_empty() && !set.contains(NodeIx::new(0)));
        assert_eq!(set.iter().count(), 0);
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_numbers(a in prop::collection::btree_set(0..200u32, 0..40),
                                        b in prop::collection::btree_set(0..200u32, 0..40)) {
            let (mut left, right) = (set(&Vec::from_iter(a.clone())), set(&Vec::from_iter(b.clone())));
            let both: Vec<u32> = a.intersection(&b).copied().collect();
            prop_assert_eq!(list(left.iter()), Vec::from_iter(a.clone()));
            prop_assert_eq!(left.len(), a.len());
            prop_assert_eq!(left.intersects(&right), !both.is_empty());
            prop_assert_eq!(list(left.intersection(&right)), both);
            left.union_with(&right);
            prop_assert_eq!(list(left.iter()), Vec::from_iter(a.union(&b).copied().collect::<BTreeSet<_>>()));
            left.clear();
            prop_assert!(left.is_empty());
        }
    }
}
