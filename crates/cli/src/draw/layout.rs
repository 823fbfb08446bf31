//! The layout of a picture: each node is in a layer that follows from the longest path to it, and each edge has a path around the nodes.
//!
//! An edge that is longer than one layer occupies a lane in each layer between its ends, so that it runs around the nodes there. In this module, the
//! layers go from top to bottom. At the end, the picture is turned to its [direction](LayoutDirection).

use unicode_width::UnicodeWidthStr;

use super::direction::LayoutDirection;
use super::edge_paths::ways;
use super::order::{SWEEPS, ordered};
use super::svg::{LINE, cut, label_width};
use super::{DrawnEdge, GraphSketch};

/// Sizes in pixels. A character of the font is about seven pixels wide.
pub(super) const CHAR: i64 = 7;
pub(super) const HEIGHT: i64 = 36;
const GAP_X: i64 = 32;
const GAP_Y: i64 = 48;
/// Distance between nodes and the labels next to them.
const GAP_LABEL: i64 = 26;
const MARGIN: i64 = 24;

/// Width of an edge's lane in a layer. The next constant is the free space next to it.
const LANE: i64 = 6;
const BESIDE: i64 = 14;

/// Size of the loop of an edge from a node to itself.
pub(super) const LOOP: i64 = 30;

/// Maximum number of lanes. Without it, a small file could require a quadratic number of lanes. Edges beyond the maximum are straight.
const LANES: usize = 40_000;

/// The position of a node: the middle of its box, and the width of the box.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct NodePosition {
    pub(super) x: i64,
    pub(super) y: i64,
    pub(super) width: i64,
}

/// A point of a path.
pub(super) type Point = (i64, i64);

/// The layout of a graph.
#[derive(Debug)]
pub(super) struct GraphLayout {
    pub(super) places: Vec<NodePosition>,
    /// For each edge, the points of its path; empty for a loop. Between two points, the edge is in the gap between two layers, or beside the nodes of
    /// a layer.
    pub(super) ways: Vec<Vec<Point>>,
    /// For each edge, the middle of its label, if its path leads through the label.
    pub(super) labels: Vec<Option<Point>>,
    pub(super) width: i64,
    pub(super) height: i64,
}

/// The start and the end of each layer.
#[derive(Debug)]
pub(super) struct LayerBounds(Vec<(i64, i64)>);

impl LayerBounds {
    /// Computes the layers. Each layer is as deep as the deepest item in it.
    fn of(sketch: &GraphSketch, items: &LayerItems, turn: LayoutDirection) -> Self {
        let count = items.is_label.len();
        let depth = |layer: usize| if items.is_label[layer] { LINE } else { HEIGHT };
        let mut depths: Vec<i64> = (0..count).map(depth).collect();
        if turn.is_level() {
            for (&width, &layer) in items.widths.iter().zip(&items.layer) {
                depths[layer] = depths[layer].max(width);
            }
            for (edge, label) in sketch.edges.iter().zip(&items.labels) {
                // The label of a loop is below its node.
                let layer = label.map_or(items.layer[edge.from], |label| items.layer[label]);
                if label.is_some() || edge.from == edge.to {
                    depths[layer] = depths[layer].max(label_width(&edge.label));
                }
            }
        }
        let gap = |layer: usize| match (items.is_label[layer], items.is_label.get(layer + 1)) {
            (false, Some(false) | None) => GAP_Y,
            _ => GAP_LABEL,
        };
        let gaps: Vec<i64> = (0..count).map(gap).collect();
        let mut begin = MARGIN;
        let layers = depths.into_iter().zip(gaps).map(|(depth, gap)| {
            let layer = (begin, begin + depth);
            begin += depth + gap;
            layer
        });
        Self(layers.collect())
    }

    pub(super) fn begin(&self, layer: usize) -> i64 {
        self.0[layer].0
    }

    pub(super) fn end(&self, layer: usize) -> i64 {
        self.0[layer].1
    }

    pub(super) fn middle(&self, layer: usize) -> i64 {
        i64::midpoint(self.0[layer].0, self.0[layer].1)
    }
}

