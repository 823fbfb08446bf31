//! Tests that no edge of a picture runs through a node: of pipelines of every kind, and of drawn ones.

#[path = "../../../dot/tests/table/cases.rs"]
#[expect(dead_code, reason = "only the pipelines are of interest here, not what comes of them")]
mod cases;

use ferrata_dot::Pipeline;

use super::Sketch;
use super::layout::{HEIGHT, Layout, layout};

/// Pipelines with loops, forks, long edges, parallel edges and loops to themselves.
const PIPELINES: [&str; 6] = [
    "a b c d e a -> b -> c -> d -> e a -> e [label=skip] e -> a [label=again] b -> d b -> e",
    "a b c d a -> b a -> c a -> d b -> e c -> e d -> e e a -> e e -> b [label=\"a long label that is longer\"]",
    "a b a -> b [label=one] a -> b [label=two] b -> a [label=back] a -> a [label=self] b -> b",
    "a [shape=diamond] b [shape=hexagon] c [shape=component] d [shape=house] e [shape=parallelogram] f [shape=tripleoctagon]
        a -> b -> c -> d -> e -> f -> a c -> e c -> f b -> f a -> f",
    "a",
    "a b c d e f g a -> b -> c -> d -> e -> f -> g g -> a f -> b e -> c a -> g b -> f c -> e a -> f b -> g",
];

fn sketch(statements: &str) -> Sketch {
    Sketch::of_pipeline(&Pipeline::parse(format!("digraph G {{ {statements} }}").as_bytes()).unwrap())
}

/// Checks that nodes stand apart and within the picture, and that no edge touches a node that is not its end.
fn check(statements: &str) {
    let sketch = sketch(statements);
    let Layout { places, ways, width, height } = layout(&sketch);
    for (at, one) in places.iter().enumerate() {
        let within = one.x - one.width / 2 >= 0 && one.x + one.width / 2 <= width && one.y < height;
        assert!(within, "{statements}: {} stands outside", sketch.nodes[at].id);
        for other in &places[at + 1..] {
            let apart = (one.x - other.x).abs() >= i64::midpoint(one.width, other.width);
            assert!(one.y != other.y || apart, "{statements}: {one:?} {other:?}");
        }
    }
    for (edge, way) in sketch.edges.iter().zip(&ways) {
        for pair in way.windows(2) {
            // A curve between two points stays in the box around them and its middle, and so does a line.
            let (x, y) = ((pair[0].0, pair[1].0), (pair[0].1, pair[1].1));
            for (node, place) in
                places.iter().enumerate().filter(|(at, _)| *at != edge.from && *at != edge.to)
            {
                let beside =
                    x.0.max(x.1) < place.x - place.width / 2 || x.0.min(x.1) > place.x + place.width / 2;
                let above = y.0.max(y.1) <= place.y - HEIGHT / 2 || y.0.min(y.1) >= place.y + HEIGHT / 2;
                let (from, to, id) =
                    (&sketch.nodes[edge.from].id, &sketch.nodes[edge.to].id, &sketch.nodes[node].id);
                assert!(beside || above, "{statements}: {from} -> {to} runs through {id}");
            }
        }
    }
}

/// 421 of the 4,346 edges of pipelines by others ran straight through a node, some of them hidden with their label.
#[test]
fn no_edge_runs_through_a_node_and_no_node_touches_another() {
    PIPELINES.iter().for_each(|statements| check(statements));
}

#[test]
fn no_edge_of_the_pipelines_of_the_specification_runs_through_a_node() {
    for case in cases::CASES {
        check(&format!("start [shape=Mdiamond] exit [shape=Msquare] {}", case.graph));
    }
    assert!(cases::CASES.len() >= 50, "{}", cases::CASES.len());
}

#[test]
fn no_edge_of_a_drawn_pipeline_runs_through_a_node() {
    const SHAPES: [&str; 6] = ["box", "diamond", "hexagon", "parallelogram", "component", "house"];
    let mut state: u64 = 0x5EED;
    let mut below = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % most
    };
    for _ in 0..300 {
        let nodes = 1 + below(24);
        let mut text = String::new();
        for node in 0..nodes {
            let label = "wide ".repeat(below(7));
            text += &format!("n{node} [shape={}, label=\"{node} {label}\"] ", SHAPES[below(SHAPES.len())]);
        }
        for _ in 0..below(3 * nodes) {
            text += &format!("n{} -> n{} ", below(nodes), below(nodes));
        }
        check(&text);
    }
}
