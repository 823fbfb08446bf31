// What every page shares: the clock of the server, what the viewer may do, and whether the server is there.

import { get } from './api.js';

export const live = $state({ meta: null, skew: 0, now: Date.now(), error: null, notice: null });

setInterval(() => { live.now = Date.now() + live.skew; }, 1000);

export function heard(answer) {
  if (answer?.now) {
    live.skew = answer.now - Date.now();
    live.now = answer.now;
  }
  live.error = null;
  return answer;
}

export function failed(error) {
  if (error.name !== 'AbortError') live.error = error;
}

export async function begin() {
  try {
    live.meta = heard(await get(''));
  } catch (error) {
    failed(error);
  }
}

let timer;
export function say(text) {
  live.notice = text;
  clearTimeout(timer);
  timer = setTimeout(() => { live.notice = null; }, 4000);
}

// Does something again and again while the page is looked at, one at a time, and less often while it fails.
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
