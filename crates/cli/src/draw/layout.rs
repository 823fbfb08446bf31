//! Where everything of a picture stands: layers from the longest path, and for each edge a way on which no node stands.
//!
//! An edge that is longer than a layer has a place of its own in each layer between, so that it is led around the nodes there.

use unicode_width::UnicodeWidthStr;

use super::Sketch;
use super::svg::cut;

/// Sizes in pixels. A character of the font is about seven wide.
pub(super) const CHAR: i64 = 7;
pub(super) const HEIGHT: i64 = 36;
const GAP_X: i64 = 32;
const GAP_Y: i64 = 64;
const MARGIN: i64 = 24;

/// How wide the place of an edge is in a layer, and what is kept free beside it.
const LANE: i64 = 6;
const BESIDE: i64 = 14;

/// How far the loop of a node to itself reaches.
pub(super) const LOOP: i64 = 30;

/// How often order and places are improved: more makes no picture visibly better.
const SWEEPS: usize = 6;

/// How many places edges may take in all: past this many they are drawn straight. A small file could ask for the square of its size.
const LANES: usize = 40_000;

/// Where a node stands: the middle of its box, and its width.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Place {
    pub(super) x: i64,
    pub(super) y: i64,
    pub(super) width: i64,
}

/// A point of a way.
pub(super) type Point = (i64, i64);

/// Where everything stands.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) places: Vec<Place>,
    /// For each edge, the points that it goes through; none for a loop. Between two of them it is in the gap of two layers, or beside the
    /// nodes of one.
    pub(super) ways: Vec<Vec<Point>>,
    pub(super) width: i64,
    pub(super) height: i64,
}

/// Something that takes room in a layer: a node, or an edge on its way.
struct Items {
    layer: Vec<usize>,
    width: Vec<i64>,
    /// The items that each is joined with, in the layer above and in that below.
    joined: [Vec<Vec<usize>>; 2],
    /// For each edge, its places in the layers between, from top to bottom.
    lanes: Vec<Vec<usize>>,
}

