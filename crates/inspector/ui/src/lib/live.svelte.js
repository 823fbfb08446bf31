// What every page shares: the clock of the server, what the viewer may do, and whether the server is there.

import { get } from './api.js';

// `back` counts how often an answer has come after none had: what has failed meanwhile asks again.
export const live = $state({ meta: null, skew: 0, now: Date.now(), error: null, notice: null, back: 0 });

setInterval(() => { live.now = Date.now() + live.skew; }, 1000);

export function heard(answer) {
  if (answer?.now) {
    live.skew = answer.now - Date.now();
    live.now = answer.now;
  }
  recovered();
  return answer;
}

export function recovered() {
  if (live.error) live.back += 1;
  live.error = null;
}

// Whether asking again may be answered otherwise: a question that is wrong stays wrong.
export const passes = (error) => !(error.status >= 400 && error.status < 500) || error.status === 401 || error.status === 408 || error.status === 429;


export function failed(error) {
  if (error.name !== 'AbortError') live.error = error;
}

// Asks for something once, and again as long as it cannot be answered. `tell` is given what went wrong, or nothing.
export function insist(work, tell = () => {}) {
  const abort = new AbortController();
  let timer;
  const turn = async () => {
    if (document.hidden) { timer = setTimeout(turn, 2000); return; }
    try {
      await work(abort.signal);
      if (!abort.signal.aborted) tell(null);
    } catch (error) {
      if (abort.signal.aborted || error.name === 'AbortError') return;
      tell(error);
      if (passes(error)) timer = setTimeout(turn, 2000);
    }
  };
  turn();
  return () => { clearTimeout(timer); abort.abort(); };
}

// Asks what the viewer may do: until it is known, the page only reads.
export const begin = () => insist(async (signal) => { live.meta = heard(await get('', {}, signal)); }, (error) => { if (error) failed(error); });

let timer;
export function say(text) {
  live.notice = text;
  clearTimeout(timer);
  timer = setTimeout(() => { live.notice = null; }, 4000);
}

// Does something again and again while the page is looked at, one at a time, and less often while it fails. What is asked wrongly is not asked again.
export function every(ms, work) {
  let stopped = false;
  let next;
  let fails = 0;
  const abort = new AbortController();
  const turn = async () => {
    clearTimeout(next);
    if (stopped || document.hidden) return;
    try {
      await work(abort.signal);
      fails = 0;
    } catch (error) {
      fails += 1;
      if (!stopped) failed(error);
      if (error.name !== 'AbortError' && !passes(error)) return;
    }
    // What it depends on is gone with the page that asked.
    if (stopped) return;
    const pause = typeof ms === 'function' ? ms() : ms;
    next = setTimeout(turn, Math.max(pause, Math.min(pause * 2 ** fails, 5000)));
  };
  const seen = () => { if (!document.hidden) turn(); };
  document.addEventListener('visibilitychange', seen);
  turn();
  return () => {
    stopped = true;
    clearTimeout(next);
    abort.abort();
    document.removeEventListener('visibilitychange', seen);
  };
}
