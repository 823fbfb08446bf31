//! Random graphs: loops, routes, fan-outs, joins of every sort, and failure edges.

use proptest::prelude::*;

use crate::graph::{Graph, Join, Route};
use crate::state::Context;

/// Limits the steps of loops.
const MAX_STEPS: u64 = 60;

/// Limits the replans of a run, over all nodes.
pub(super) const MAX_REPLANS_TOTAL: u32 = 5;

/// Numbers from a seed (SplitMix64).
pub(super) struct Draw(pub(super) u64);

impl Draw {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % end as u64).unwrap()
    }

    pub(super) fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// Source, target, and whether the edge takes failures.
type Arrow = (usize, usize, bool);

/// The parts of a graph: each node's join, route and other declarations, and edges for success or failure.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    nodes: Vec<(Join, bool, Extra)>,
    edges: Vec<Arrow>,
}

/// Rare declarations of a node.
#[derive(Clone, Copy, Debug)]
enum Extra {
    Nothing,
    /// The node may be visited twice.
    MaxVisits,
    /// The node's successors wait for an answer.
    InterruptAfter,
}

/// Drafts in which the entry, node 0, reaches every node.
pub(super) fn drafts() -> impl Strategy<Value = Draft> {
    let join = prop_oneof![
        6 => Just(Join::All),
        2 => Just(Join::Any),
        2 => (1..4u32).prop_map(Join::AtLeast),
    ];
    let extra = prop_oneof![
        8 => Just(Extra::Nothing),
        1 => Just(Extra::MaxVisits),
        1 => Just(Extra::InterruptAfter),
    ];
    prop::collection::vec((join, any::<bool>(), extra), 3..=10).prop_flat_map(|nodes| {
        let count = nodes.len();
        let tree = prop::collection::vec(any::<prop::sample::Index>(), count - 1);
        let extra = prop::collection::vec((0..count, 0..count, prop::bool::weighted(0.2)), 0..=count);
        (Just(nodes), tree, extra).prop_map(|(nodes, tree, extra)| {
            let tree = tree.iter().enumerate().map(|(at, from)| (from.index(at + 1), at + 1, false));
            let mut edges: Vec<_> = tree.chain(extra).collect();
            let mut seen = std::collections::HashSet::new();
            edges.retain(|&(from, to, _)| seen.insert((from, to)));
            Draft { nodes, edges }
        })
    })
}

/// Builds the draft. If the builder rejects a join, uses the default one.
pub(super) fn build(draft: &Draft) -> Graph<Context> {
    let counted = |join| matches!(join, Join::AtLeast(_));
    let attempts: [&dyn Fn(Join) -> Join; 3] =
        [&|join| join, &|join| if counted(join) { Join::All } else { join }, &|_| Join::All];
    let mut errors = Vec::new();
    for join in attempts {
        match declare(draft, join) {
            Ok(graph) => return graph,
            Err(error) => errors.push(error),
        }
    }
    panic!("{draft:?}: {errors:#?}")
}

fn declare(draft: &Draft, join: &dyn Fn(Join) -> Join) -> Result<Graph<Context>, crate::graph::GraphError> {
    let name = |node: usize| format!("n{node}");
    let mut builder = Graph::<Context>::builder("random")
        .entry("n0")
        .max_steps(MAX_STEPS)
        .max_replans_total(MAX_REPLANS_TOTAL);
    for (node, (wanted, _, extra)) in draft.nodes.iter().enumerate() {
        builder = builder.node(name(node), async |_cx, s| Ok(s)).join(join(*wanted));
        builder = match extra {
            Extra::Nothing => builder,
            Extra::MaxVisits => builder.max_visits(2),
            Extra::InterruptAfter => builder.interrupt_after(),
        };
    }
    for (from, (_, routed, _)) in draft.nodes.iter().enumerate() {
        let own = draft.edges.iter().filter(|edge| edge.0 == from);
        let (failure, usual): (Vec<&Arrow>, Vec<&Arrow>) = own.partition(|edge| edge.2);
        let targets: Vec<String> = usual.iter().map(|edge| name(edge.1)).collect();
        // The tests choose in place of the route.
        if *routed && !targets.is_empty() {
            builder = builder.route(name(from), targets, |_s, _cx| Route::none());
        } else {
            builder = targets.into_iter().fold(builder, |builder, to| builder.edge(name(from), to));
        }
        builder =
            failure.iter().fold(builder, |builder, edge| builder.edge(name(from), name(edge.1)).on_failure());
    }
    builder.build()
}
