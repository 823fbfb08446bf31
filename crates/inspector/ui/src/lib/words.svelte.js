// What nodes say while they run: chunks of streams, progress, and events of their own. Of each activation the end of it, so that a model that talks for
// hours fits into the page.

const MOST = 20_000;
const EVENTS = 20;

const text = (value) => (typeof value === 'string' ? value : `${JSON.stringify(value)}\n`);

// What was said by activation; the page is told of it a few times a second.
export function heardWords() {
  const said = new Map();
  const words = $state({ by: {} });
  let timer = null;
  const tell = () => { timer ??= setTimeout(() => { timer = null; words.by = Object.fromEntries([...said].map(([at, one]) => [at, { streams: [...one.streams].map(([name, { text }]) => ({ name, text })), events: [...one.events] }])); }, 200); };
  const of = ({ node, visit }) => {
    const at = `${node}@${visit}`;
    if (!said.has(at)) said.set(at, { streams: new Map(), events: [] });
    return said.get(at);
  };
  function add(event, round, more) {
    const one = of(event);
    const stream = one.streams.get(event.stream);
    // A further attempt begins the stream again.
    const before = stream && stream.round === round ? stream.text : '';
    one.streams.set(event.stream, { round, text: (before + more).slice(-MOST) });
  }
  return {
    words,
    // Takes in an event; tells whether it was about words alone.
    take(kind, event) {
      if (kind === 'chunk') add(event, `a${event.attempt}`, text(event.data));
      else if (kind === 'chunks') add(event, `r${event.round}`, event.chunks.map(text).join(''));
      else if (kind === 'custom') {
        const one = of(event);
        one.events.push({ name: event.name, text: JSON.stringify(event.payload) });
        one.events.splice(0, one.events.length - EVENTS);
      } else return false;
      tell();
      return true;
    },
    end() { clearTimeout(timer); },
  };
}
