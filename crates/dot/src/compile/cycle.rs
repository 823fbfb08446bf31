//! Finds the nodes in loops. If a run visits such a node too often without a wait, the run fails, unless the pipeline sets its own limit.

use super::region::steps;
use crate::pipeline::{Node, Pipeline};

/// Default limit for visits of a node in a loop. The limit is far above any intended number, and low enough to limit the cost of an endless loop of
/// paid tasks.
const VISITS: u32 = 100;

/// Returns the visit limit of a node in a loop; `None` if the pipeline sets its own limit.
pub(super) fn visits(pipeline: &Pipeline, node: &Node) -> Option<u32> {
    let said = node.attributes.get("max_visits").or_else(|| pipeline.attributes.get("max_node_visits"));
    said.is_none().then_some(VISITS)
}

/// Returns for each node whether it is in a loop. The search is Tarjan's algorithm with an explicit stack, because a chain may be as long as the
/// file.
pub(super) fn in_loops(pipeline: &Pipeline) -> Vec<bool> {
    const NEW: usize = usize::MAX;
    let mut next = steps(pipeline);
    // An exit with a missed goal may jump to a retry target of the goal's node or of the graph. Such a jump can close a loop.
    for exit in pipeline.exits() {
        let named = |attributes: &crate::pipeline::Attributes| {
            ["retry_target", "fallback_retry_target"].map(|key| attributes.text(key).into_owned())
        };
        let gates = pipeline.nodes().iter().filter(|node| node.is_goal_gate()).map(|node| &node.attributes);
        let targets = gates.chain([&pipeline.attributes]).flat_map(named);
        next[exit].extend(targets.filter_map(|target| pipeline.position(&target)));
    }
    let (mut number, mut low) = (vec![NEW; next.len()], vec![NEW; next.len()]);
    let (mut on_stack, mut stack, mut count) = (vec![false; next.len()], Vec::new(), 0);
    let mut in_loop = vec![false; next.len()];
    for root in 0..next.len() {
        if number[root] != NEW {
            continue;
        }
        let mut open = vec![(root, 0)];
        while let Some((node, at)) = open.pop() {
            if at == 0 {
                (number[node], low[node]) = (count, count);
                count += 1;
                stack.push(node);
                on_stack[node] = true;
            } else {
                low[node] = low[node].min(low[next[node][at - 1]]);
            }
            let mut at = at;
            let mut deeper = None;
            while let Some(&to) = next[node].get(at) {
                at += 1;
                if number[to] == NEW {
                    deeper = Some(to);
                    break;
                }
                if on_stack[to] {
                    low[node] = low[node].min(number[to]);
                }
            }
            if let Some(to) = deeper {
                open.push((node, at));
                open.push((to, 0));
                continue;
            }
            if low[node] == number[node] {
                let from = stack.iter().rposition(|&other| other == node).unwrap_or(0);
                let members = stack.split_off(from);
                let round = members.len() > 1 || next[node].contains(&node);
                for member in members {
                    on_stack[member] = false;
                    in_loop[member] = round;
                }
            }
        }
    }
    in_loop
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> Vec<bool> {
        let pipeline = Pipeline::parse(source.as_bytes()).unwrap();
        in_loops(&pipeline)
    }

    #[test]
    fn nodes_of_loops_are_found() {
        assert_eq!(of("digraph G { a b c a -> b -> c b -> a }"), [true, true, false]);
        assert_eq!(of("digraph G { a b [shape=hexagon] c a -> b -> a b -> c }"), [true, true, false]);
        assert_eq!(of("digraph G { a [retry_target=b] b a -> a b -> a }"), [true, true]);
        assert_eq!(
            of("digraph G { start a [goal_gate=true, retry_target=a] exit start -> a -> exit }"),
            [false, true, true]
        );
        let both = of("digraph G { a b c d a -> b -> c -> d d -> c b -> a a -> d }");
        assert_eq!(both, [true; 4]);
    }

    #[test]
    fn long_chain_has_no_cycle_long_ring_does() {
        let names: Vec<String> = (0..20_000).map(|at| format!("n{at}")).collect();
        let (nodes, chain) = (names.join(" "), names.join(" -> "));
        assert!(!of(&format!("digraph G {{ {nodes} {chain} }}")).contains(&true));
        assert!(!of(&format!("digraph G {{ {nodes} {chain} -> n0 }}")).contains(&false));
    }
}
