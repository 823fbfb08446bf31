//! An independent implementation of the join rule, written directly from its definition: recursive and slow. Tests compare against it.

use std::collections::{BTreeMap, BTreeSet};

/// A graph that finds its loops by recursion, level by level.
pub(super) struct Oracle {
    pub(super) successors: Vec<Vec<u32>>,
    edges: Vec<(u32, u32)>,
    met: BTreeMap<u32, usize>,
    /// Per node the loops around it, outermost first.
    pub(super) around: BTreeMap<u32, Vec<usize>>,
    pub(super) heads: Vec<u32>,
    pub(super) members: Vec<BTreeSet<u32>>,
}

/// The state of Tarjan's algorithm.
#[derive(Default)]
struct Search {
    number: BTreeMap<u32, usize>,
    low: BTreeMap<u32, usize>,
    open: Vec<u32>,
    parts: Vec<Vec<u32>>,
}

impl Oracle {
    pub(super) fn new(nodes: u32, entry: u32, edges: &[(u32, u32)]) -> Self {
        let mut successors = vec![Vec::new(); nodes as usize];
        for &(from, to) in edges {
            successors[from as usize].push(to);
        }
        let mut oracle = Self {
            successors,
            edges: edges.to_vec(),
            met: BTreeMap::new(),
            around: BTreeMap::new(),
            heads: Vec::new(),
            members: Vec::new(),
        };
        oracle.meet(entry);
        for part in oracle.parts(&(0..nodes).collect()) {
            oracle.place(part, &[]);
        }
        oracle
    }

    fn meet(&mut self, node: u32) {
        if self.met.contains_key(&node) {
            return;
        }
        self.met.insert(node, self.met.len());
        for next in self.successors[node as usize].clone() {
            self.meet(next);
        }
    }

    fn place(&mut self, part: Vec<u32>, path: &[usize]) {
        let first = part[0];
        if part.len() == 1 && !self.successors[first as usize].contains(&first) {
            self.around.insert(first, path.to_vec());
            return;
        }
        let head = *part.iter().min_by_key(|node| self.met.get(node).copied().unwrap_or(usize::MAX)).unwrap();
        let path = [path, &[self.heads.len()]].concat();
        self.heads.push(head);
        self.members.push(part.iter().copied().collect());
        self.around.insert(head, path.clone());
        let rest = part.into_iter().filter(|&node| node != head).collect();
        for part in self.parts(&rest) {
            self.place(part, &path);
        }
    }

    fn parts(&self, nodes: &BTreeSet<u32>) -> Vec<Vec<u32>> {
        let mut search = Search::default();
        for &node in nodes {
            if !search.number.contains_key(&node) {
                self.connect(node, nodes, &mut search);
            }
        }
        search.parts.reverse();
        search.parts
    }

    fn connect(&self, node: u32, nodes: &BTreeSet<u32>, search: &mut Search) {
        let number = search.number.len();
        search.number.insert(node, number);
        search.low.insert(node, number);
        search.open.push(node);
        for next in self.successors[node as usize].iter().filter(|next| nodes.contains(next)) {
            let low = if !search.number.contains_key(next) {
                self.connect(*next, nodes, search);
                search.low[next]
            } else if search.open.contains(next) {
                search.number[next]
            } else {
                continue;
            };
            let own = search.low[&node];
            search.low.insert(node, own.min(low));
        }
        if search.low[&node] == number {
            let at = search.open.iter().position(|&open| open == node).unwrap();
            let part = search.open.split_off(at);
            search.parts.push(part);
        }
    }

    pub(super) fn is_back(&self, from: u32, to: u32) -> bool {
        self.around[&from].iter().any(|l| self.around[&to].contains(l) && self.heads[*l] == to)
    }

    /// The nodes that `node` must wait for; `back` if all its tokens came by back edges.
    pub(super) fn waits_for(&self, node: u32, back: bool) -> BTreeSet<u32> {
        let everything: BTreeSet<u32> = (0..).take(self.successors.len()).collect();
        let around = &self.around[&node];
        let mut answer = BTreeSet::new();
        for level in 0..=around.len() {
            let smallest = level.checked_sub(1).map(|at| around[at]);
            let members = smallest.map_or(&everything, |l| &self.members[l]);
            let banned = &around[..level];
            let mut seen = BTreeSet::new();
            let mut found = vec![node];
            while let Some(to) = found.pop() {
                for &(from, _) in self.edges.iter().filter(|edge| edge.1 == to) {
                    if !members.contains(&from) || from == node || seen.contains(&from) {
                        continue;
                    }
                    let closes = |l: &&usize| self.heads[**l] == to && self.members[**l].contains(&from);
                    let closed: Vec<usize> = banned.iter().filter(closes).copied().collect();
                    let ends_our_round = to == node && back && closed.iter().all(|&l| Some(l) == smallest);
                    if !closed.is_empty() && !ends_our_round {
                        continue;
                    }
                    seen.insert(from);
                    found.push(from);
                }
            }
            let inner = around.get(level).map(|&l| &self.members[l]);
            answer.extend(seen.into_iter().filter(|u| inner.is_none_or(|inner| !inner.contains(u))));
        }
        answer
    }

    pub(super) fn reach(&self, node: u32) -> BTreeSet<u32> {
        let mut seen = BTreeSet::new();
        let mut found = vec![node];
        while let Some(from) = found.pop() {
            found.extend(self.successors[from as usize].iter().filter(|&&to| seen.insert(to)));
        }
        seen
    }

    /// Whether `node` may run; a waiting token is true if it came by a back edge.
    pub(super) fn ready(&self, node: u32, running: &[u32], waiting: &BTreeMap<u32, Vec<bool>>) -> bool {
        let waits_for = self.waits_for(node, waiting[&node].iter().all(|&back| back));
        if running.iter().any(|u| waits_for.contains(u)) {
            return false;
        }
        for (&u, tokens) in waiting {
            if u == node || !waits_for.contains(&u) {
                continue;
            }
            let heads_ours =
                (0..self.heads.len()).any(|l| self.heads[l] == u && self.members[l].contains(&node));
            if !(tokens.iter().all(|&back| back) && heads_ours) {
                return false;
            }
        }
        true
    }
}
