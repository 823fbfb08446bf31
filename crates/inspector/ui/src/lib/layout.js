// Where the nodes of a graph stand. It is worked out anew only when nodes or edges are others: no update moves the picture.

import dagre from '@dagrejs/dagre';
import { label } from './names.js';

const CHAR = 8;

export function layout(nodes, edges, down = true) {
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({ rankdir: down ? 'TB' : 'LR', nodesep: 26, ranksep: 44, edgesep: 14, marginx: 16, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.name, { width: Math.max(84, [...label(node)].length * CHAR + 44), height: 38 });
  for (const edge of edges) {
    if (edge.from === edge.to || !graph.hasNode(edge.from) || !graph.hasNode(edge.to)) continue;
    const text = edge.label ? edge.label.slice(0, 24) : '';
    graph.setEdge(edge.from, edge.to, text ? { width: text.length * 6.2, height: 14, labelpos: 'c' } : {});
  }
  dagre.layout(graph);
  const places = new Map(nodes.map((node) => [node.name, graph.node(node.name)]));
  const ways = new Map();
  for (const edge of edges) {
    const id = `${edge.from}\n${edge.to}`;
    const place = places.get(edge.from);
    if (edge.from === edge.to && place) {
      const [x, y] = [place.x + place.width / 2, place.y];
      ways.set(id, { path: `M${x},${y - 8}C${x + 34},${y - 22} ${x + 34},${y + 22} ${x},${y + 8}` });
      continue;
    }
    const found = graph.edge(edge.from, edge.to);
    if (found) ways.set(id, { path: curve(found.points), x: found.x, y: found.y });
  }
  const { width = 100, height = 100 } = graph.graph();
  return { places, ways, width, height };
}

// From top to bottom, unless the picture would be much larger the other way.
export function best(nodes, edges, room, tall) {
  const [down, across] = [layout(nodes, edges, true), layout(nodes, edges, false)];
  const fits = (one) => Math.min(1.15, room / one.width, tall / one.height);
  return fits(across) > fits(down) * 1.15 ? across : down;
}

function curve(points) {
  const at = (p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`;
  if (points.length < 3) return `M${points.map(at).join('L')}`;
  let path = `M${at(points[0])}`;
  for (let i = 1; i < points.length - 1; i += 1) {
    const [here, next] = [points[i], points[i + 1]];
    const end = i === points.length - 2 ? next : { x: (here.x + next.x) / 2, y: (here.y + next.y) / 2 };
    path += `Q${at(here)} ${at(end)}`;
  }
  return path;
}
