//! The path of each edge, from one node to another and around the nodes between them.

use super::GraphSketch;
use super::direction::LayoutDirection;
use super::layout::{HEIGHT, LayerBounds, LayerItems, Point};

/// The part of a node's side on which edges begin and end, in tenths. Every shape reaches its box there.
const UPRIGHT: i64 = 6;
const LEVEL: i64 = 8;

/// Computes the path of each edge. Edges at the same side of a node are side by side.
pub(super) fn ways(
    sketch: &GraphSketch,
    items: &LayerItems,
    layers: &LayerBounds,
    x: &[i64],
    turn: LayoutDirection,
) -> Vec<Vec<Point>> {
    // For each side of each node, the edges that begin or end there, with the horizontal position of their other end.
    let mut ports: Vec<[Vec<(i64, usize)>; 2]> = vec![[Vec::new(), Vec::new()]; sketch.nodes.len()];
    let ends = |edge: usize| {
        let line = &sketch.edges[edge];
        let along = items.layer[line.from] < items.layer[line.to];
        let (upper, lower) = if along { (line.from, line.to) } else { (line.to, line.from) };
        (upper, lower, along)
    };
    for edge in (0..sketch.edges.len()).filter(|&edge| sketch.edges[edge].from != sketch.edges[edge].to) {
        let (upper, lower, _) = ends(edge);
        let lanes = &items.lanes[edge];
        ports[upper][1].push((x[lanes.first().copied().unwrap_or(lower)], edge));
        ports[lower][0].push((x[lanes.last().copied().unwrap_or(upper)], edge));
    }
    let mut found = vec![[(0, 0); 2]; sketch.edges.len()];
    for (node, sides) in ports.iter_mut().enumerate() {
        let width = items.widths[node];
        let (length, share) = if turn.is_level() { (HEIGHT, LEVEL) } else { (width, UPRIGHT) };
        for (side, edges) in sides.iter_mut().enumerate() {
            edges.sort_unstable();
            let count = i64::try_from(edges.len()).unwrap_or(1);
            for (at, &(_, edge)) in (0_i64..).zip(&*edges) {
                let offset = (2 * (at + 1) - (count + 1)) * length * share / (20 * (count + 1));
                let reach = turn.reach(&sketch.nodes[node].shape, side == 1, offset, width);
                let middle = layers.middle(items.layer[node]);
                let along = if side == 1 { middle + reach } else { middle - reach };
                found[edge][1 - side] = (x[node] + offset, along);
            }
        }
    }
    let way = |edge: usize| {
        let line = &sketch.edges[edge];
        if line.from == line.to {
            return Vec::new();
        }
        let (upper, lower, along) = ends(edge);
        let [begin, end] = found[edge];
        // If the shape ends inside its layer, first leave the layer. Otherwise a curve would come close to a node next to it.
        let (below, above) = (layers.end(items.layer[upper]), layers.begin(items.layer[lower]));
        let mut points = vec![begin];
        points.extend(Some((begin.0, below)).filter(|_| begin.1 < below));
        for &lane in &items.lanes[edge] {
            let layer = items.layer[lane];
            points.extend([(x[lane], layers.begin(layer)), (x[lane], layers.end(layer))]);
        }
        points.extend(Some((end.0, above)).filter(|_| end.1 > above));
        points.push(end);
        if !along {
            points.reverse();
        }
        points
    };
    (0..sketch.edges.len()).map(way).collect()
}
