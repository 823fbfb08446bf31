// How the nodes of a graph are called in its picture.

// The group that a node of a subgraph is in, as long as that is folded.
export function shownAs(name, folded) {
  const parts = name.split('/');
  for (let end = 1; end < parts.length; end += 1) {
    const group = parts.slice(0, end).join('/');
    if (folded.has(group)) return group;
  }
  return name;
}

export function groupsOf(nodes) {
  const groups = new Set();
  for (const { name } of nodes) {
    const parts = name.split('/');
    for (let end = 1; end < parts.length; end += 1) groups.add(parts.slice(0, end).join('/'));
  }
  return [...groups];
}

export const label = (node) => {
  const text = node.label || node.name;
  return text.length > 30 ? `${text.slice(0, 29)}…` : text;
};
