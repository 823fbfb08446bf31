// The API below the page: requests with the token, refusals as errors, and one event stream.

// Beside this file: the page's own address may end without a slash.
const base = new URL(/* @vite-ignore */ './api/v1', import.meta.url).href;

const KEY = 'ferrata-token';

// The token comes with the address once, and is kept for this tab alone.
export function takeToken() {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
  history.replaceState(null, '', '#/runs');
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

function headers(more = {}) {
  const token = sessionStorage.getItem(KEY);
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

export class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function refused(response) {
  try {
    const { code, message } = await response.json();
    return new Refusal(response.status, code, message);
  } catch {
    return new Refusal(response.status, 'INTERNAL', `the inspector answered with ${response.status}`);
  }
}

function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== '') query.append(name, one);
    }
  }
  const text = query.toString();
  return `${base}${path}${text ? `?${text}` : ''}`;
}

async function ask(path, params, options = {}) {
  let response;
  try {
    response = await fetch(address(path, params), { ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Refusal(0, 'UNREACHABLE', 'the inspector does not answer; is `ferrata serve` still running?');
  }
  if (!response.ok) throw await refused(response);
  return response;
}

export const runPath = (run) => `/runs/${encodeURIComponent(run.tenant)}/${encodeURIComponent(run.id)}`;

// A number with more digits than this language keeps stays as it was written, where the browser can do that.
const exactly = (key, value, context) => (typeof value === 'number' && context?.source && !Number.isSafeInteger(value) && String(value) !== context.source && JSON.rawJSON ? JSON.rawJSON(context.source) : value);
export const parsed = (text) => (/\d{16}/.test(text) ? JSON.parse(text, exactly) : JSON.parse(text));

export const get = async (path, params, signal) => parsed(await (await ask(path, params, { signal })).text());
export const text = async (path, params, signal) => (await ask(path, params, { signal })).text();
export const act = async (run, name, body) =>
  (await ask(`${runPath(run)}/acts/${name}`, {}, { method: 'POST', headers: { 'content-type': 'application/json' }, body: typeof body === 'string' ? body : JSON.stringify(body) })).json();

export const actOnQueue = async (queue, name, body) =>
  (await ask(`/queues/${encodeURIComponent(queue)}/acts/${name}`, {}, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })).json();

export const bulk = async (name, body, signal) =>
  (await ask(`/bulk/${name}`, {}, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal })).json();

// Follows a run until the signal ends it: each event is told, and a stream that was cut off goes on behind the last one.
// A stream of `fetch` and not an `EventSource`, which can send no token.
export async function follow(run, signal, { words, event, open, lost }) {
  let last;
  let pause = 250;
  while (!signal.aborted) {
    try {
      const response = await ask(`${runPath(run)}/events`, { words: words ? 'true' : '' }, { signal, headers: last ? { 'last-event-id': last } : {} });
      open();
      pause = 250;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const frames = (rest + value).split('\n\n');
        rest = frames.pop();
        for (const frame of frames) {
          let kind;
          let data = '';
          for (const line of frame.split('\n')) {
            if (line.startsWith('id: ')) last = line.slice(4);
            else if (line.startsWith('event: ')) kind = line.slice(7);
            else if (line.startsWith('data: ')) data = line.slice(6);
          }
          if (kind === 'end') {
            event(kind);
            return;
          }
          if (kind) event(kind, data);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      lost(error);
      // The run is another one now, or is gone: what was seen of it says nothing any more.
      if (error.status === 404 || error.status === 400) last = undefined;
      if (error.status === 404 || error.status === 401) return;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, 5000);
  }
}
