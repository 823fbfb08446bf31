//! A graph as a picture, with a layout of our own: the same file for the same graph everywhere, without Graphviz.
//!
//! Layers from the longest path, back edges left out; in each layer, nodes stand in the middle of those that they come from.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::Sketch;

/// Sizes in pixels. A character of the font is about seven wide.
const CHAR: usize = 7;
const HEIGHT: usize = 36;
const GAP_X: usize = 32;
const GAP_Y: usize = 56;
const MARGIN: usize = 24;

/// How often the order within layers is improved: more makes no picture visibly better.
const SWEEPS: usize = 4;

/// A longer caption is cut.
const CAPTION: usize = 40;

/// Where a node stands: the middle of its box, and its width.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Place {
    x: usize,
    y: usize,
    width: usize,
}

/// Draws a graph.
pub(crate) fn svg(sketch: &Sketch) -> String {
    let places = places(sketch);
    let right = places.iter().map(|place| place.x + place.width / 2).max().unwrap_or(0);
    let bottom = places.iter().map(|place| place.y + HEIGHT / 2).max().unwrap_or(0);
    // Back edges run along the right side.
    let (width, height) = (right + 2 * MARGIN + 40, bottom + MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{}</title>\n<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" \
         refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#57606a\"/>\
         </marker></defs>\n",
        escaped(&sketch.name)
    );
    for edge in &sketch.edges {
        let (from, to) = (places[edge.from], places[edge.to]);
        let (x1, y1, x2, y2) = (from.x, from.y + HEIGHT / 2, to.x, to.y.saturating_sub(HEIGHT / 2));
        let middle = y1.midpoint(y2);
        let (path, label_x, label_y) = if to.y > from.y {
            (format!("M{x1},{y1} C{x1},{middle} {x2},{middle} {x2},{y2}"), x1.midpoint(x2), middle)
        } else {
            let side = right + MARGIN;
            let (x1, x2) = (from.x + from.width / 2, to.x + to.width / 2);
            let path = format!("M{x1},{} C{side},{} {side},{} {x2},{}", from.y, from.y, to.y, to.y);
            (path, side, from.y.midpoint(to.y))
        };
        let stroke = if edge.taken > 0 { "2.5" } else { "1" };
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"#57606a\" stroke-width=\"{stroke}\" marker-end=\"url(#a)\"/>"
        );
        if !edge.label.is_empty() {
            let label = escaped(&cut(&edge.label));
            let _ = writeln!(
                text,
                "<text x=\"{label_x}\" y=\"{label_y}\" text-anchor=\"middle\" fill=\"#57606a\" font-size=\"10\">{label}</text>"
            );
        }
    }
    for (node, place) in sketch.nodes.iter().zip(&places) {
        let (fill, border) = node.look.colors();
        let (x, y) = (place.x - place.width / 2, place.y - HEIGHT / 2);
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"{fill}\" stroke=\"{border}\">\
             <title>{}</title></rect>",
            place.width,
            escaped(&if node.why.is_empty() {
                node.id.clone()
            } else {
                format!("{}: {}", node.id, node.why)
            })
        );
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            place.x,
            place.y + 4,
            escaped(&cut(&node.caption()))
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Finds where each node stands.
fn places(sketch: &Sketch) -> Vec<Place> {
    let layer = layers(sketch);
    let count = layer.iter().max().map_or(0, |last| last + 1);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (node, &at) in layer.iter().enumerate() {
        rows[at].push(node);
    }
    let mut order: Vec<usize> = vec![0; layer.len()];
    let number = |rows: &[Vec<usize>], order: &mut Vec<usize>| {
        for row in rows {
            for (at, &node) in row.iter().enumerate() {
                order[node] = at;
            }
        }
    };
    number(&rows, &mut order);
    for _ in 0..SWEEPS {
        // In thousandths, so that no two machines round in another way.
        let mut middle: Vec<(usize, usize)> = vec![(0, 0); layer.len()];
        for edge in sketch.edges.iter().filter(|edge| layer[edge.from] < layer[edge.to]) {
            middle[edge.to].0 += order[edge.from] * 1_000;
            middle[edge.to].1 += 1;
        }
        for row in &mut rows {
            row.sort_by_key(|&node| {
                middle[node].0.checked_div(middle[node].1).unwrap_or(order[node] * 1_000)
            });
        }
        number(&rows, &mut order);
    }
    let width = |node: usize| (cut(&sketch.nodes[node].caption()).width() * CHAR + 20).max(48);
    let length = |row: &Vec<usize>| row.iter().map(|&node| width(node) + GAP_X).sum::<usize>();
    let widest = rows.iter().map(length).max().unwrap_or(0);
    let mut places = vec![Place::default(); layer.len()];
    for (at, row) in rows.iter().enumerate() {
        let mut x = MARGIN + (widest - length(row)) / 2;
        for &node in row {
            let width = width(node);
            places[node] = Place { x: x + width / 2, y: MARGIN + HEIGHT / 2 + at * (HEIGHT + GAP_Y), width };
            x += width + GAP_X;
        }
    }
    places
}

