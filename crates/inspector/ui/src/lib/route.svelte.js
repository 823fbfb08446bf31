// Where the page is: all of it stands in the address, so that it can be sent to somebody, and the way back works.

function read() {
  const text = location.hash.replace(/^#\/?/, '');
  const [path, query = ''] = text.split('?');
  const parts = path.split('/').filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { page: parts[0] ?? 'runs', parts: parts.slice(1), query: new URLSearchParams(query) };
}

export const route = $state({ now: read() });

addEventListener('hashchange', () => { route.now = read(); });

export function link(page, parts = [], query = {}) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== '') params.set(name, value);
  const text = params.toString();
  return `#/${[page, ...parts].map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export const toRun = (run, query) => link('run', [run.tenant, run.id], query);

// Sets parts of the query; without a trace in the way back unless it is asked for.
export function put(changes, { keep = false } = {}) {
  const query = new URLSearchParams(route.now.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === null || value === '') query.delete(name);
    else query.set(name, value);
  }
  const to = link(route.now.page, route.now.parts, Object.fromEntries(query));
  if (to === location.hash) return;
  history[keep ? 'pushState' : 'replaceState'](null, '', to);
  route.now = read();
}

export const go = (to) => { location.hash = to; };