/// The items that occupy space in the layers: nodes, and lanes of edges.
#[derive(Debug)]
pub(super) struct LayerItems {
    pub(super) layer: Vec<usize>,
    /// The space that each item needs in its layer.
    room: Vec<i64>,
    /// The width of each node.
    pub(super) widths: Vec<i64>,
    /// For each item, the connected items in the layer above and in the layer below.
    joined: [Vec<Vec<usize>>; 2],
    /// For each edge, its lanes in the layers between its ends, from top to bottom.
    pub(super) lanes: Vec<Vec<usize>>,
    /// For each edge, the lane that contains its label, if it has a label.
    labels: Vec<Option<usize>>,
    /// For each layer, whether it contains only labels.
    is_label: Vec<bool>,
}

impl LayerItems {
    fn of(sketch: &GraphSketch, turn: LayoutDirection) -> Self {
        let (layer, is_label, gaps) = spread(sketch);
        let widths = sketch.nodes.iter().map(|node| {
            let text = i64::try_from(cut(&node.caption()).width()).unwrap_or(0) * CHAR;
            // A shape with slanted sides has less space for its text.
            let room = match node.shape.as_str() {
                "diamond" | "hexagon" | "parallelogram" => 52,
                "component" | "tripleoctagon" => 36,
                _ => 24,
            };
            (text + room).max(56)
        });
        let widths: Vec<i64> = widths.collect();
        let mut room = if turn.is_level() { vec![HEIGHT; widths.len()] } else { widths.clone() };
        for edge in sketch.edges.iter().filter(|edge| edge.from == edge.to) {
            // The loop of a node and its label are a part of the node's space.
            let label = if turn.is_level() { LINE } else { label_width(&edge.label) };
            room[edge.from] += 2 * LOOP + if edge.label.is_empty() { 0 } else { 2 * label };
        }
        let mut items = Self {
            room,
            widths,
            joined: [vec![Vec::new(); layer.len()], vec![Vec::new(); layer.len()]],
            lanes: Vec::with_capacity(sketch.edges.len()),
            labels: Vec::with_capacity(sketch.edges.len()),
            layer,
            is_label,
        };
        for (edge, gap) in sketch.edges.iter().zip(gaps) {
            let down = items.layer[edge.from] <= items.layer[edge.to];
            let (upper, lower) = if down { (edge.from, edge.to) } else { (edge.to, edge.from) };
            let between = items.layer[upper] + 1..items.layer[lower];
            let (mut lanes, mut label) = (Vec::new(), None);
            if items.layer.len() - sketch.nodes.len() + between.len() <= LANES {
                for layer in between {
                    lanes.push(items.layer.len());
                    items.layer.push(layer);
                    if gap == Some(layer) {
                        label = lanes.last().copied();
                        items.room.push(if turn.is_level() { LINE } else { label_width(&edge.label) });
                    } else {
                        items.room.push(LANE);
                    }
                    items.joined.iter_mut().for_each(|joined| joined.push(Vec::new()));
                }
            }
            let way: Vec<usize> =
                std::iter::once(upper).chain(lanes.iter().copied()).chain([lower]).collect();
            for pair in way.windows(2).filter(|pair| items.layer[pair[0]] < items.layer[pair[1]]) {
                items.joined[1][pair[0]].push(pair[1]);
                items.joined[0][pair[1]].push(pair[0]);
            }
            items.lanes.push(lanes);
            items.labels.push(label);
        }
        items
    }

    fn is_lane(&self, item: usize, nodes: usize) -> bool {
        item >= nodes
    }

    /// Returns the minimum distance between the middles of two neighbors in a layer.
    fn apart(&self, left: usize, right: usize, nodes: usize) -> i64 {
        let gap = if self.is_lane(left, nodes) || self.is_lane(right, nodes) { BESIDE } else { GAP_X };
        i64::midpoint(self.room[left], self.room[right]) + gap
    }
}

/// Computes the layout of a graph.
pub(super) fn layout(sketch: &GraphSketch) -> GraphLayout {
    let turn = sketch.turn();
    let nodes = sketch.nodes.len();
    let items = LayerItems::of(sketch, turn);
    let rows = ordered(&items.layer, &items.joined);
    let mut x = across(&items, &rows, nodes);
    let left = x.iter().zip(&items.room).map(|(x, room)| x - room / 2).min().unwrap_or(0);
    x.iter_mut().for_each(|x| *x += MARGIN - left);
    let layers = LayerBounds::of(sketch, &items, turn);
    let across = x.iter().zip(&items.room).map(|(x, room)| x + room / 2).max().unwrap_or(0) + MARGIN;
    let along = layers.0.last().map_or(0, |last| last.1) + MARGIN;
    let mut ways = ways(sketch, &items, &layers, &x, turn);
    for point in ways.iter_mut().flatten() {
        *point = turn.point(point.0, point.1, along);
    }
    let middle = |item: usize| turn.point(x[item], layers.middle(items.layer[item]), along);
    let place = |node: usize| {
        let (x, y) = middle(node);
        NodePosition { x, y, width: items.widths[node] }
    };
    let labels = items.labels.iter().map(|label| label.map(middle)).collect();
    let (width, height) = if turn.is_level() { (along, across) } else { (across, along) };
    GraphLayout { places: (0..nodes).map(place).collect(), ways, labels, width, height }
}

