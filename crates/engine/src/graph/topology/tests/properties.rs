//! Properties of every graph, every route and every order of completion.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Edges of a graph in which the entry reaches every node, in any order, with loops, double edges and edges to itself.
fn graphs() -> impl Strategy<Value = (u32, Vec<(u32, u32)>)> {
    (3..13_usize)
        .prop_flat_map(|nodes| {
            let tree = prop::collection::vec(any::<prop::sample::Index>(), nodes - 1);
            let extra = prop::collection::vec((0..nodes, 0..nodes), 0..2 * nodes);
            (Just(nodes), tree, extra)
        })
        .prop_flat_map(|(nodes, tree, extra)| {
            let number = |node: usize| u32::try_from(node).unwrap();
            let tree = tree.iter().enumerate().map(|(at, from)| (number(from.index(at + 1)), number(at + 1)));
            let edges: Vec<(u32, u32)> =
                tree.chain(extra.iter().map(|&(a, b)| (number(a), number(b)))).collect();
            (Just(number(nodes)), Just(edges).prop_shuffle())
        })
}

/// Checks that an order is weakly topological for these loops.
fn check_order(nodes: u32, edges: &[(u32, u32)], oracle: &Oracle, topology: &Topology) {
    let mut sorted = topology.order().to_vec();
    sorted.sort();
    assert_eq!(sorted, (0..nodes).map(ix).collect::<Vec<_>>());
    for (at, node) in (0..).zip(topology.order()) {
        assert_eq!(topology.position(*node), at);
    }
    for (head, members) in oracle.heads.iter().zip(&oracle.members) {
        let first = topology.position(ix(*head)) as usize;
        let mut stretch: Vec<u32> =
            topology.order()[first..first + members.len()].iter().map(|node| node.get()).collect();
        stretch.sort();
        assert_eq!(stretch, Vec::from_iter(members.iter().copied()));
    }
    for &(from, to) in edges {
        let forward = topology.position(ix(from)) < topology.position(ix(to));
        assert!(forward != topology.is_back(ix(from), ix(to)), "{from} -> {to}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Guarantees: JOIN-1.
    #[test]
    fn agrees_with_the_definition((nodes, edges) in graphs()) {
        let (oracle, topology) = (Oracle::new(nodes, 0, &edges), Topology::new(nodes as usize, ix(0), &edges));
        check_order(nodes, &edges, &oracle, &topology);
        let numbers = |set: &NodeSet| set.iter().map(NodeIx::get).collect::<BTreeSet<_>>();
        for node in 0..nodes {
            prop_assert_eq!(numbers(topology.reach(ix(node))), oracle.reach(node));
            for all_back in [false, true] {
                prop_assert_eq!(numbers(topology.waits_for(ix(node), all_back)), oracle.waits_for(node, all_back));
            }
            for to in 0..nodes {
                prop_assert_eq!(topology.is_back(ix(node), ix(to)), oracle.is_back(node, to));
            }
        }
    }

    /// Guarantees: JOIN-1, JOIN-2.
    #[test]
    fn decides_as_defined_and_never_deadlocks((nodes, edges) in graphs(), seed: u64, share in 4..11_usize) {
        let (oracle, topology) = (Oracle::new(nodes, 0, &edges), Topology::new(nodes as usize, ix(0), &edges));
        let some = |node: u32, _, random: &mut Random| {
            oracle.successors[node as usize].iter().copied().filter(|_| random.below(10) < share).collect()
        };
        let (end, _) = run(&oracle, &topology, 0, &mut Random(seed), some);
        prop_assert_ne!(end, End::Deadlock);
    }

    /// A failed node may send its token anywhere, without an edge.
    ///
    /// Guarantees: JOIN-2.
    #[test]
    fn tokens_from_nowhere_never_deadlock((nodes, edges) in graphs(), seed: u64) {
        let (oracle, topology) = (Oracle::new(nodes, 0, &edges), Topology::new(nodes as usize, ix(0), &edges));
        let any = |node: u32, _, random: &mut Random| {
            let mut to: Vec<u32> =
                oracle.successors[node as usize].iter().copied().filter(|_| random.below(2) > 0).collect();
            if random.below(4) == 0 {
                to.push(u32::try_from(random.below(nodes as usize)).unwrap());
            }
            to
        };
        let (end, _) = run(&oracle, &topology, 0, &mut Random(seed), any);
        prop_assert_ne!(end, End::Deadlock);
    }
}