impl Items {
    fn of(sketch: &Sketch) -> Self {
        let layer = layers(sketch);
        let width = sketch.nodes.iter().map(|node| {
            let text = i64::try_from(cut(&node.caption()).width()).unwrap_or(0) * CHAR;
            // Slanted sides take room from the text.
            let room = match node.shape.as_str() {
                "diamond" | "hexagon" | "parallelogram" => 52,
                "component" | "tripleoctagon" => 36,
                _ => 24,
            };
            (text + room).max(56)
        });
        let mut items = Self {
            width: width.collect(),
            joined: [vec![Vec::new(); layer.len()], vec![Vec::new(); layer.len()]],
            lanes: Vec::with_capacity(sketch.edges.len()),
            layer,
        };
        for edge in &sketch.edges {
            let down = items.layer[edge.from] <= items.layer[edge.to];
            let (upper, lower) = if down { (edge.from, edge.to) } else { (edge.to, edge.from) };
            let between = items.layer[upper] + 1..items.layer[lower];
            let mut lanes = Vec::new();
            if items.layer.len() - sketch.nodes.len() + between.len() <= LANES {
                for layer in between {
                    lanes.push(items.layer.len());
                    items.layer.push(layer);
                    items.width.push(LANE);
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
        }
        items
    }

    fn is_lane(&self, item: usize, nodes: usize) -> bool {
        item >= nodes
    }

    /// Returns how far the middles of two neighbours are apart at least.
    fn apart(&self, left: usize, right: usize, nodes: usize) -> i64 {
        let gap = if self.is_lane(left, nodes) || self.is_lane(right, nodes) { BESIDE } else { GAP_X };
        i64::midpoint(self.width[left], self.width[right]) + gap
    }
}

/// Finds where everything stands.
pub(super) fn layout(sketch: &Sketch) -> Layout {
    let nodes = sketch.nodes.len();
    let mut items = Items::of(sketch);
    for edge in sketch.edges.iter().filter(|edge| edge.from == edge.to) {
        // The loop is part of what the node takes.
        items.width[edge.from] += 2 * LOOP;
    }
    let rows = ordered(&items);
    let x = across(&items, &rows, nodes);
    let left = (0..items.layer.len()).map(|item| x[item] - items.width[item] / 2).min().unwrap_or(0);
    let right = (0..items.layer.len()).map(|item| x[item] + items.width[item] / 2).max().unwrap_or(0);
    let y =
        |item: usize| MARGIN + HEIGHT / 2 + i64::try_from(items.layer[item]).unwrap_or(0) * (HEIGHT + GAP_Y);
    let loops = |node: usize| sketch.edges.iter().filter(|edge| edge.from == node && edge.to == node).count();
    let has_loop: Vec<i64> = match sketch.edges.iter().any(|edge| edge.from == edge.to) {
        true => (0..nodes).map(|node| i64::try_from(loops(node)).unwrap_or(0) * 2 * LOOP).collect(),
        false => vec![0; nodes],
    };
    let place = |item: usize| Place { x: x[item] - left + MARGIN, y: y(item), width: items.width[item] };
    let mut places: Vec<Place> = (0..nodes).map(place).collect();
    places.iter_mut().zip(&has_loop).for_each(|(place, more)| place.width -= more);
    let ways = ways(sketch, &items, &places, &|item| place(item));
    Layout {
        width: right - left + 2 * MARGIN,
        height: places.iter().map(|place| place.y).max().unwrap_or(0) + HEIGHT / 2 + MARGIN,
        places,
        ways,
    }
}

/// Puts the items of each layer in an order in which edges cross little: each in the middle of those that it is joined with.
fn ordered(items: &Items) -> Vec<Vec<usize>> {
    let count = items.layer.iter().max().map_or(0, |last| last + 1);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (item, &at) in items.layer.iter().enumerate() {
        rows[at].push(item);
    }
    let mut order = vec![0_usize; items.layer.len()];
    let number = |row: &[usize], order: &mut Vec<usize>| {
        row.iter().enumerate().for_each(|(at, &item)| order[item] = at);
    };
    rows.iter().for_each(|row| number(row, &mut order));
    for sweep in 0..SWEEPS {
        let side = sweep % 2;
        let mut arrange = |row: &mut Vec<usize>| {
            // In thousandths, so that no two machines round in another way.
            row.sort_by_key(|&item| {
                let joined = &items.joined[side][item];
                let sum: usize = joined.iter().map(|&other| order[other] * 1_000).sum();
                sum.checked_div(joined.len()).unwrap_or(order[item] * 1_000)
            });
            number(row, &mut order);
        };
        if side == 0 {
            rows.iter_mut().for_each(&mut arrange);
        } else {
            rows.iter_mut().rev().for_each(&mut arrange);
        }
    }
    rows
}

/// Finds how far right the middle of each item is: near those that it is joined with, and apart from its neighbours.
fn across(items: &Items, rows: &[Vec<usize>], nodes: usize) -> Vec<i64> {
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
            // As far left as the wishes allow, and as far right; between two that keep their distance, any mean does.
            let (mut least, mut most) = (wanted.clone(), wanted);
            for at in 1..row.len() {
                least[at] = least[at].max(least[at - 1] + items.apart(row[at - 1], row[at], nodes));
            }
            for at in (1..row.len()).rev() {
                most[at - 1] = most[at - 1].min(most[at] - items.apart(row[at - 1], row[at], nodes));
            }
            // Rounded down together, so that nothing comes nearer than by a pixel.
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

/// Finds the way of each edge; those that begin or end at one side of a node do so side by side.
fn ways(sketch: &Sketch, items: &Items, places: &[Place], place: &dyn Fn(usize) -> Place) -> Vec<Vec<Point>> {
    // By node and side, the edges there and how far right they go to.
    let mut ports: Vec<[Vec<(i64, usize)>; 2]> = vec![[Vec::new(), Vec::new()]; sketch.nodes.len()];
    let ends = |edge: usize| {
        let line = &sketch.edges[edge];
        let down = items.layer[line.from] < items.layer[line.to];
        let (upper, lower) = if down { (line.from, line.to) } else { (line.to, line.from) };
        (upper, lower, down)
    };
    for edge in (0..sketch.edges.len()).filter(|&edge| sketch.edges[edge].from != sketch.edges[edge].to) {
        let (upper, lower, _) = ends(edge);
        let lanes = &items.lanes[edge];
        let after = lanes.first().map_or(places[lower].x, |&lane| place(lane).x);
        let before = lanes.last().map_or(places[upper].x, |&lane| place(lane).x);
        ports[upper][1].push((after, edge));
        ports[lower][0].push((before, edge));
    }
    for sides in &mut ports {
        sides.iter_mut().for_each(|side| side.sort_unstable());
    }
    let mut found = vec![[(0, 0); 2]; sketch.edges.len()];
    for (node, sides) in ports.iter().enumerate() {
        for (side, edges) in sides.iter().enumerate() {
            let count = i64::try_from(edges.len()).unwrap_or(1);
            for (at, &(_, edge)) in edges.iter().enumerate() {
                let at = i64::try_from(at).unwrap_or(0);
                // Over the middle of the side, where every shape is.
                let offset = (2 * (at + 1) - (count + 1)) * places[node].width * 3 / (10 * (count + 1));
                let reach = reach(&sketch.nodes[node].shape, offset, places[node].width);
                let y = if side == 1 { places[node].y + reach } else { places[node].y - reach };
                found[edge][1 - side] = (places[node].x + offset, y);
            }
        }
    }
    let way = |edge: usize| {
        let line = &sketch.edges[edge];
        if line.from == line.to {
            return Vec::new();
        }
        let (upper, lower, down) = ends(edge);
        let [begin, end] = found[edge];
        // Out of the layer first where the side is slanted: a curve from there would come near to the node beside.
        let (below, above) = (places[upper].y + HEIGHT / 2, places[lower].y - HEIGHT / 2);
        let mut way = vec![begin];
        way.extend(Some((begin.0, below)).filter(|_| begin.1 < below));
        for &lane in &items.lanes[edge] {
            let Place { x, y, .. } = place(lane);
            way.extend([(x, y - HEIGHT / 2), (x, y + HEIGHT / 2)]);
        }
        way.extend(Some((end.0, above)).filter(|_| end.1 > above));
        way.push(end);
        if !down {
            way.reverse();
        }
        way
    };
    (0..sketch.edges.len()).map(way).collect()
}

/// Returns how far above and below its middle a shape reaches, so far beside the middle.
fn reach(shape: &str, offset: i64, width: i64) -> i64 {
    match shape {
        "diamond" => HEIGHT / 2 - offset.abs() * HEIGHT / width.max(1),
        _ => HEIGHT / 2,
    }
}

/// Gives each node its layer: one below the lowest that leads to it, not counting edges that lead back.
pub(super) fn layers(sketch: &Sketch) -> Vec<usize> {
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
