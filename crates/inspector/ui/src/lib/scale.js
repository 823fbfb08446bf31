// Time as places on a line. What is idle for long is folded, so that a run of a week with a minute of work shows the minute.

const FOLD = 26;

// Makes a scale over `[from, to]`; `busy` are the intervals in which something happens.
export function scale(busy, from, to, width, fold = true) {
  const whole = Math.max(1, to - from);
  const merged = [];
  for (const [a, b] of busy.map(([a, b]) => [Math.max(a, from), Math.min(b, to)]).filter(([a, b]) => b >= a).sort((a, b) => a[0] - b[0])) {
    const last = merged.at(-1);
    if (last && a <= last[1]) last[1] = Math.max(last[1], b);
    else merged.push([a, b]);
  }
  const gaps = [];
  let before = from;
  for (const [a, b] of [...merged, [to, to]]) {
    if (fold && a - before > Math.max(whole * 0.12, 1500)) gaps.push([before, a]);
    before = Math.max(before, b);
  }
  // As many as there is room for, the longest ones.
  gaps.sort((a, b) => b[1] - b[0] - (a[1] - a[0]));
  const kept = gaps.slice(0, Math.max(0, Math.floor(width / 90))).sort((a, b) => a[0] - b[0]);
  const pad = kept.map(([a, b]) => {
    // A little of the gap stays, so that what stands at its edges is not cut.
    const rest = Math.min((b - a) * 0.05, whole * 0.01);
    return [a + rest, b - rest];
  });
  const time = whole - pad.reduce((sum, [a, b]) => sum + b - a, 0);
  const per = Math.max(1, width - pad.length * FOLD) / Math.max(1, time);
  const x = (at) => {
    let place = 0;
    let mark = from;
    const end = Math.min(Math.max(at, from), to);
    for (const [a, b] of pad) {
      if (end <= a) break;
      place += (a - mark) * per;
      if (end < b) return place + ((end - a) / (b - a)) * FOLD;
      place += FOLD;
      mark = b;
    }
    return place + (end - mark) * per;
  };
  const at = (place) => {
    let [low, high] = [from, to];
    for (let step = 0; step < 50; step += 1) {
      const middle = (low + high) / 2;
      if (x(middle) < place) low = middle; else high = middle;
    }
    return low;
  };
  return { x, at, folds: pad.map(([a, b]) => ({ from: a, to: b, x: x(a), width: FOLD })) };
}
