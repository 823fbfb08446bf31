//! Tests that no edge of a picture runs through a node or a label, for pipelines of every kind.

#[path = "../../../dot/tests/table/cases.rs"]
#[expect(dead_code, reason = "only the pipelines are of interest here, not what comes of them")]
mod cases;

use ferrata_dot::Pipeline;

use super::GraphSketch;
use super::layout::{GraphLayout, HEIGHT, Point, layout};
use super::svg::{LINE, label_width};

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

fn sketch(statements: &str) -> GraphSketch {
    GraphSketch::of_pipeline(&Pipeline::parse(format!("digraph G {{ {statements} }}").as_bytes()).unwrap())
}

/// Checks the picture of a pipeline in each of its directions.
fn check(statements: &str) {
    ["TB", "BT", "LR", "RL"].iter().for_each(|rankdir| check_one(&format!("rankdir={rankdir} {statements}")));
}

/// Checks that the nodes of a picture are apart and inside the picture, and that no edge touches a node or a label of another edge.
fn check_one(statements: &str) {
    let sketch = sketch(statements);
    let GraphLayout { places, ways, labels, width, height } = layout(&sketch);
    for (at, one) in places.iter().enumerate() {
        let across = one.x - one.width / 2 >= 0 && one.x + one.width / 2 <= width;
        let within = across && one.y - HEIGHT / 2 >= 0 && one.y + HEIGHT / 2 <= height;
        assert!(within, "{statements}: {} stands outside", sketch.nodes[at].id);
    }
    // The occupied areas. A node is named by its index, and a label by the index of its edge.
    let node = |at: usize| {
        (sketch.nodes[at].id.as_str(), None, places[at].x, places[at].y, places[at].width, HEIGHT)
    };
    let label = |(at, label): (usize, &Option<Point>)| {
        let text = sketch.edges[at].label.as_str();
        label.map(|(x, y)| (text, Some(at), x, y, label_width(text), LINE))
    };
    let labels = labels.iter().enumerate().filter_map(label);
    let standing: Vec<_> = (0..places.len()).map(node).chain(labels).collect();
    for (at, (edge, way)) in sketch.edges.iter().zip(&ways).enumerate() {
        let own = [&sketch.nodes[edge.from].id, &sketch.nodes[edge.to].id];
        for pair in way.windows(2) {
            // A curve between two points stays in the box around the points and their middle. So does a line.
            let (x1, x2) = (pair[0].0.min(pair[1].0), pair[0].0.max(pair[1].0));
            let (y1, y2) = (pair[0].1.min(pair[1].1), pair[0].1.max(pair[1].1));
            for &(name, of, x, y, width, height) in &standing {
                if of == Some(at) || (of.is_none() && own.iter().any(|id| *id == name)) {
                    continue;
                }
                let beside = x2 <= x - width / 2 || x1 >= x + width / 2;
                let above = y2 <= y - height / 2 || y1 >= y + height / 2;
                assert!(beside || above, "{statements}: {} -> {} runs through {name}", own[0], own[1]);
            }
        }
    }
    for (at, one) in standing.iter().enumerate() {
        for other in &standing[at + 1..] {
            let beside = (one.2 - other.2).abs() >= i64::midpoint(one.4, other.4);
            let above = (one.3 - other.3).abs() >= i64::midpoint(one.5, other.5);
            assert!(beside || above, "{statements}: {one:?} and {other:?} lie on one another");
        }
    }
}

/// In pipelines of other authors, 421 of the 4,346 edges once ran straight through a node. Some of them and their labels were hidden.
#[test]
fn foreign_drawing_edges_avoid_nodes() {
    PIPELINES.iter().for_each(|statements| check(statements));
}

/// Guarantees: CLI-25.
#[test]
fn specification_drawing_edges_avoid_nodes() {
    for case in cases::CASES {
        check(&format!("start [shape=Mdiamond] exit [shape=Msquare] {}", case.graph));
    }
    assert!(cases::CASES.len() >= 50, "{}", cases::CASES.len());
}

/// Guarantees: CLI-25.
#[test]
fn random_drawing_edges_avoid_nodes() {
    const SHAPES: [&str; 6] = ["box", "diamond", "hexagon", "parallelogram", "component", "house"];
    let mut state: u64 = 0x5EED;
    let mut below = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % most
    };
    for _ in 0..100 {
        let nodes = 1 + below(24);
        let mut text = String::new();
        for node in 0..nodes {
            let label = "wide ".repeat(below(7));
            text += &format!("n{node} [shape={}, label=\"{node} {label}\"] ", SHAPES[below(SHAPES.len())]);
        }
        for _ in 0..below(3 * nodes) {
            let label = ["", "", "[label=\"[Y] yes\"]", "[condition=\"context.kind=question\"]"][below(4)];
            text += &format!("n{} -> n{} {label} ", below(nodes), below(nodes));
        }
        check(&text);
    }
}
