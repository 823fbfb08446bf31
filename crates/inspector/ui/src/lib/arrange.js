// Asks the worker where nodes stand; of the last pictures it is known.

let worker;
let count = 0;
const waiting = new Map();
const known = new Map();
const KEPT = 12;

function begin() {
  worker = new Worker(new URL('./layout.worker.js', import.meta.url), { type: 'module' });
  worker.onmessage = ({ data }) => {
    waiting.get(data.id)?.(data);
    waiting.delete(data.id);
  };
}

// Returns the places, at once if they are known, and as a promise otherwise.
export function arrange(structure, room, tall) {
  const key = `${room} ${tall} ${structure}`;
  if (known.has(key)) return known.get(key);
  if (!worker) begin();
  const [nodes, edges] = JSON.parse(structure);
  const id = ++count;
  return new Promise((resolve, reject) => {
    waiting.set(id, ({ places, wrong }) => {
      if (wrong) { reject(new Error(wrong)); return; }
      known.set(key, places);
      if (known.size > KEPT) known.delete(known.keys().next().value);
      resolve(places);
    });
    worker.postMessage({ id, nodes: nodes.map(([name, text]) => ({ name, label: text })), edges: edges.map(([from, to, text]) => ({ from, to, label: text })), room, tall });
  });
}