/// Gives each node its layer: one below the lowest that leads to it, not counting edges that lead back.
fn layers(sketch: &Sketch) -> Vec<usize> {
    let count = sketch.nodes.len();
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut into = vec![0_usize; count];
    for edge in &sketch.edges {
        out[edge.from].push(edge.to);
        into[edge.to] += 1;
    }
    // Depth first, with a stack of our own: a chain may be as long as a file. What leads to an open node leads back.
    let (mut state, mut finished) = (vec![0_u8; count], Vec::with_capacity(count));
    let roots = (0..count).filter(|&node| into[node] == 0).chain(0..count);
    for root in roots.collect::<Vec<_>>() {
        if state[root] != 0 {
            continue;
        }
        let mut stack = vec![(root, 0)];
        state[root] = 1;
        while let Some((node, at)) = stack.pop() {
            match out[node].get(at) {
                Some(&next) => {
                    stack.push((node, at + 1));
                    if state[next] == 0 {
                        state[next] = 1;
                        stack.push((next, 0));
                    }
                }
                None => {
                    state[node] = 2;
                    finished.push(node);
                }
            }
        }
    }
    let mut rank = vec![0; count];
    finished.iter().rev().enumerate().for_each(|(at, &node)| rank[node] = at);
    let mut layer = vec![0; count];
    for &node in finished.iter().rev() {
        for &next in out[node].iter().filter(|&&next| rank[next] > rank[node]) {
            layer[next] = layer[next].max(layer[node] + 1);
        }
    }
    layer
}

fn cut(text: &str) -> String {
    let text = crate::table::clean(text);
    if text.chars().count() <= CAPTION {
        return text;
    }
    text.chars().take(CAPTION - 1).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use ferrata_dot::Pipeline;

    use super::*;

    fn sketch(source: &str) -> Sketch {
        Sketch::of_pipeline(&Pipeline::parse(source.as_bytes()).unwrap())
    }

    #[test]
    fn what_comes_later_stands_lower_and_loops_lead_back() {
        let sketch = sketch("digraph G { a -> b -> c -> a; a -> c; c -> d }");
        assert_eq!(layers(&sketch), [0, 1, 2, 3]);
        let places = places(&sketch);
        assert!(places.windows(2).all(|pair| pair[0].y < pair[1].y), "{places:?}");
    }

    #[test]
    fn nodes_of_a_layer_do_not_touch() {
        let sketch = sketch("digraph G { a -> b; a -> c; a -> d; b -> e; c -> e; d -> e }");
        let places = places(&sketch);
        let mut row: Vec<Place> = places[1..4].to_vec();
        row.sort_by_key(|place| place.x);
        for pair in row.windows(2) {
            assert!(pair[0].x + pair[0].width / 2 < pair[1].x - pair[1].width / 2, "{row:?}");
        }
    }

    #[test]
    fn a_long_chain_and_a_hostile_label_are_drawn() {
        let chain: Vec<String> = (0..20_000).map(|at| format!("n{at}")).collect();
        let long = sketch(&format!("digraph G {{ {} }}", chain.join(" -> ")));
        assert_eq!(layers(&long).last(), Some(&19_999));
        let text = svg(&sketch("digraph G { a [label=\"<script>&\\\"\"]; a -> b [label=\"x<y\"] }"));
        assert!(!text.contains("<script>") && text.contains("&lt;script&gt;&amp;&quot;"), "{text}");
        assert!(text.contains("x&lt;y"), "{text}");
    }
}
