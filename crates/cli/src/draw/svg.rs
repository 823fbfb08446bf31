//! Draws a graph as an SVG picture without Graphviz. The same graph gives the same file on every machine.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::direction::LayoutDirection;
use super::layout::{GraphLayout, HEIGHT, LOOP, NodePosition, Point, layout};
use super::text::entity;
use super::{DrawnEdge, DrawnNode, GraphSketch, NodeLook};

/// Maximum number of characters of a caption. A longer caption is shortened.
const CAPTION: usize = 40;

/// Width of a character of a label. The next constant is the height of its line.
const SMALL: i64 = 6;
pub(super) const LINE: i64 = 13;

/// Draws a graph as SVG.
pub(crate) fn svg(sketch: &GraphSketch) -> String {
    let layout = layout(sketch);
    let loops = loops(sketch);
    let labels = labels(sketch, &layout, &loops);
    let GraphLayout { places, ways, width, height, .. } = layout;
    // A label may extend further to the left than any node.
    let left = labels.iter().map(|label| label.x - label.width / 2 - 8).min().unwrap_or(0).min(0);
    let right = labels.iter().map(|label| label.x + label.width / 2 + 8).max().unwrap_or(0).max(width);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{left} 0 {wide} {height}\" width=\"{wide}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{}</title>\n<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" \
         refY=\"4\" markerUnits=\"userSpaceOnUse\" markerWidth=\"9\" markerHeight=\"9\" orient=\"auto\">\
         <path d=\"M0,0 L8,4 L0,8 z\" fill=\"#57606a\"/></marker></defs>\n\
         <rect x=\"{left}\" y=\"0\" width=\"{wide}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escaped(&sketch.name),
        wide = right - left,
    );
    let turn = sketch.turn();
    for (at, (edge, way)) in sketch.edges.iter().zip(&ways).enumerate() {
        let path = match way.is_empty() {
            true => around(&sketch.nodes[edge.from].shape, places[edge.from], loops[at], turn),
            false => path(way, turn),
        };
        let stroke = if edge.taken > 0 { "2.5" } else { "1" };
        let faint = sketch.is_run && edge.taken == 0;
        let color = if faint { "#d0d7de" } else { "#57606a" };
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{stroke}\" marker-end=\"url(#a)\"/>"
        );
    }
    for (node, place) in sketch.nodes.iter().zip(&places) {
        draw(&mut text, node, *place, sketch.is_run);
    }
    for label in &labels {
        let (x, y) = (label.x - label.width / 2, label.y - LINE + 3);
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{LINE}\" fill=\"#ffffff\" fill-opacity=\"0.9\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#57606a\" font-size=\"10\">{}</text>",
            label.width,
            label.x,
            label.y,
            escaped(&label.text)
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Writes a path: curves in the gaps between layers, and straight lines beside the nodes of a layer.
fn path(way: &[Point], turn: LayoutDirection) -> String {
    let mut path = format!("M{},{}", way[0].0, way[0].1);
    for pair in way.windows(2) {
        let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
        // Inside a layer, a path is straight.
        if (turn.is_level() && y1 == y2) || (!turn.is_level() && x1 == x2) {
            let _ = write!(path, " L{x2},{y2}");
        } else if turn.is_level() {
            let middle = i64::midpoint(x1, x2);
            let _ = write!(path, " C{middle},{y1} {middle},{y2} {x2},{y2}");
        } else {
            let middle = i64::midpoint(y1, y2);
            let _ = write!(path, " C{x1},{middle} {x2},{middle} {x2},{y2}");
        }
    }
    path
}

/// Returns for each loop its number among the loops of the same node.
fn loops(sketch: &GraphSketch) -> Vec<i64> {
    let mut seen = vec![0; sketch.nodes.len()];
    let mut number = |edge: &DrawnEdge| {
        seen[edge.from] += i64::from(edge.from == edge.to);
        seen[edge.from]
    };
    sketch.edges.iter().map(&mut number).collect()
}

/// Writes the path of an edge from a node to itself, beside the other edges of the node. Each further loop is larger.
fn around(shape: &str, place: NodePosition, number: i64, turn: LayoutDirection) -> String {
    let wide = 9 + 2 * (number - 1);
    let NodePosition { x, y, width } = place;
    if turn.is_level() {
        let side = |offset| y + LayoutDirection::Down.reach(shape, true, offset, width);
        let (before, after, reach) = (x - wide, x + wide, y + HEIGHT / 2 + LOOP * number);
        let (begin, end) = (side(-wide), side(wide));
        return format!("M{before},{begin} C{},{reach} {},{reach} {after},{end}", before - 10, after + 10);
    }
    let side = |offset| x + LayoutDirection::Right.reach(shape, true, offset, width);
    let (above, below, reach) = (y - wide, y + wide, x + width / 2 + LOOP * number);
    let (begin, end) = (side(-wide), side(wide));
    format!("M{begin},{above} C{reach},{} {reach},{} {end},{below}", above - 10, below + 10)
}

/// The label of an edge.
struct EdgeLabel {
    x: i64,
    y: i64,
    width: i64,
    text: String,
}

/// Returns the width of a label in pixels.
pub(super) fn label_width(label: &str) -> i64 {
    i64::try_from(cut(label).width()).unwrap_or(0) * SMALL + 6
}

/// Places each label where its edge has space: near the start of the edge, or beside a loop.
fn labels(sketch: &GraphSketch, layout: &GraphLayout, loops: &[i64]) -> Vec<EdgeLabel> {
    let label = |at: usize| {
        let edge = &sketch.edges[at];
        let (width, place) = (label_width(&edge.label), layout.places[edge.from]);
        let (x, y) = match (layout.labels[at], &*layout.ways[at]) {
            (Some(point), _) => point,
            (None, []) if sketch.turn().is_level() => {
                (place.x, place.y + HEIGHT / 2 + LOOP * loops[at] + LINE / 2)
            }
            (None, []) => (place.x + place.width / 2 + LOOP * loops[at] + width / 2, place.y),
            // An edge without lanes, because the maximum number of lanes was reached.
            (None, [first, .., last]) => (i64::midpoint(first.0, last.0), i64::midpoint(first.1, last.1)),
            (None, [point]) => *point,
        };
        EdgeLabel { x, y: y + 4, width, text: cut(&edge.label) }
    };
    (0..sketch.edges.len()).filter(|&at| !sketch.edges[at].label.is_empty()).map(label).collect()
}

/// Returns the colors of a node. Without a run, they show the purpose of the node.
fn colors(node: &DrawnNode, is_run: bool) -> (&'static str, &'static str, &'static str) {
    const TEXT: &str = "#1f2328";
    if node.look != NodeLook::Plain {
        let (fill, border) = node.look.colors();
        return (fill, border, TEXT);
    }
    if is_run {
        return ("#ffffff", "#d0d7de", "#8c959f");
    }
    let (fill, border) = match node.shape.as_str() {
        "Mdiamond" => ("#1f883d", "#1a7f37"),
        "Msquare" => ("#424a53", "#24292f"),
        "hexagon" => ("#fff8c5", "#9a6700"),
        "diamond" => ("#ddf4ff", "#0969da"),
        "component" | "tripleoctagon" => ("#fbefff", "#8250df"),
        "parallelogram" => ("#f6f8fa", "#57606a"),
        "house" => ("#ffeff7", "#bf3989"),
        "insulator" => ("#fff1e5", "#bc4c00"),
        _ => ("#ffffff", "#57606a"),
    };
    let text = if matches!(&*node.shape, "Mdiamond" | "Msquare") { "#ffffff" } else { TEXT };
    (fill, border, text)
}

/// Draws a node by its shape, so that a gate, a parallel node, a tool and a decision look different.
fn draw(text: &mut String, node: &DrawnNode, place: NodePosition, is_run: bool) {
    let (fill, border, ink) = colors(node, is_run);
    let NodePosition { x, y, width } = place;
    let (left, right, top, bottom) = (x - width / 2, x + width / 2, y - HEIGHT / 2, y + HEIGHT / 2);
    let polygon = |points: &[Point]| {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
        format!("<polygon points=\"{}\"", points.join(" "))
    };
    let rect = |round: i64| {
        format!("<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"{round}\"")
    };
    let shape = match node.shape.as_str() {
        "diamond" => polygon(&[(x, top), (right, y), (x, bottom), (left, y)]),
        "hexagon" => polygon(&[
            (left + 14, top),
            (right - 14, top),
            (right, y),
            (right - 14, bottom),
            (left + 14, bottom),
            (left, y),
        ]),
        "parallelogram" => polygon(&[(left + 12, top), (right, top), (right - 12, bottom), (left, bottom)]),
        "tripleoctagon" => polygon(&[
            (left + 10, top),
            (right - 10, top),
            (right, top + 10),
            (right, bottom - 10),
            (right - 10, bottom),
            (left + 10, bottom),
            (left, bottom - 10),
            (left, top + 10),
        ]),
        "house" => {
            polygon(&[(x, top - 6), (right, top + 8), (right, bottom), (left, bottom), (left, top + 8)])
        }
        "Mdiamond" | "insulator" => rect(HEIGHT / 2),
        "Msquare" | "component" => rect(2),
        _ => rect(6),
    };
    let title = if node.why.is_empty() { node.id.clone() } else { format!("{}: {}", node.id, node.why) };
    let tag = if shape.starts_with("<rect") { "rect" } else { "polygon" };
    // Writing to a string never fails.
    let _ = writeln!(
        text,
        "{shape} fill=\"{fill}\" stroke=\"{border}\"><title>{}</title></{tag}>",
        escaped(&title)
    );
    if node.shape == "component" {
        let _ = writeln!(
            text,
            "<path d=\"M{},{top} V{bottom} M{},{top} V{bottom}\" stroke=\"{border}\"/>",
            left + 7,
            right - 7
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"{ink}\">{}</text>",
        y + 4,
        escaped(&cut(&node.caption()))
    );
}

pub(super) fn cut(text: &str) -> String {
    let text = crate::table::clean(text);
    if text.chars().count() <= CAPTION {
        return text;
    }
    text.chars().take(CAPTION - 1).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    text.chars().filter(|c| !c.is_control()).map(|c| entity(c, "&#")).collect()
}

#[cfg(test)]
mod tests {
    use ferrata_dot::Pipeline;

    use super::super::layout::layers;
    use super::*;

    fn sketch(source: &str) -> GraphSketch {
        GraphSketch::of_pipeline(&Pipeline::parse(source.as_bytes()).unwrap())
    }

    /// Pipelines with loops, forks, long edges, parallel edges and loops to themselves.
    const PIPELINES: [&str; 6] = [
        "digraph G { a b c d e a -> b -> c -> d -> e a -> e [label=skip] e -> a [label=again] b -> d b -> e }",
        "digraph G { a b c d a -> b a -> c a -> d b -> e c -> e d -> e e a -> e e -> b [label=\"a long label that is longer\"] }",
        "digraph G { a b a -> b [label=one] a -> b [label=two] b -> a [label=back] a -> a [label=self] b -> b }",
        "digraph G { a [shape=diamond] b [shape=hexagon] c [shape=component] d [shape=house] e [shape=parallelogram] f [shape=tripleoctagon]
            a -> b -> c -> d -> e -> f -> a c -> e c -> f b -> f a -> f }",
        "digraph G { a }",
        "digraph G { a b c d e f g a -> b -> c -> d -> e -> f -> g g -> a f -> b e -> c a -> g b -> f c -> e a -> f b -> g }",
    ];

    #[test]
    fn later_nodes_are_lower_and_loops_return() {
        let sketch = sketch("digraph G { a b c d a -> b -> c -> a; a -> c; c -> d }");
        assert_eq!(layers(&sketch), [0, 1, 2, 3]);
        let places = layout(&sketch).places;
        assert!(places.windows(2).all(|pair| pair[0].y < pair[1].y), "{places:?}");
    }

    #[test]
    fn parallel_edges_and_labels_stay_apart_inside_picture() {
        for source in PIPELINES {
            let sketch = sketch(source);
            let layout = layout(&sketch);
            let mut seen = std::collections::BTreeSet::new();
            assert!(layout.ways.iter().filter(|way| !way.is_empty()).all(|way| seen.insert(way)), "{source}");
            let labels = labels(&sketch, &layout, &loops(&sketch));
            for (at, one) in labels.iter().enumerate() {
                for other in &labels[at + 1..] {
                    let apart = (one.y - other.y).abs() >= LINE;
                    assert!(
                        apart || (one.x - other.x).abs() >= i64::midpoint(one.width, other.width),
                        "{source}"
                    );
                }
            }
            let picture = svg(&sketch);
            let number = |name: &str| -> Vec<i64> {
                let from = picture.split(&format!("{name}=\"")).nth(1).unwrap();
                from.split('"').next().unwrap().split(' ').map(|n| n.parse().unwrap()).collect()
            };
            let view = number("viewBox");
            for label in &labels {
                assert!(
                    label.x - label.width / 2 >= view[0] && label.x + label.width / 2 <= view[0] + view[2],
                    "{source}"
                );
            }
            assert!(picture.contains("fill=\"#ffffff\"/>") && picture.contains("userSpaceOnUse"));
        }
    }

    #[test]
    fn long_chain_and_hostile_label_are_drawn() {
        let chain: Vec<String> = (0..20_000).map(|at| format!("n{at}")).collect();
        let long = sketch(&format!("digraph G {{ {} }}", chain.join(" -> ")));
        assert_eq!(layers(&long).last(), Some(&19_999));
        let text = svg(&sketch("digraph G { a [label=\"<script>&\\\"\"]; a -> b [label=\"x<y\"] }"));
        assert!(!text.contains("<script>") && text.contains("&lt;script&gt;&amp;&quot;"), "{text}");
        assert!(text.contains("x&lt;y"), "{text}");
    }
}
