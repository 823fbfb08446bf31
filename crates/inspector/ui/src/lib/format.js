// Times, lengths, sizes and counts as people read them: the one place for units and plurals.

const UNITS = [['d', 86400000], ['h', 3600000], ['m', 60000], ['s', 1000]];

export function length(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return '';
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)}ms`;
  if (ms < 10000) return `${(ms / 1000).toFixed(1)}s`;
  const at = UNITS.findIndex(([, size]) => ms >= size);
  const [unit, size] = UNITS[at];
  const next = UNITS[at + 1];
  const rest = next ? Math.floor((ms % size) / next[1]) : 0;
  return `${Math.floor(ms / size)}${unit}${rest ? ` ${rest}${next[0]}` : ''}`;
}

// A count with its noun, as `1 run` and `3 runs`.
export function count(number, noun) {
  if (number === 1) return `1 ${noun}`;
  const stem = /[^aeiou]y$/.test(noun) ? `${noun.slice(0, -1)}ie` : /(s|x|ch|sh)$/.test(noun) ? `${noun}e` : noun;
  return `${number.toLocaleString('en')} ${stem}s`;
}

// A time at the end of all times, as that of a wait for ever: this language has no date for it, and may not even have the number.
export const never = (at) => typeof at !== 'number' || Math.abs(at) > 8.64e15;

// Whether a time is there and has not come.
export const later = (at, now) => at !== null && at !== undefined && (never(at) || at > now);

export const ago = (at, now) => (never(at) ? 'never' : at > now + 1000 ? `in ${length(at - now)}` : `${length(now - at)} ago`);

export const iso = (at) => (never(at) ? undefined : new Date(at).toISOString());

export const exact = (at) => (at === null || at === undefined ? '' : iso(at)?.replace('T', ' ').replace('Z', ' UTC') ?? 'never');

// The same on the viewer's own clock, which is what a person compares with a message of last night.
export const local = (at) => (at === null || at === undefined || never(at) ? '' : new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' }));

export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(bytes < 1e4 ? 1 : 0)} kB`;
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

export const STATUS = {
  in_progress: { word: 'in progress', look: 'going', sign: '▶' },
  interrupted: { word: 'interrupted', look: 'waiting', sign: '?' },
  awaiting_input: { word: 'awaiting input', look: 'waiting', sign: '✉' },
  completed: { word: 'completed', look: 'done', sign: '✓' },
  failed: { word: 'failed', look: 'failed', sign: '✗' },
  cancelled: { word: 'cancelled', look: 'skipped', sign: '–' },
};

export const LOOK = {
  plain: { word: 'not reached', sign: '' },
  done: { word: 'done', sign: '✓' },
  partial: { word: 'partly done', sign: '◐' },
  failed: { word: 'failed', sign: '✗' },
  going: { word: 'running', sign: '▶' },
  waiting: { word: 'waits', sign: '?' },
  skipped: { word: 'skipped', sign: '–' },
};

export const ended = (status) => status === 'completed' || status === 'failed' || status === 'cancelled';

// Makes visible what would be invisible, or would reorder the text around it. What joins letters (ZWNJ, ZWJ) stays: Persian, Hindi and emoji need it, and it
// reorders nothing.
export function plain(text) {
  return String(text ?? '').replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, '0')}`);
}

export const json = (value) => plain(JSON.stringify(value));

// A word as a shell reads it as one. What a terminal would obey, or show in another order, is escaped.
export function quoted(word) {
  if (/^[A-Za-z0-9\-_./:@%+=,]+$/.test(word)) return word;
  if (plain(word) === word) return `'${word.replaceAll("'", "'\\''")}'`;
  return `$'${plain(word.replaceAll('\\', '\\\\').replaceAll("'", "\\'").replaceAll('\n', '\\n').replaceAll('\t', '\\t'))}'`;
}

export const named = (run) => (run.tenant === 'default' ? run.id : `${run.tenant}/${run.id}`);

export const command = (meta, ...words) => ['ferrata', ...words.map(String).map(quoted), meta?.options].filter(Boolean).join(' ');
