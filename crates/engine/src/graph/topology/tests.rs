//! Token runs over graphs in a seeded order. The tests compare every decision with the oracle. Module `cases` has the cases, and `properties` the
//! properties.

mod cases;
mod oracle;
mod properties;

use std::collections::BTreeMap;

use self::oracle::Oracle;
use super::*;

/// A seeded generator (SplitMix64): the same seed gives the same run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % end as u64).unwrap()
    }
}

fn ix(node: u32) -> NodeIx {
    NodeIx::new(node)
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Done,
    Deadlock,
    StepLimit,
}

/// Runs a graph: `route` returns the targets of an activation's tokens. Returns each activation with the number of joined tokens.
fn run(
    oracle: &Oracle,
    topology: &Topology,
    entry: u32,
    random: &mut Random,
    mut route: impl FnMut(u32, u32, &mut Random) -> Vec<u32>,
) -> (End, Vec<(u32, usize)>) {
    let mut live = topology.liveness();
    live.arrived(ix(entry), false);
    let mut running: Vec<u32> = Vec::new();
    let mut waiting = BTreeMap::from([(entry, vec![false])]);
    let (mut trace, mut visits) = (Vec::new(), BTreeMap::new());
    for _ in 0..200 {
        loop {
            let mut first = None;
            for (node, tokens) in live.waiting_in_order() {
                let expected = oracle.ready(node.get(), &running, &waiting);
                assert_eq!(topology.ready(node, tokens.all_back(), &live), expected, "{node:?} {live:?}");
                first = first.or(Some(node).filter(|_| expected));
            }
            assert_eq!(topology.next_ready(&live), first);
            let Some(node) = first else { break };
            let tokens = waiting.remove(&node.get()).unwrap();
            assert_eq!(live.take(node).count() as usize, tokens.len());
            live.started(node);
            running.push(node.get());
            trace.push((node.get(), tokens.len()));
        }
        if running.is_empty() {
            assert_eq!(live.is_idle(), waiting.is_empty());
            return (if waiting.is_empty() { End::Done } else { End::Deadlock }, trace);
        }
        let node = running.swap_remove(random.below(running.len()));
        live.finished(ix(node));
        let visit = visits.entry(node).and_modify(|visit| *visit += 1).or_insert(1);
        for to in route(node, *visit, random) {
            let back = topology.is_back(ix(node), ix(to));
            live.arrived(ix(to), back);
            waiting.entry(to).or_insert_with(Vec::new).push(back);
        }
    }
    (End::StepLimit, trace)
}

/// A graph with names, entered at the node named first.
struct Named {
    names: Vec<&'static str>,
    oracle: Oracle,
    topology: Topology,
}

impl Named {
    /// Reads edges written as in `a>b>c x>y`.
    fn new(text: &'static str) -> Self {
        let mut names: Vec<&str> = Vec::new();
        let mut edges = Vec::new();
        for path in text.split(' ') {
            let mut before = None;
            for name in path.split('>') {
                let at = names.iter().position(|n| *n == name).unwrap_or(names.len());
                if at == names.len() {
                    names.push(name);
                }
                let node = u32::try_from(at).unwrap();
                edges.extend(before.replace(node).map(|from| (from, node)));
            }
        }
        let oracle = Oracle::new(u32::try_from(names.len()).unwrap(), 0, &edges);
        let topology = Topology::new(names.len(), ix(0), &edges);
        Self { names, oracle, topology }
    }

    fn ix(&self, name: &str) -> NodeIx {
        NodeIx::from_usize(self.names.iter().position(|n| *n == name).unwrap())
    }

    fn order(&self) -> String {
        self.topology.order().iter().map(|node| self.names[node.as_usize()]).collect::<Vec<_>>().join(" ")
    }

    /// Checks in 300 random interleavings the number of joined tokens of each visit. `route` receives name and visit, and returns names; `None` means
    /// every edge.
    fn check(&self, route: impl Fn(&str, u32) -> Option<&'static str>, expected: &[(&str, &[usize])]) {
        for seed in 0..300 {
            let all = |node: u32, visit, _: &mut Random| match route(self.names[node as usize], visit) {
                Some(chosen) => chosen.split(' ').map(|name| self.ix(name).get()).collect(),
                None => self.oracle.successors[node as usize].clone(),
            };
            let (end, trace) = run(&self.oracle, &self.topology, 0, &mut Random(seed), all);
            assert_eq!(end, End::Done, "seed {seed}");
            for (name, counts) in expected {
                let visits = trace.iter().filter(|(node, _)| self.names[*node as usize] == *name);
                assert_eq!(visits.map(|v| v.1).collect::<Vec<_>>(), *counts, "{name}, seed {seed}");
            }
        }
    }
}
