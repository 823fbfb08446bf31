// Works out where nodes stand, beside the page: a graph of a thousand nodes takes a second, in which the page goes on.

import { best } from './layout.js';

onmessage = ({ data: { id, nodes, edges, room, tall } }) => {
  try {
    postMessage({ id, places: best(nodes, edges, room, tall) });
  } catch (error) {
    postMessage({ id, wrong: String(error) });
  }
};