/// Computes the horizontal position of each item. The item is near its connected items, and far enough from its neighbors.
fn across(items: &LayerItems, rows: &[Vec<usize>], nodes: usize) -> Vec<i64> {
    let mut x = vec![0_i64; items.layer.len()];
    for row in rows {
        for pair in row.windows(2) {
            x[pair[1]] = x[pair[0]] + items.apart(pair[0], pair[1], nodes);
        }
        let middle = row.last().map_or(0, |&last| x[last] / 2);
        row.iter().for_each(|&item| x[item] -= middle);
    }
    for sweep in 0..2 * SWEEPS {
        let side = sweep % 2;
        let mut settle = |row: &Vec<usize>| {
            let wanted: Vec<i64> = row
                .iter()
                .map(|&item| {
                    let joined = &items.joined[side][item];
                    let count = i64::try_from(joined.len()).unwrap_or(1);
                    let sum: i64 = joined.iter().map(|&other| x[other]).sum();
                    sum.checked_div(count).unwrap_or(x[item])
                })
                .collect();
            // Compute one layout with all items as far left as possible, and one as far right as possible. Any mean of two valid layouts is valid.
            let (mut least, mut most) = (wanted.clone(), wanted);
            for at in 1..row.len() {
                least[at] = least[at].max(least[at - 1] + items.apart(row[at - 1], row[at], nodes));
            }
            for at in (1..row.len()).rev() {
                most[at - 1] = most[at - 1].min(most[at] - items.apart(row[at - 1], row[at], nodes));
            }
            // Round all means down, so that no distance becomes smaller than the minimum.
            row.iter().enumerate().for_each(|(at, &item)| x[item] = (least[at] + most[at]).div_euclid(2));
        };
        if side == 0 {
            rows.iter().for_each(&mut settle);
        } else {
            rows.iter().rev().for_each(&mut settle);
        }
    }
    x
}

/// Assigns each node to a layer and marks the layers for labels. For each edge, selects the layer that contains its label, close to the start of the
/// edge.
fn spread(sketch: &GraphSketch) -> (Vec<usize>, Vec<bool>, Vec<Option<usize>>) {
    let mut layer = layers(sketch);
    let count = layer.iter().max().map_or(0, |last| last + 1);
    let gap = |edge: &DrawnEdge| {
        let (from, to) = (layer[edge.from], layer[edge.to]);
        let is_labelled = edge.from != edge.to && !edge.label.is_empty();
        is_labelled.then(|| if from < to { from } else { from - 1 })
    };
    let gaps: Vec<Option<usize>> = sketch.edges.iter().map(gap).collect();
    let mut has_labels = vec![false; count];
    gaps.iter().flatten().for_each(|&gap| has_labels[gap] = true);
    let (mut is_label, mut moved) = (Vec::new(), Vec::new());
    for has_labels in has_labels {
        moved.push(is_label.len());
        is_label.push(false);
        is_label.extend(Some(true).filter(|_| has_labels));
    }
    layer.iter_mut().for_each(|layer| *layer = moved[*layer]);
    (layer, is_label, gaps.into_iter().map(|gap| gap.map(|gap| moved[gap] + 1)).collect())
}

/// Assigns each node to a layer: one below the lowest node that leads to it. Back edges do not count.
pub(super) fn layers(sketch: &GraphSketch) -> Vec<usize> {
    let count = sketch.nodes.len();
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut into = vec![0_usize; count];
    for edge in &sketch.edges {
        out[edge.from].push(edge.to);
        into[edge.to] += 1;
    }
    // Search depth first with an explicit stack, because a chain may be as long as the file. An edge to a node that is still open is a back edge.
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
